"""A stay of a job in a site's own queue, as the sweeps of its agent have shown it.

It has what waits and allocation are told by, and who it was; not the job's name, its comment, its
script or its folders.
"""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

UNKNOWN_GPUS: Final = -1
ORDINARY: Final = (
    "",
    *("Priority", "Resources"),
    *("Dependency", "DependencyNeverSatisfied", "BeginTime"),
)
"""Words of ``held_by`` that replace no other: others are ahead, or hold what it needs; or it is not
eligible yet, which is no part of its wait."""
GONE: Final = "GONE"
REQUEUED: Final = "REQUEUED"
WAITS_OR_RUNS: Final = ("PENDING", "RUNNING", "SUSPENDED")


class LocalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One stay; a job that was requeued has several.

    Attributes:
        job_id: Slurm's own, also of a task of an array, or of a component of a het job.
        shown: as sacct shows it: ``7``, ``8_3``, ``14+1``.
        submitted_at_s: Unix time, as all of them; 0: not yet, or not known.
        eligible_at_s: when nothing of the user's own held it back.
        restarts: how often it had been put back into the queue.
        state: Slurm's word; GONE: it ended between two looks, REQUEUED: it was put back.
        ended_at_s: of GONE and REQUEUED, when a look missed it.
        limit_s: ``inf``: none.
        gpus: in all; ``UNKNOWN_GPUS``: Slurm does not say it.
        gpu_type: that it asked for; "": any.
        ran_on: GPU type of its nodes; "": none, several, or not known.
        federated: the federation launched it.
        held_by: while it waits, the first word of Slurm's reason; "": none. The history keeps the
            last that was not one of ``ORDINARY``, or else the last.
    """

    job_id: int
    shown: str
    user: str
    account: str
    partition: str
    state: str
    submitted_at_s: float
    eligible_at_s: float = 0.0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    restarts: int = 0
    limit_s: float = inf
    gpus: int = 0
    gpu_type: str = ""
    ran_on: str = ""
    nodes: int = 0
    federated: bool = False
    held_by: str = ""

    @property
    def key(self) -> tuple[int, float, int]:
        """Tells a stay from all others of its site."""
        return self.job_id, self.submitted_at_s, self.restarts

    @property
    def is_open(self) -> bool:
        """Whether more may be heard of it."""
        return self.state in WAITS_OR_RUNS


def lasting_word(before: str, new: str) -> str:
    """Which of two words of ``held_by``, told one after the other, is kept; as the history does."""
    stays = not new or (new in ORDINARY and before not in ORDINARY)
    return before if stays else new
