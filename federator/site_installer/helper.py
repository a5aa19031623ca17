"""Makes the text of the helper as sites have it: one file, for those to read who let it run.

The package has it as two modules; ``site_exec`` imports the other one by one line, and that line
is replaced by the module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import federator

HELPER_SOURCE: Final = Path(federator.__file__).resolve().parent / "slurm/site_exec.py"
_IMPORT: Final = "from federator.slurm.site_tidy import progress_in, remove_folders\n"


def helper_of(source: str) -> str:
    """Return the helper in one piece, given the text of ``site_exec``."""
    part = HELPER_SOURCE.with_name("site_tidy.py")
    return source.replace(_IMPORT, part.read_text(encoding="utf-8"))
