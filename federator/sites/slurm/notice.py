"""By which signal does a job want to be told that it must leave? Read from its own options.

``--signal=[{R|B}:]SIG[@SECONDS]`` says it, as Slurm reads it: to the srun steps, with ``B:`` to the
batch script alone. How long before its end is of no use here: it is told at once. submitit puts its
name into the wckey and saves on USR2 by default. Whoever says nothing gets TERM, as Slurm's
GraceTime sends it to steps; a job without steps gets it as a whole, since nobody else could save.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Final

from federator.model.submission import Submission
from federator.sites.protocol import SignalTo

MAY_BE_SENT: Final = frozenset({
    "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT", "TSTP",
})  # fmt: skip
_OPTION: Final = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9]+)(?:@[0-9]+)?", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A signal without SIG, and what of the job it goes to."""

    signal: str = "TERM"
    to: SignalTo = SignalTo.PROGRAM


def notice_of(submission: Submission) -> Notice:
    """The notice that a job asked for; the usual one where it asked for none that can be sent."""
    options = {option.name: option.value or "" for option in submission.components[0]}
    match = _OPTION.fullmatch(options.get("signal", ""))
    if match is not None:
        name = _name(match[2])
        if name in MAY_BE_SENT:
            batch = "B" in (match[1] or "").upper()
            return Notice(signal=name, to=SignalTo.BATCH if batch else SignalTo.STEPS)
    if "submitit" in options.get("wckey", ""):
        return Notice(signal="USR2", to=SignalTo.STEPS)
    return Notice()


def _name(text: str) -> str:
    """The name of a signal given by name or number; "" of none."""
    if text.isdigit():
        known = {s.value: s.name for s in signal.Signals}
        return known.get(int(text[:4]), "").removeprefix("SIG")
    return text.upper().removeprefix("SIG")
