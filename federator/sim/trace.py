"""The trace (pools and jobs) and the result of a replay: when each job ran.

Jobs are columns: one list for each field, one entry for each job, in the order of the file. A job
is its row in them. Times are whole seconds on the trace's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

Stays = list[Sequence[tuple[float, float]]]
"""For each row, from when to when it ran, in order of time; one for each attempt."""

SHARED_SITE: Final = "*"  # where a job ran, for policies to which all pools are one


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePool:
    """GPUs that belong together; as nodes of one size, and as a counter."""

    name: str
    nodes: int
    gpus_per_node: int
    gpu_type: str = ""  # where it is told

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


class LeftOutReason(Enum):
    """Why a job of the file is not replayed."""

    TOO_LARGE = "larger than its pool"
    NO_SUBMISSION = "submission unknown"
    NO_DURATION = "duration unknown"
    NO_GPUS = "GPUs unknown"
    NO_POOL = "pool unknown"
    OTHER_POOL = "its pool is not in the file of pools"  # of dumps, which hold everything
    NO_GPU = "asks for no GPU"
    NEVER_RAN = "never ran, or has not ended"
    NO_START = "start unknown"
    OTHER_SITE = "its cluster is no site with GPUs"  # of a federation
    NO_SITE = "no site has such nodes"
    OVER_LIMIT = "more than its tenant may ever use"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A job of the file that is not replayed."""

    job_id: str
    line: int  # of the file, from 1; 0: it has no lines
    pool: str
    gpus: int
    reason: LeftOutReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Jobs as columns.

    Attributes:
        pools: in the order of their file.
        job_id: as in the file; the number of the row, from 1, where the file has none.
        submit_s: when it came.
        duration_s: how long it runs, at least 1.
        gpus: in all, 0 or more, at most its pool's.
        num_nodes: as asked, else the fewest that hold its GPUs.
        cpus: in all; 0: unknown.
        pool: index of its pool in ``pools``.
        user: "" where unknown.
        left_out: jobs of the file that are in none of the columns.
    """

    pools: tuple[TracePool, ...]
    job_id: list[str] = field(default_factory=list)
    submit_s: list[int] = field(default_factory=list)
    duration_s: list[int] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)
    num_nodes: list[int] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)
    pool: list[int] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def capacity(self) -> int:
        """GPUs of all pools."""
        return sum(pool.gpus for pool in self.pools)

    def in_order(self) -> list[int]:
        """All rows by submission; ties in the order of the file."""
        return sorted(range(len(self)), key=self.submit_s.__getitem__)

    def by_pool(self) -> list[list[int]]:
        """The rows of each pool by submission; ties in the order of the file."""
        rows: list[list[int]] = [[] for _ in self.pools]
        for row in self.in_order():
            rows[self.pool[row]].append(row)
        return rows

    def first(self, count: int) -> Trace:
        """The jobs that come first, in order of submission."""
        rows = self.in_order()[:count]

        def of(column: list[T]) -> list[T]:
            return [column[row] for row in rows]

        return Trace(
            pools=self.pools,
            job_id=of(self.job_id),
            submit_s=of(self.submit_s),
            duration_s=of(self.duration_s),
            gpus=of(self.gpus),
            num_nodes=of(self.num_nodes),
            cpus=of(self.cpus),
            pool=of(self.pool),
            user=of(self.user),
            left_out=self.left_out,
        )


@dataclass(frozen=True, slots=True)
class Timetable:
    """When and where each job of a trace ran; one entry for each row.

    Attributes:
        start_s: of the last attempt.
        end_s: of the job.
        site: a pool's name, or ``SHARED_SITE``.
        preemptions: how often it was stopped before its end.
    """

    start_s: list[int]
    end_s: list[int]
    site: list[str]
    preemptions: list[int]

    @classmethod
    def of(cls, trace: Trace, shared: bool = False) -> Timetable:
        """One to be filled in; each job is at its own pool unless all are ``shared``."""
        names = [SHARED_SITE if shared else pool.name for pool in trace.pools]
        blank = [0] * len(trace)
        return cls(blank, blank[:], [names[pool] for pool in trace.pool], blank[:])


def _quiet(_: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a trace is replayed, whatever the policy.

    Attributes:
        seed: of whatever a policy draws; the same seed gives the same timetable.
        progress: told now and then how many more jobs have started, or ended.
        audit: check at each start and each end that no GPU is used twice (slower).
        keep_awards: of a ``Fleet``, keep every award (a few KiB each).
        tells_usage: of a ``Fleet``, each report tells how many nodes are idle; it does anyway where
            a job is elastic.
    """

    seed: int = 0
    progress: Callable[[int], None] = _quiet
    audit: bool = False
    keep_awards: bool = False
    tells_usage: bool = False


class TracePolicy(Protocol):
    """Decides when the jobs of a trace run. Frozen parameters and this one method."""

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        """Run the whole trace in virtual time; every job ends."""
        ...
