"""Makes the text of the helper as sites have it: one file, for those to read who let it run.

The package has it as a few modules; ``site_exec`` imports each of the others by one line, and that
line is replaced by the module. What one of those imports of another is there already, and goes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import federator

HELPER_SOURCE: Final = Path(federator.__file__).resolve().parent / "slurm/site_exec.py"
_IMPORT: Final = re.compile(
    r"^from federator\.slurm\.(site_\w+) import (?:\([^)]*\)|.*)\n", re.MULTILINE
)


def helper_of(source: str) -> str:
    """Return the helper in one piece, given the text of ``site_exec``."""

    def module(found: re.Match[str]) -> str:
        return _IMPORT.sub("", HELPER_SOURCE.with_name(f"{found[1]}.py").read_text("utf-8"))

    return _IMPORT.sub(module, source)
