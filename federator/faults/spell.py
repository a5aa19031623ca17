"""The faults of a site's Slurm that whoever asks it meets, for as long as they last."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from federator.model.workload import AttemptId


class SbatchOutcome(enum.Enum):
    """The outcome of one sbatch."""

    WELL = "well"
    REPLY_LOST = "reply lost"
    NEVER_REACHED = "never reached"
    REFUSED = "refused"
    REFUSED_LATE = "refused late"
    SLOW = "slow"
    TOO_LATE = "too late"
    BEYOND = "beyond"


@dataclass(slots=True)
class Spell:
    """The faults of those who use a Slurm."""

    down: bool = False  # slurmctld does not answer
    sweep_s: float = 0.0  # from squeue to sinfo
    hides_node: bool = False
    unreadable: bool = False
    fate: SbatchOutcome = SbatchOutcome.WELL  # of the next sbatch
    of_resizes: dict[AttemptId, SbatchOutcome] = field(default_factory=dict)  # of their next sbatch
    refuses: set[str] = field(default_factory=set)  # users whose QOS sbatch does not know
    said: set[str] = field(default_factory=set)  # what was told of it already

    def say_once(self, what: str, tell: Callable[[str], None]) -> None:
        """Note that it has struck, once in each spell."""
        if what not in self.said:
            self.said.add(what)
            tell(what)
