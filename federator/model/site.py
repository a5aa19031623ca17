"""A site as bids see it right now: nodes, switches and running jobs.

The fields are those of snapshot.json (docs/formats.md), so a snapshot encodes to that file as is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from federator.model.gres import Gres, plus, positive
from federator.model.license import SiteLicense
from federator.model.local_record import LocalRecord
from federator.model.node_shape import NodeShape
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId, SiteName

START_UP_S: Final = 150.0
"""From a start until useful work, where nothing better is known: the median of MAST (OSDI'24)
sec. 5."""


class NodeState(Enum):
    """Slurm's node states, reduced to what a placement decides on."""

    IDLE = "idle"
    MIXED = "mixed"
    ALLOCATED = "allocated"
    DRAINED = "drained"  # draining, drained, failing, in maintenance or reserved: takes no new job
    DOWN = "down"  # down, not responding, powered off, rebooting or unknown

    @property
    def takes_jobs(self) -> bool:
        return self in (NodeState.IDLE, NodeState.MIXED, NodeState.ALLOCATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node; ``*_alloc`` counts everything that runs there, federated or not."""

    name: str
    partitions: tuple[str, ...]  # those that take jobs
    switch: str = ""  # leaf switch = rack; "" where the site has no topology
    state: NodeState = NodeState.IDLE
    cpus: int = 1
    cpus_alloc: int = 0
    mem_mib: int = 0
    mem_mib_alloc: int = 0
    gpu_type: str = ""  # gres type; "" on CPU nodes and untyped gres
    gpus: int = 0
    gpus_alloc: int = 0
    features: tuple[str, ...] = ()
    closed_partitions: tuple[str, ...] = ()  # it is in them too, but they take no job now
    gpu_mem_gib: float = 0.0  # of each GPU; 0: not known, so it meets no demand for memory
    nvlink: bool = False  # between all GPUs of the node; the feature "nvlink" says it too
    gpu_weight: float = 1.0  # what one GPU is worth in use, federation.yaml
    drain_reason: str = ""  # while it takes no jobs: the site's words why, one line
    drained_by: str = ""  # whoever gave that reason; "": not told
    drained_at_s: float = 0.0  # when, in Unix time; 0: not told
    gres: Gres = ()  # beside GPUs
    gres_alloc: Gres = ()
    gres_shared: tuple[str, ...] = ()  # names that any number of jobs hold at once (no_consume)
    shape: NodeShape | None = None  # None: not known, so it is never too small
    reserved: bool = False  # its site keeps it for a reservation of its own just now
    maintenance: bool = False  # and that is one for maintenance; shown, as sinfo does
    weight: int | None = None  # Slurm's Weight; None: not told. Only shown

    @property
    def gpu_worth(self) -> float:
        """The capability of one GPU: its weight for each GiB (for the whole, if not known)."""
        return self.gpu_weight * (self.gpu_mem_gib or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """The known facts about a gres type."""

    mem_gib: float = 0.0  # 0: not known
    nvlink: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """The share of one node that one job holds, or would hold."""

    gpus: int = 0
    cpus: int = 0
    mem_mib: int = 0
    gres: Gres = ()

    def __add__(self, other: NodeShare) -> NodeShare:
        return NodeShare(
            gpus=self.gpus + other.gpus,
            cpus=self.cpus + other.cpus,
            mem_mib=self.mem_mib + other.mem_mib,
            gres=plus(self.gres, other.gres),
        )

    def less(self, other: NodeShare) -> NodeShare:
        """The amounts left without ``other``; nothing below 0."""
        return NodeShare(
            gpus=max(0, self.gpus - other.gpus),
            cpus=max(0, self.cpus - other.cpus),
            mem_mib=max(0, self.mem_mib - other.mem_mib),
            gres=positive(plus(self.gres, other.gres, -1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A federation job that runs at the site; ``id`` is the workload's."""

    id: int
    tenant: str
    priority: int
    preemptible: bool
    started_at_s: float
    nodes: dict[str, NodeShare]
    cooldown_until_s: float = 0.0  # evicted lately: not again before then
    ends_by_s: float = inf  # by its time limit
    saves_in_time: bool = True  # its save is not known to take longer than a victim's grace
    saved_at_s: float = 0.0  # when its last save since its start was complete; 0: none is known
    save_s: float = 0.0  # what its saves take when it is told to leave; 0: not known
    restart_s: float = START_UP_S  # from another start until it is as far as its last save
    optional: bool = False  # goes before others of its priority
    optional_jobs: tuple[int, ...] = ()  # components that may be taken alone, before the rest
    movable: bool = False  # it may move to another node of its kind, for whoever ranks as it does
    components: dict[int, dict[str, NodeShare]] = field(default_factory=dict)
    """What each component of a het job holds, by number, as far as it runs; empty for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimTerms:
    """On which terms a running workload may be evicted, as things are now.

    What was borrowed may be its tenant's own by now, so the federation tells them with each
    question; whoever has none may not be evicted.
    """

    priority: int  # only for strictly higher ones (smaller numbers)
    spared_until_s: float = 0.0  # began, or was evicted, not long ago
    saves_in_time: bool = True  # one that does not is chosen only where nobody else is left
    save_s: float = 0.0  # what its saves take when it is told to leave; 0: not known
    restart_s: float = START_UP_S  # from another start until it is as far as its last save
    optional: bool = False  # goes before others of its priority
    optional_jobs: tuple[int, ...] = ()  # that may be taken from it alone
    movable: bool = False  # it may move to another node of its kind, for whoever ranks as it does


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """A job at the site that is not the federation's: it is never touched, but it will end."""

    id: int  # Slurm's
    nodes: tuple[str, ...]
    ends_by_s: float = inf  # by its time limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A site at one instant. Nodes are in the site's own order."""

    site: SiteName
    now_s: float
    nodes: tuple[Node, ...]
    running: tuple[RunningJob, ...] = ()
    local: tuple[LocalJob, ...] = ()
    switches: dict[str, str] = field(default_factory=dict)  # the switch above each switch
    windows: tuple[SiteWindow, ...] = ()  # in which nodes are not to be had, by start
    licenses: tuple[SiteLicense, ...] = ()  # by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """All a site could ever give, whatever its nodes are doing: the base of *never fits*.

    ``nodes`` are the site's nodes as if they and their partitions were idle and up.
    """

    nodes: tuple[Node, ...]
    licenses: dict[str, int] = field(default_factory=dict)  # by name
    qos: tuple[str, ...] | None = None  # sorted; None: the site does not say


class SiteJobState(Enum):
    """Slurm's job states, as a site reports them. COMPLETING is folded into RUNNING."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"

    @property
    def ended(self) -> bool:
        return self not in (SiteJobState.PENDING, SiteJobState.RUNNING, SiteJobState.SUSPENDED)


_LIVE_FIRST: Final = (SiteJobState.RUNNING, SiteJobState.SUSPENDED, SiteJobState.PENDING)
_WORST_FIRST: Final = (
    SiteJobState.NODE_FAIL,
    SiteJobState.BOOT_FAIL,
    SiteJobState.PREEMPTED,
    SiteJobState.OUT_OF_MEMORY,
    SiteJobState.TIMEOUT,
    SiteJobState.DEADLINE,
    SiteJobState.FAILED,
    SiteJobState.CANCELLED,
    SiteJobState.COMPLETED,
)


def combined_state(states: Iterable[SiteJobState]) -> SiteJobState:
    """Return the state of a het job from those of its components (at least one).

    While any of them lives the job does; then the worst outcome counts. What the site did comes
    before what the job did, because only the latter is the user's to mend.
    """
    present = set(states)
    return next(state for state in _LIVE_FIRST + _WORST_FIRST if state in present)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteJob:
    """One job record of a site (a het component and an array task each have their own)."""

    job_id: int
    name: str
    user: str
    account: str
    partition: str
    state: SiteJobState
    reason: str  # Slurm's word, "" when none
    comment: str
    exit_code: int = 0
    signal: int = 0  # that ended it; 0 when none
    het_job_id: int = 0  # the leader's id; 0 for an ordinary job
    het_offset: int = 0
    array_job_id: int = 0
    array_task_id: int | None = None
    submitted_at_s: float = 0.0
    started_at_s: float = 0.0  # 0 until it has started
    ended_at_s: float = 0.0  # 0 until it has ended
    ends_by_s: float = inf  # by its time limit, while it runs
    nodes: dict[str, NodeShare] = field(default_factory=dict)  # while it holds them
    restarts: int = 0  # how often the site has put it back into its own queue
    preempted_at_s: float = 0.0  # when the site chose it as a victim; 0 once it waits again
    hosts: tuple[str, ...] = ()  # that it has, or had, where the site's own queue is watched
    local: LocalRecord | None = None  # likewise

    @property
    def leader_id(self) -> int:
        """The id that a het job goes by; of an ordinary job its own."""
        return self.het_job_id or self.job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The progress of an attempt that was notified to leave; by the site's clock.

    ``saved_at_s``: when the last of its checkpoints that are known was complete; 0: none is.
    """

    told_at_s: float
    saved_at_s: float = 0.0
    forced: bool = False  # it had to be killed at the end of its grace

    @property
    def saved(self) -> bool:
        """Whether it saved after it was told."""
        return self.saved_at_s >= self.told_at_s


class SiteComponent(NamedTuple):
    """One component of a het job at its site."""

    job_id: int
    state: SiteJobState


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWindow:
    """How long the steps of a training took in a while, as its rank 0 says."""

    number: int  # of the window, from 1; each follows the one before
    steps: int
    median_s: float  # of one step
    p90_s: float  # nine of ten took no longer


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """The state of one attempt at its site: all its components taken together.

    ``preempted`` and ``failed_nodes`` say why the site ended it, or put it back into its queue;
    ``saved_at_s``, when that came untold, when its last periodic checkpoint was complete, by the
    site's file server; 0: none is known.
    """

    attempt: AttemptId
    user: str  # who owns the job: anyone may write any comment on a job of their own
    site_job_id: int  # the het leader's
    state: SiteJobState
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    nodes: tuple[str, ...] = ()
    components: dict[int, SiteComponent] = field(default_factory=dict)  # of a het job, by number
    restarts: int = 0  # how often the site has put it back into its own queue
    preempted: bool = False  # by the site itself, for work of its own
    failed_nodes: tuple[str, ...] = ()  # of it, which take no jobs any more
    failed_why: str = ""  # what the site says of these
    unopened: str = ""  # which of its files could not be opened, so that Slurm ended it
    leave: Leave | None = None  # of one that was told to leave
    saved_at_s: float = 0.0  # of one that was not
    work_dir: str | None = None  # used for want of that asked for; "": it has that; None: unknown
    stalled_since_s: float = 0.0  # its lease of progress is over: its last step was seen then
    stall: str = ""  # what its ranks say that finish no step
    steps: StepWindow | None = None  # the latest, of one that has a lease of progress

    @property
    def done_for_good(self) -> bool:
        """Whether it has completed and is never started again; who was told to leave may be."""
        return self.state is SiteJobState.COMPLETED and self.leave is None
