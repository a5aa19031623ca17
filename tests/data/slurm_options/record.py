"""Record what Slurm's own commands know: writes options.json, scontrol.json, fields.json anew.

    python tests/data/slurm_options/record.py

Needs the testbed. For each release and command options.json has the long names, with the short
letter that ``--help`` gives: names from ``--help``, from getopt's list of possibilities for each
letter, and from ``--autocomplete`` where there is one. Options of the SPANK plug-in are left out.

scontrol.json has scontrol's commands and what it can show, from its ``--help``, and the fields of
``update JobId=…``: those words of the program itself that it accepts as one.

fields.json has the names of fields: of ``squeue -O`` and ``sinfo -O`` those words of the programs
that they accept as one, in lower case; of sacct what ``--helpformat`` prints, which without a
slurmdbd only that of 26.05 does.
"""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Final

from federator.testbed import inside, layout

FILE: Final = Path(__file__).with_name("options.json")
SCONTROL: Final = FILE.with_name("scontrol.json")
FIELDS: Final = FILE.with_name("fields.json")
COMMANDS: Final = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol")
_COMMAND: Final = re.compile(r"^ {5}(\w+|!!)\s", re.MULTILINE)
_ENTITIES: Final = re.compile(r"<ENTITY> may be ([^.<]*?)\n\s*\n")
_FIELDS: Final = r"""
words=$(grep -aoE '[A-Za-z][A-Za-z-]{2,30}' "$(command -v scontrol)")
ends=$(echo "$words" | sed -n 's/.*[a-z]\([A-Z][a-z]*\)$/\1/p') # words may share bytes
echo "$words" | grep -ix ResetAccrueTime # which takes no value
printf '%s\n' $words $ends | tr A-Z a-z | sort -u | while read -r word; do
  scontrol update jobid=1 "$word=1" no-such=1 2>&1 |
    grep -q "not supported: $word=1" || echo "$word"
done
"""
_NAMED: Final = r"""
grep -aoE '[A-Za-z][A-Za-z_-]{2,30}' "$(command -v PROGRAM)" | tr A-Z a-z | sort -u |
  while read -r word; do
    [ -n "$(PROGRAM -h -O "$word" 2>&1 >/dev/null)" ] || echo "$word"
  done
"""
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


def scontrol_at(site: str) -> dict[str, list[str]]:
    """The words that scontrol knows: commands, what is shown, and fields of jobs to update."""
    text = said(site, "scontrol", "--help")
    entities = _ENTITIES.search(text)
    assert entities is not None, text
    return {
        "commands": sorted(set(_COMMAND.findall(text.partition("<COMMAND> values are:")[2]))),
        "shows": sorted(re.findall(r'"(\w+)"', entities[1]), key=str.lower),
        "fields": _whole({word.lower() for word in said(site, "sh", "-c", _FIELDS).split()}),
    }


def fields_at(site: str) -> dict[str, list[str]]:
    """The names of fields that each of three programs knows."""
    found = {
        program: said(site, "sh", "-c", _NAMED.replace("PROGRAM", program)).split()
        for program in ("squeue", "sinfo")
    }
    told = inside.execute(layout.site(site), ("sacct", "--helpformat")).stdout
    return {**found, "sacct": sorted(told.split())}


def _whole(words: set[str]) -> list[str]:
    """Without those that abbreviate another."""
    return [
        word
        for word in sorted(words)
        if not any(other != word and other.startswith(word) for other in words)
    ]


def main() -> None:
    """Write the files."""
    recorded = {
        site.slurm: {command: options_at(site.name, command) for command in COMMANDS}
        for site in layout.SITES
    }
    FILE.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    words = {site.slurm: scontrol_at(site.name) for site in layout.SITES}
    SCONTROL.write_text(json.dumps(words, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    fields = {site.slurm: fields_at(site.name) for site in layout.SITES}
    FIELDS.write_text(json.dumps(fields, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
