"""Reads ``--licenses``: names and numbers, as sbatch of 22.05, 24.11 and 26.05 do."""

from __future__ import annotations

import re
from typing import Final

from federator.errors import InvalidRequest
from federator.model.gres import plus
from federator.model.license import Licenses

INVALID: Final = "Batch job submission failed: Invalid license specification"
MOST_KINDS: Final = 64
_PART: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.@/-]{0,127})(?:[:=] *([0-9]{1,9}))?", re.ASCII)


def licenses(text: str | None) -> Licenses:
    """Read ``matlab:2,fluent``: all of these. None or "": no licences.

    Raises:
        InvalidRequest: in sbatch's words; or it lets Slurm choose, as only 26.05 does.
    """
    found: Licenses = ()
    if text and "|" in text:
        raise InvalidRequest("--licenses: a choice (|) cannot be planned; ask for one of them")
    for part in re.split("[,;]", text or ""):
        if not part.strip():
            continue
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise InvalidRequest(INVALID)
        found = plus(found, ((match[1], 1 if match[2] is None else int(match[2])),))
    if len(found) > MOST_KINDS:
        raise InvalidRequest(INVALID)
    return tuple(each for each in found if each[1])


def words_of_licenses(asked: Licenses) -> str:
    """As all releases read them; 22.05 takes no ``=``."""
    return ",".join(f"{name}:{amount}" for name, amount in asked)
