"""Makes the helper as sites have it: one file to read for those who let it run, and its start.

Python keeps the byte code of a module and not that of a program, which it would compile at each
start: half of what a request costs. So the program does no more than import.

The package has the text as a few modules. The first line that imports one of them is replaced by
the module; later ones go.
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

FOLDER: Final = "fedsite"  # of the text, in libexec
_PROGRAM: Final = f'''\
#!/usr/bin/python3 -ISB
"""fed-site-exec: acts in a user's name. Run by sudo; {FOLDER}/site_exec.py says what it does."""

import os
import sys

# Last: nothing there takes the place of a module of Python's own.
sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "{FOLDER}"))

try:
    from site_exec import main
except ImportError as error:
    # rpm puts this file in place before the text: whoever asks just then asks again.
    sys.exit("fed-site-exec: %s in %s; is an upgrade under way?" % (error, sys.path[-1]))

if __name__ == "__main__":
    main()
'''


def helper_files(source: str) -> dict[str, tuple[bytes, bool]]:
    """Return the helper's files, given the text of ``site_exec``.

    By their paths in libexec, in the order in which they are to be installed: the content, and
    whether it is a program.
    """
    return {
        f"{FOLDER}/{HELPER_SOURCE.name}": (helper_of(source).encode(), False),
        "fed-site-exec": (_PROGRAM.encode(), True),
    }


def helper_of(source: str) -> str:
    """Return the text of the helper in one piece, given the text of ``site_exec``."""

    there = set[str]()

    def module(found: re.Match[str]) -> str:
        if found[1] in there:
            return ""
        there.add(found[1])
        return _IMPORT.sub(module, HELPER_SOURCE.with_name(f"{found[1]}.py").read_text("utf-8"))

    return _IMPORT.sub(module, source)
