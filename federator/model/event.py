"""The records of the event log: every decision and observation that changed a workload.

State is rebuilt by applying these in order; nothing else is needed. A log may begin with a
snapshot, which stands for all that came before it. A record keeps its meaning for ever: a new need
gets a new field with a default, or a new tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from federator.model.data_output import KeptOutput, OutputPlace, OutputState
from federator.model.data_placement import BegunMove, DataPlacement
from federator.model.data_use import DataPath
from federator.model.dataset import DataSet
from federator.model.draft import Draft
from federator.model.drain import LeaveDrill
from federator.model.eligibility import NO_DEPENDENCY, Dependency, Hold
from federator.model.lending import LendingDecision, LendingPlan
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.mappings import NOTHING
from federator.model.plan import JobPlan, NodeMove, Shrink
from federator.model.quota_loan import LoanStep
from federator.model.reason import Reason
from federator.model.score import COST, Score
from federator.model.site import Leave
from federator.model.submission import Option
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    AttemptId,
    Job,
    SiteName,
    TenantName,
    Workload,
    WorkloadId,
)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    at_s: float  # Unix time at the daemon


class EpochBegan(Event, frozen=True, kw_only=True, tag="epoch"):
    """A daemon took over; agents refuse orders of older epochs."""

    epoch: int
    first_id: WorkloadId = FIRST_WORKLOAD_ID  # ids below it are not given out any more
    log_began: int = 0  # the epoch that tells this log from others; 0: of its first term


class Submitted(Event, frozen=True, kw_only=True, tag="submitted"):
    """A submission was acknowledged; it is kept once, however many tasks an array has."""

    draft: Draft
    first_id: WorkloadId  # the others follow in order
    key: str  # the client's submit key
    array_id: WorkloadId | None = None  # of a task whose array's other tasks stand elsewhere
    by: str = ""  # the operator who submitted it for its user; "": the user did

    def workloads(self) -> tuple[Workload, ...]:
        """The queued workloads; all of them share the draft's submission."""
        return self.draft.workloads(self.first_id, self.at_s, self.array_id)


class Awarded(Event, frozen=True, kw_only=True, tag="awarded"):
    """A workload goes to a site; stored before the site is told."""

    attempt: AttemptId
    site: str
    jobs: tuple[JobPlan, ...]
    priority: int = 0  # at which it went, with its standing and credit; 0: of an older release
    within_quota: bool = False
    credit: float = 0.0
    # Of every site that bid, the winner's among them: ``Bid.named``; once it was a list.
    offers: dict[str, dict[str, float] | tuple[float, ...]] = {}
    victims: tuple[WorkloadId, ...] = ()  # evicted once the site has accepted
    shrinks: tuple[Shrink, ...] = ()  # optional jobs of others, taken once the site has accepted
    lending: LendingDecision | None = None  # of a start over quota that cannot be evicted
    data: tuple[DataPath, ...] = ()  # where it finds its data sets at the site
    output: OutputPlace | None = None  # where it writes a data set there
    adopted: bool = False  # it was there already: the log had lost when it was awarded
    moves: tuple[NodeMove, ...] = ()  # of the victims: where each is to go on at the site
    waits_s: float = 0.0  # with moves: until it was predicted to start without them

    @property
    def scores(self) -> dict[str, Score]:
        """The score of each offer."""
        return {site: Score.of(terms) for site, terms in self.offers.items()}

    @property
    def costs(self) -> dict[str, float]:
        """What each offer cost, as of ``Bid.cost``; without those that cost nothing."""
        named = {site: terms for site, terms in self.offers.items() if isinstance(terms, dict)}
        return {site: terms[COST] for site, terms in named.items() if terms.get(COST)}

    @property
    def named_offers(self) -> dict[str, dict[str, float]]:
        """The terms of each offer that are not 0, by name."""
        costs = self.costs
        return {
            site: {**score.named(), **({COST: costs[site]} if site in costs else {})}
            for site, score in self.scores.items()
        }


