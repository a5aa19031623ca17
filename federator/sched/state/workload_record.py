"""The state of one workload, as the ledger keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from federator.model.eligibility import NO_DEPENDENCY, Dependency, Hold
from federator.model.event import Awarded
from federator.model.lifecycle import WorkloadState
from federator.model.mappings import NOTHING
from federator.model.plan import JobPlan, Shrink
from federator.model.reason import Reason, ReasonCode, Refusal
from federator.model.score import Score
from federator.model.workload import AttemptId, SiteName, Workload, WorkloadId
from federator.sched.state.backoff import is_for_good
from federator.sched.state.bad_nodes import NO_BAD_NODES, BadNodes
from federator.sched.state.holdings import Charge
from federator.sched.state.scaling_curves import Stints

_T = TypeVar("_T")

Interruptions = tuple[tuple[float, SiteName, str, str], ...]
"""Unix time, site, partition and GPU type of attempts that had to leave for no job's sake; oldest
first."""


class RareFields(msgspec.Struct, frozen=True, gc=False):
    """The fields of a ``WorkloadRecord`` that most workloads never need, in the same order."""

    exit_code: int = 0
    signal: int = 0
    saved_at: SiteName = SiteName("")  # where its checkpoint is; "": none is known
    avoid_until_s: Mapping[SiteName, float] = NOTHING
    failures_at: Mapping[SiteName, int] = NOTHING
    setbacks: Mapping[SiteName, Reason] = NOTHING  # how a site failed it last
    plans_refused: Mapping[SiteName, int] = NOTHING  # by a site, in a row; or files
    held_for: str = ""  # the sites' words for which it was held last
    promised_to: WorkloadId | None = None  # whose award needs its nodes
    promised_jobs: Mapping[int, WorkloadId] = NOTHING  # the same of optional jobs
    leaving_jobs: Mapping[int, WorkloadId] = NOTHING  # taken, not known to be gone
    taken_jobs: frozenset[int] = frozenset()  # optional jobs that the present attempt has lost
    preemptions: int = 0
    evicted_at_s: float = 0.0  # when it was last evicted
    evicted_for: WorkloadId | None = None  # for whom, then
    fruitless_attempts: int = 0  # in a row that were cut off at their limit without having saved
    lost_gpu_s: float = 0.0  # destroyed by its evictions
    evictions: int = 0  # of others, who have left for it
    destroyed_gpu_s: float = 0.0  # by those
    hold: Hold = Hold.NONE
    begin_at_s: float = 0.0  # Unix time before which it does not start; 0: none was given
    eligible_at_s: float = 0.0  # Unix time since when it could start; 0: since its submission
    waits_for: Dependency = NO_DEPENDENCY  # what is left of it
    site_evicted_at_s: float = 0.0  # when its site preempted it last, for reasons of its own
    good_nodes: int = 0  # most that an elastic one is known to have worked on; 0: none is known
    most_nodes: int = 0  # of an elastic one that a larger size has failed; 0: none has
    stints: Stints = ()  # of an elastic one, its attempts that are over
    stalls: int = 0  # attempts that were ended because they finished no step
    copied_to: SiteName = SiteName("")  # where its checkpoint is as well, until it starts
    interruptions: Interruptions = ()  # that it met within a day
    ran_before_at: tuple[SiteName, ...] = ()  # other sites than ``ran_at``, the latest last


_NONE_YET: Final = RareFields()
_NONE_YET_VALUES: Final = msgspec.structs.astuple(_NONE_YET)


class _RareField(Generic[_T]):
    """A field that stands in ``WorkloadRecord.rare``."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, entry: WorkloadRecord, _owner: type) -> _T:
        value: _T = getattr(entry.rare, self._name)
        return value

    def __set__(self, entry: WorkloadRecord, value: _T) -> None:
        if value != getattr(entry.rare, self._name):
            entry.rare = msgspec.structs.replace(entry.rare, **{self._name: value})


HEAD_START_S: Final = 30 * 86_400.0
"""An interactive workload ranks as if it had waited for so much longer; beyond the age cap it
counts no more, so that it comes before batch work of its tenant whatever that has waited."""


