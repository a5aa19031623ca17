"""Record the options that Slurm's own commands know: writes options.json anew.

    python tests/data/slurm_options/record.py

Needs the testbed. For each release and command the file has the long names, with the short letter
that ``--help`` gives: names from ``--help``, from getopt's list of possibilities for each letter,
and from ``--autocomplete`` where there is one. Options of the SPANK plug-in are left out.
"""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Final

from federator.testbed import inside, layout

FILE: Final = Path(__file__).with_name("options.json")
COMMANDS: Final = ("sbatch", "squeue", "scancel", "sinfo")
_HELP: Final = re.compile(r"^\s+(?:-(\w)(?:, ?| |$))?\s*(?:--([A-Za-z][\w-]*))?", re.MULTILINE)
_POSSIBLE: Final = re.compile(r"'--([\w-]+)'")
_COMPLETED: Final = re.compile(r"--([\w-]+)=?")


def said(site: str, *argv: str) -> str:
    """What a command says, on either stream."""
    done = inside.execute(layout.site(site), argv, user="vision1")
    return done.stdout + done.stderr


def options_at(site: str, command: str) -> dict[str, str]:
    """Long names, and the short letter of each."""
    found: dict[str, str] = {}
    for letter, name in _HELP.findall(said(site, command, "--help")):
        if name and not found.get(name):  # squeue's help has --name twice
            found[name] = letter
    for letter in string.ascii_letters:
        text = said(site, "sh", "-c", f"{command} --{letter} </dev/null")
        if "possibilities:" in text:
            line = next(line for line in text.splitlines() if "possibilities:" in line)
            found = (
                dict.fromkeys(_POSSIBLE.findall(line.partition("possibilities:")[2]), "") | found
            )
    completed = said(site, command, "--autocomplete=--")
    if "unrecognized" not in completed:
        found = dict.fromkeys(_COMPLETED.findall(completed), "") | found
    return {name: found[name] for name in sorted(found) if not name.startswith("fed-")}


def main() -> None:
    """Write the file."""
    recorded = {
        site.slurm: {command: options_at(site.name, command) for command in COMMANDS}
        for site in layout.SITES
    }
    FILE.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