class Claimed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="claimed"):
    """Nodes of a site are to come free for a workload; in place of its claim before.

    It ends when the workload waits no more, or by ``ClaimEnded``. Its victims are told to leave
    one after another, as the budget allows.
    """

    workload: WorkloadId
    site: SiteName
    jobs: tuple[JobPlan, ...]  # that it would start with
    priority: int
    since_s: float  # Unix time of the first claim of this row
    starts_by_s: float  # Unix time: as predicted when it was made
    promised_by_s: float  # Unix time: as first predicted
    victims: tuple[WorkloadId, ...] = ()  # in the order in which they leave
    shrinks: tuple[Shrink, ...] = ()  # likewise, after those
    moved_for: WorkloadId | None = None  # of the place of one that moves: for whom


class ClaimEnded(Event, frozen=True, kw_only=True, tag="claim_ended"):
    """A workload has no claim any more, and waits as others do."""

    workload: WorkloadId
    reason: Reason


class Planned(Event, frozen=True, kw_only=True, tag="planned"):
    """The planner has made a lending plan, in place of the one before."""

    plan: LendingPlan


class DataPlanned(Event, frozen=True, kw_only=True, tag="data_planned"):
    """Homes of data are planned anew."""

    plan: DataPlacement


class QuotaLoan(Event, frozen=True, kw_only=True, omit_defaults=True, tag="quota_loan"):
    """An unused quota takes a step."""

    tenant: TenantName
    step: LoanStep
    used_frac: float = 0.0  # of the quota, on the busiest of the days that were looked at
    days: int = 0  # so many were looked at
    lends_at_s: float = 0.0  # Unix time, as the next; of ``NOTICED``
    until_s: float = 0.0  # of ``KEPT``; 0: for ever
    by: str = ""  # the operator; "": nobody asked for it


class DataSetKept(Event, frozen=True, kw_only=True, omit_defaults=True, tag="data_kept"):
    """The catalogue has a data set, in place of its namesake."""

    kept: DataSet
    by: str = ""  # the user who asked for it; "": nobody did
    moved_to: str = ""  # a plan has begun a copy to this domain, or made it the home
    written_by: AttemptId | None = None  # the job whose output it is, which has completed


class OutputNoted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="output_noted"):
    """News of an output.

    ``state`` as it is from now on; None: as it was. ``dropped``: its folder there is no more.
    ``placed``: it is given up, but its files are in their place, and so its working folders go.
    """

    workload: WorkloadId
    domain: str
    state: OutputState | None = None
    dropped: bool = False
    detail: str = ""  # why it could not be registered, or removed
    placed: bool = False


class CheckpointCopied(Event, frozen=True, kw_only=True, tag="checkpoint_copied"):
    """A workload's checkpoint is in another region, too.

    It counts until the next attempt has started: from then on the newest is where that runs. Of one
    that runs it counts until its site tells how it has left.
    """

    workload: WorkloadId
    site: SiteName  # one of that region
    checkpoint: str = ""  # its name


class DataSetDropped(Event, frozen=True, kw_only=True, omit_defaults=True, tag="data_dropped"):
    """It has it no more.

    The files are where they were.
    """

    name: str
    version: str
    by: str = ""


class SiteDrained(Event, frozen=True, kw_only=True, omit_defaults=True, tag="site_drained"):
    """A site, or nodes of it, get no new work.

    Until ``SiteResumed``, and in place of a cordon before.

    A ``cordon`` lets run what runs. Else it is a drain: with ``migrate`` running workloads save and
    go on elsewhere, and with a deadline they have left by then. With ``gangs`` it is a quarantine
    of slow nodes: a cordon for jobs of several nodes alone, which nobody asked for.
    """

    site: SiteName
    nodes: tuple[str, ...] = ()  # only these of the site; none: all of it
    reason: str = ""
    by: str = ""  # the operator
    cordon: bool = False
    migrate: bool = False
    deadline_s: float = 0.0  # Unix time; 0: none
    gangs: bool = False
    until_s: float = 0.0  # Unix time at which a quarantine lapses


class SiteResumed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="site_resumed"):
    """They get new work again."""

    site: SiteName
    nodes: tuple[str, ...] = ()  # as of ``SiteDrained``
    by: str = ""
    gangs: bool = False  # only the quarantine of these nodes ends, not a drain of them
    reason: str = ""  # why that ends, by itself
    drill: LeaveDrill | None = None  # that ends with it


class WrittenOffAttempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that a site had when it was written off."""

    attempt: AttemptId
    user: str
    site_job_id: int = 0  # 0: not known


class SiteWrittenOff(Event, frozen=True, kw_only=True, omit_defaults=True, tag="written_off"):
    """A site is gone; its workloads go on elsewhere.

    It gets no work until ``SiteReturned``. Nobody waits any more for a checkpoint that was made at
    an ``unreadable`` site.
    """

    site: SiteName
    attempts: tuple[WrittenOffAttempt, ...] = ()  # to be ended if it returns
    unreadable: tuple[SiteName, ...] = ()
    reason: str = ""
    by: str = ""


class SiteReturned(Event, frozen=True, kw_only=True, tag="site_returned"):
    """It is back.

    None of its old attempts is alive there.
    """

    site: SiteName


class Changed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="changed"):
    """A workload took any other step of ``lifecycle.TRANSITIONS``.

    ``attempt`` is 0 only for events of a workload that is not at any site.
    """

    workload: WorkloadId
    happening: WorkloadEvent
    attempt: int = 0
    site_job_id: int = 0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    exit_code: int = 0
    signal: int = 0
    site_state: str = ""
    reason: Reason | None = None
    by: str = ""  # the user who asked for a cancel
    leave: Leave | None = None  # of one that was told to leave
    components: tuple[int, ...] = ()  # optional jobs that it loses, or has lost
    failed_nodes: tuple[str, ...] = ()  # of its site: they ended the attempt
    saved_at_s: float = 0.0  # its last checkpoint, if it was not told to leave; 0: none is known
    work_dir: str | None = None  # as of ``AttemptReport``; None: nothing new is said of it
    winner: WorkloadId | None = None  # of one that leaves, or shrinks, for a claim: whose
    beyond_budget: bool = False  # it does so for a start objective, and not within the budget
    counts_gpus: int = 0  # of the budget, if that is more than it holds: for work that is lost


class Amended(Event, frozen=True, kw_only=True, omit_defaults=True, tag="amended"):
    """Workloads that live were changed in what they ask for, or in what they wait for.

    None: nothing is changed of it. Their states change by ``Changed`` alone.
    """

    workloads: tuple[WorkloadId, ...]
    by: str = ""  # the user who asked for it; "": nobody did
    hold: Hold | None = None
    begin_at_s: float | None = None
    waits_for: Dependency | None = None  # with nobody in ``by``: what is left of it
    options: tuple[Option, ...] = ()  # of sbatch, set anew in every component
    without: tuple[str, ...] = ()  # options that are not given any more
    name: str | None = None  # this and the next six as the options say now
    time_limit_s: float | None = None
    nice: int | None = None
    requeue: bool | None = None
    jobs: tuple[Job, ...] | None = None
    tenant: TenantName | None = None
    asked_priority: int | None = None
    priority: int | None = None  # as of ``Workload``, by the tenant's and what is asked
    deadline_at_s: float | None = None  # this and the next as the options say now
    starts_by_s: float | None = None
    array_max_running: int | None = None  # of the array, all of whose tasks are among these
    try_anew: bool = False  # what sites have refused before is forgotten


class Forgotten(Event, frozen=True, kw_only=True, tag="forgotten"):
    """Workloads that ended long ago left the log, with their submit keys."""

    ids: tuple[WorkloadId, ...]


# ---- a snapshot: the records of one follow each other in this order ----


class SnapshotBegan(Event, frozen=True, kw_only=True, omit_defaults=True, tag="snapshot"):
    """A snapshot begins: up to ``SnapshotDone`` it tells all that was known."""

    epoch: int
    next_id: WorkloadId
    latest_s: float = 0.0  # of any event
    tenants: tuple[TenantName, ...] = ()  # every one ever met, by row
    failures: dict[SiteName, tuple[int, float]] = {}  # of nodes, and the node-seconds seen
    tax_by_preemptor: dict[TenantName, float] = {}
    tax_by_victim: dict[TenantName, float] = {}
    tax_victims: int = 0
    tax_gpu_s: float = 0.0
    log_began: int = 0  # as ``EpochBegan``; 0: of an older release


class TenantUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Weighted GPUs of one tenant."""

    tenant: TenantName
    gpus: float = 0.0  # in use
    average: float = 0.0  # with exponential decay
    buckets: tuple[float, ...] = ()  # GPU-seconds, by number of the bucket modulo their count