class WorkloadRecord(msgspec.Struct, gc=False):  # it is in no cycle of references
    """One workload and how it stands. Changed only by ``Ledger.apply``, except ``refusals``.

    There may be a million, most of them as new, and these share what they have not used yet: so a
    mapping is replaced, never changed.
    """

    workload: Workload
    plan: tuple[JobPlan, ...] = ()
    bad_nodes: BadNodes = NO_BAD_NODES
    charge: Charge | None = None  # what it holds, from the award until it has left the site
    refusals: Mapping[SiteName, Refusal] = NOTHING  # of the last pass; volatile
    rare: RareFields = _NONE_YET
    # What follows is in the order of ``SnapshotWorkload``.
    state: WorkloadState = WorkloadState.PENDING
    attempt: int = 0
    site: SiteName = SiteName("")
    award: Awarded | None = None  # the last one, with the offers and the standing it went at
    site_job_id: int = 0
    work_dir: str | None = None  # as of ``AttemptReport``
    lease_from_s: float = 0.0  # since when it should be about to start
    withdrawing: bool = False
    started_at_s: float = 0.0
    ended_at_s: float = 0.0  # as its site tells
    over_at_s: float = 0.0  # since when the federation has known that it is over; 0: it is not
    site_state: str = ""
    reason: Reason | None = None
    ran_at: SiteName = SiteName("")  # where it last ran; "": it has not run yet

    exit_code = _RareField[int]()
    signal = _RareField[int]()
    saved_at = _RareField[SiteName]()
    avoid_until_s = _RareField[Mapping[SiteName, float]]()
    failures_at = _RareField[Mapping[SiteName, int]]()
    setbacks = _RareField[Mapping[SiteName, Reason]]()
    plans_refused = _RareField[Mapping[SiteName, int]]()
    held_for = _RareField[str]()
    promised_to = _RareField[WorkloadId | None]()
    promised_jobs = _RareField[Mapping[int, WorkloadId]]()
    leaving_jobs = _RareField[Mapping[int, WorkloadId]]()
    taken_jobs = _RareField[frozenset[int]]()
    preemptions = _RareField[int]()
    evicted_at_s = _RareField[float]()
    evicted_for = _RareField[WorkloadId | None]()
    fruitless_attempts = _RareField[int]()
    lost_gpu_s = _RareField[float]()
    evictions = _RareField[int]()
    destroyed_gpu_s = _RareField[float]()
    hold = _RareField[Hold]()
    begin_at_s = _RareField[float]()
    eligible_at_s = _RareField[float]()
    waits_for = _RareField[Dependency]()
    site_evicted_at_s = _RareField[float]()
    good_nodes = _RareField[int]()
    most_nodes = _RareField[int]()
    stints = _RareField[Stints]()
    stalls = _RareField[int]()
    copied_to = _RareField[SiteName]()
    interruptions = _RareField[Interruptions]()
    ran_before_at = _RareField[tuple[SiteName, ...]]()

    def began_to_run(self) -> None:
        """It has started at its site."""
        if self.ran_at not in ("", self.site):
            others = (site for site in self.ran_before_at if site not in (self.ran_at, self.site))
            self.ran_before_at = (*others, self.ran_at)
        self.ran_at = self.site

    @property
    def is_lent(self) -> bool:
        """Whether a forecast lent what it was awarded."""
        lending = self.award.lending if self.award is not None else None
        return lending is not None and lending.is_lent

    @property
    def queued_since_s(self) -> float:
        """Unix time from which it gains age in the queue: while it may not start it gains none."""
        return max(self.workload.submitted_at_s, self.eligible_at_s)

    @property
    def ranks_since_s(self) -> float:
        """Unix time by which it stands in its lane: an interactive workload has a head start."""
        return self.queued_since_s - (HEAD_START_S if self.workload.interactive else 0.0)

    @property
    def offers(self) -> dict[str, Score]:
        """Of every site that bid for the last award."""
        return self.award.scores if self.award is not None else {}

    @property
    def held_gpus(self) -> int:
        """The GPUs that it holds at its site, by its plan."""
        return sum(share.gpus for plan in self.plan for share in plan.nodes.values())

    @property
    def at_its_limit(self) -> bool:
        """Whether it has been told to leave because its time limit is near."""
        leaving = self.state is WorkloadState.PREEMPTING and self.reason is not None
        return leaving and self.reason is not None and self.reason.code is ReasonCode.TIME_LIMIT

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes of its plan; one that two of its jobs share is named once."""
        return tuple(dict.fromkeys(name for plan in self.plan for name in plan.nodes))

    @property
    def victims(self) -> tuple[WorkloadId, ...]:
        """The workloads that its last award evicts."""
        return self.award.victims if self.award is not None else ()

    @property
    def shrinks(self) -> tuple[Shrink, ...]:
        """The workloads whose optional jobs its last award takes."""
        return self.award.shrinks if self.award is not None else ()

    @property
    def displaces(self) -> bool:
        """Whether its last award needs nodes that others are on."""
        return bool(self.victims or self.shrinks)

    def is_refused_by(self, site: SiteName) -> bool:
        """Whether it was refused for good when the site's sbatch was last asked."""
        setback = self.setbacks.get(site)
        refused = self.plans_refused.get(site, 0)
        return setback is not None and is_for_good(setback.code, refused)

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(workload=self.workload.id, attempt=self.attempt)


_COMMON: Final = len(msgspec.structs.fields(WorkloadRecord)) - 6  # in the order of a snapshot


def restored_record(
    workload: Workload, plan: tuple[JobPlan, ...], bad_nodes: BadNodes, others: tuple[Any, ...]
) -> WorkloadRecord:
    """A record as a snapshot has it.

    Args:
        workload: what is asked for.
        plan: where its last attempt is, or was.
        bad_nodes: those it avoids.
        others: the other fields of its record, in the order of ``SnapshotWorkload``.
    """
    common, last = others[:_COMMON], others[_COMMON:]
    rare = _NONE_YET if last == _NONE_YET_VALUES else RareFields(*last)
    return WorkloadRecord(workload, plan, bad_nodes, None, NOTHING, rare, *common)
