"""Reads from a job's own options by which signal it wants to be told that it must leave.

``--signal`` says it (``signal_option``): to the srun steps, with ``B:`` to the batch script alone.
How long before its end is of no use here: it is told at once. submitit puts its name into the wckey
and saves on USR2 by default. Whoever says nothing gets TERM, as Slurm's GraceTime sends it to
steps; a job without steps gets it as a whole, since nobody else could save.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from federator.model.submission import Submission
from federator.slurm.options.signal_option import read_signal
from federator.wire.agent_protocol import SignalTo

MAY_BE_SENT: Final = frozenset(
    {
        "HUP",
        "INT",
        "QUIT",
        "USR1",
        "USR2",
        "ALRM",
        "TERM",
        "CONT",
        "TSTP",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A signal without SIG, and what of the job it goes to."""

    signal: str = "TERM"
    to: SignalTo = SignalTo.PROGRAM


def notice_of(submission: Submission) -> Notice:
    """The notice that a job asked for; the usual one where it asked for none that can be sent."""
    options = {option.name: option.value or "" for option in submission.components[0]}
    asked = read_signal(options.get("signal", ""))
    if asked is not None and asked.signal in MAY_BE_SENT:
        return Notice(signal=asked.signal, to=asked.to)
    if "submitit" in options.get("wckey", ""):
        return Notice(signal="USR2", to=SignalTo.STEPS)
    return Notice()