class SnapshotUsage(Event, frozen=True, kw_only=True, omit_defaults=True, tag="snapshot_usage"):
    """Average use of some tenants; over a window or with decay, the other is 0."""

    since_s: float  # the present use has lasted so long; averages are as of then
    window_s: float = 0.0
    bucket: int = 0  # that ``since_s`` lies in
    half_life_s: float = 0.0
    tenants: tuple[TenantUse, ...] = ()


class SnapshotWorkload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workload's state, in the order of ``sched.state.workload_record.restored_record``."""

    id: WorkloadId
    index: int = 0  # in its array
    optional: bool = False
    state: WorkloadState = WorkloadState.PENDING
    attempt: int = 0
    site: SiteName = SiteName("")
    award: Awarded | None = None
    plan: tuple[JobPlan, ...] | None = None  # None: as awarded
    site_job_id: int = 0
    work_dir: str | None = None
    lease_from_s: float = 0.0
    withdrawing: bool = False
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    over_at_s: float = 0.0
    site_state: str = ""
    reason: Reason | None = None
    ran_at: SiteName = SiteName("")
    bad_nodes: tuple[tuple[SiteName, str, int, float], ...] = ()  # failed so often, avoided until
    exit_code: int = 0
    signal: int = 0
    saved_at: SiteName = SiteName("")
    avoid_until_s: Mapping[SiteName, float] = NOTHING
    failures_at: Mapping[SiteName, int] = NOTHING
    setbacks: Mapping[SiteName, Reason] = NOTHING
    plans_refused: Mapping[SiteName, int] = NOTHING
    held_for: str = ""
    promised_to: WorkloadId | None = None
    promised_jobs: Mapping[int, WorkloadId] = NOTHING
    leaving_jobs: Mapping[int, WorkloadId] = NOTHING
    taken_jobs: frozenset[int] = frozenset()
    preemptions: int = 0
    evicted_at_s: float = 0.0
    evicted_for: WorkloadId | None = None
    fruitless_attempts: int = 0
    lost_gpu_s: float = 0.0
    evictions: int = 0
    destroyed_gpu_s: float = 0.0
    hold: Hold = Hold.NONE
    begin_at_s: float = 0.0
    eligible_at_s: float = 0.0
    waits_for: Dependency = NO_DEPENDENCY
    site_evicted_at_s: float = 0.0
    good_nodes: int = 0
    most_nodes: int = 0
    stints: tuple[tuple[int, float], ...] = ()
    stalls: int = 0
    copied_to: SiteName = SiteName("")
    interruptions: tuple[tuple[float, SiteName, str, str], ...] = ()
    ran_before_at: tuple[SiteName, ...] = ()


class SnapshotSubmission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workloads that differ in nothing but id, index and ``optional``, as tasks of an array do.

    What they share is kept once.
    """

    workloads: tuple[SnapshotWorkload, ...]
    like: Workload | None = None  # the first of them
    same_as: WorkloadId = WorkloadId(0)  # without ``like``: of a workload that came before
    keys: dict[str, WorkloadId] = {}  # submit keys, and what they were answered with


class SnapshotWorkloads(Event, frozen=True, kw_only=True, tag="snapshot_workloads"):
    """Workloads and how each stands."""

    submissions: tuple[SnapshotSubmission, ...]


class SnapshotSaves(Event, frozen=True, kw_only=True, tag="snapshot_saves"):
    """Save times of families, the latest last.

    A family is (tenant, user, name).
    """

    families: tuple[tuple[TenantName, str, str, tuple[float, ...]], ...]


class SnapshotScaling(Event, frozen=True, kw_only=True, tag="snapshot_scaling"):
    """Runs of elastic families, by nodes.

    Of each run that completed: the numbers of nodes, and seconds on them whose work was kept.
    """

    families: tuple[tuple[TenantName, str, str, tuple[tuple[tuple[int, float], ...], ...]], ...]


SavedKind = tuple[int, str, str, str, int, bytes]
"""A kind of ``sched.state.durations``, and the buckets of its durations in the order of ends."""


class DurationCorrections(NamedTuple):
    """What corrects predictions: parts (part, age, logarithm) and a few numbers."""

    parts: tuple[tuple[int, int, float], ...] = ()
    seen: tuple[int, ...] = ()  # by age
    cut_offs: int = 0
    longest_s: float = 0.0


class SnapshotRun(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True, gc=False
):
    """A run that is followed, as of ``sched.state.durations.OpenRun``."""

    id: WorkloadId
    tenant: str
    user: str
    pattern: str  # of its name
    size: int
    began_s: float
    next_age: int
    promises: dict[int, tuple[float, int]] = {}
    broken: dict[int, float] = {}


class SnapshotDurations(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="snapshot_durations"
):
    """How long workloads run, and the runs that go on; these follow those of records before it."""

    kinds: tuple[SavedKind, ...] = ()
    runs: tuple[SnapshotRun, ...] = ()
    kept_s: tuple[tuple[WorkloadId, float], ...] = ()  # run by those that wait to go on
    corrections: DurationCorrections | None = None


class SnapshotEvictions(Event, frozen=True, kw_only=True, tag="snapshot_evictions"):
    """The times of evictions with their GPUs, in that order."""

    evictions: tuple[tuple[float, int], ...]
    beyond_budget: tuple[tuple[float, int], ...] = ()  # others, for start objectives


class SnapshotOrder(Event, frozen=True, kw_only=True, tag="snapshot_order"):
    """Workloads of one state, in the order in which they came."""

    state: WorkloadState
    ids: tuple[WorkloadId, ...]


class SnapshotData(Event, frozen=True, kw_only=True, tag="snapshot_data"):
    """Some data sets of the catalogue.

    Of each name they are in the order in which they were added.
    """

    sets: tuple[DataSet, ...]


class SnapshotOutputs(Event, frozen=True, kw_only=True, tag="snapshot_outputs"):
    """Outputs of jobs."""

    outputs: tuple[KeptOutput, ...]


class SnapshotDone(Event, frozen=True, kw_only=True, tag="snapshot_done"):
    """The snapshot is whole."""

    workloads: int  # so many were in it
    shrinking: tuple[WorkloadId, ...] = ()  # those with optional jobs that must leave, in order
    claims: tuple[Claimed, ...] = ()  # of those that wait, in order
    drains: tuple[SiteDrained, ...] = ()  # that have not ended
    written_off: tuple[SiteWrittenOff, ...] = ()  # sites that have not returned
    planned: Planned | None = None  # the latest
    loans: tuple[QuotaLoan, ...] = ()  # the last step of each tenant's
    data_planned: DataPlanned | None = None  # the latest
    moves_begun: tuple[BegunMove, ...] = ()  # of the last day
    places: tuple[Claimed, ...] = ()  # of those who move, and have not left yet
    moved_at_s: tuple[float, ...] = ()  # Unix times at which somebody was chosen to


SnapshotRecord = (
    SnapshotBegan
    | SnapshotUsage
    | SnapshotWorkloads
    | SnapshotSaves
    | SnapshotScaling
    | SnapshotDurations
    | SnapshotEvictions
    | SnapshotOrder
    | SnapshotData
    | SnapshotOutputs
    | SnapshotDone
)
DataRecord = DataSetKept | DataSetDropped
DrainRecord = SiteDrained | SiteResumed | SiteWrittenOff | SiteReturned
LogRecord = (
    EpochBegan
    | Submitted
    | Awarded
    | Claimed
    | ClaimEnded
    | Planned
    | DataPlanned
    | QuotaLoan
    | DataRecord
    | CheckpointCopied
    | OutputNoted
    | DrainRecord
    | Changed
    | Amended
    | Forgotten
    | SnapshotRecord
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[LogRecord]] = msgspec.msgpack.Decoder(LogRecord)


def encode_event(event: LogRecord) -> bytes:
    return _encoder.encode(event)


def decode_event(record: bytes) -> LogRecord:
    """Decode one log record.

    Raises:
        msgspec.MsgspecError: the record is damaged or written by a later release.
    """
    return _decoder.decode(record)
