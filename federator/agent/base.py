"""Declares the site driver: the few acts that an agent needs of its Slurm."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, Protocol

from federator.errors import SiteRefused
from federator.model.dataset import CopyPhase
from federator.model.license import SiteLicense
from federator.model.local_record import LocalRecord
from federator.model.reason import ReasonCode
from federator.model.site import (
    AttemptReport,
    LocalJob,
    Node,
    NodeShare,
    RunningJob,
    SiteJob,
    StepWindow,
)
from federator.model.site_message import Revocation
from federator.model.tenant import HIGHEST_PRIORITY
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import (
    CopyOrder,
    EndedJob,
    LaunchOrder,
    OutputOrder,
    OutputStatus,
    PreemptOrder,
    SignalTo,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A job, or het job, that holds nodes."""

    job_id: int  # the leader's
    nodes: Mapping[str, NodeShare]  # empty shares where they are not known
    ends_by_s: float  # by its time limit
    attempt: AttemptId | None = None  # that its comment names; anyone may write any comment
    account: str = ""
    started_at_s: float = 0.0
    components: Mapping[int, Mapping[str, NodeShare]] = field(default_factory=dict)
    """The nodes of each component of a het job that holds some, by number."""


def federated_and_local(
    holders: Iterable[Holder], genuine: Mapping[AttemptId, int]
) -> tuple[tuple[RunningJob, ...], tuple[LocalJob, ...]]:
    """The federation's running jobs, and everything else.

    At what priority an attempt runs, and whether it may be evicted, its site does not know: here
    none may.

    Args:
        holders: of a site.
        genuine: job ids of the attempts that are what they say.
    """
    running: dict[int, RunningJob] = {}
    local: list[LocalJob] = []
    for holder in holders:
        attempt = holder.attempt
        if (
            attempt is None
            or genuine.get(attempt) != holder.job_id
            or attempt.workload in running  # an older attempt that is not quite over
        ):
            local.append(
                LocalJob(id=holder.job_id, nodes=tuple(holder.nodes), ends_by_s=holder.ends_by_s)
            )
            continue
        running[attempt.workload] = RunningJob(
            id=attempt.workload,
            tenant=holder.account,
            priority=HIGHEST_PRIORITY,
            preemptible=False,
            started_at_s=holder.started_at_s,
            nodes=dict(holder.nodes),
            ends_by_s=holder.ends_by_s,
            components={k: dict(nodes) for k, nodes in holder.components.items()},
        )
    return tuple(running.values()), tuple(local)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """What the ranks of a training do in a step, as it says: means in seconds."""

    ranks: int
    step_s: float
    load_s: float  # the longest wait of a rank for its input; 0: it marks none
    own_least_s: float  # the rank whose own part, input and computing, is shortest; 0: likewise
    own_most_s: float  # whose is longest
    slowest: int  # that rank


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatus:
    """Of one attempt that was told to leave. Unix times; 0: there is none."""

    acked_at_s: float = 0.0  # "my state is saved, end me now"
    checkpointed_at_s: float = 0.0  # when its last periodic checkpoint was complete
    ready_at_s: float = 0.0  # when it had made its first step, as the job says
    save_s: float = 0.0  # in all its saves until its last note, likewise
    stepped_at_s: float = 0.0  # when it last noted a step, by its file server
    stall: str = ""  # what its ranks say that finish no step
    steps: StepWindow | None = None  # its latest; None: it has told of none
    ranks: RankTimes | None = None  # at its last save; None: it marks nothing in its steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidying:
    """The checkpoint folders of one user to remove."""

    root: str  # SHARED/USER/checkpoints
    ended: tuple[int, ...] = ()  # workloads whose folders go if nothing is in them, and else stay
    live: tuple[int, ...] = ()  # never touched
    below: int = 0  # what of the others may go: later workloads are not known yet
    before_s: float = 0.0  # Unix time; if all in them was last changed before it (0: none)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The outcome of one user's ``Tidying``."""

    removed: tuple[int, ...] = ()  # whose folders are gone
    wrong: str = ""  # why others are not, that should be


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One look at a site. The jobs were read before the nodes, so that the nodes show them."""

    nodes: tuple[Node, ...]
    attempts: tuple[AttemptReport, ...]  # of the federation, live or ended not long ago
    holders: tuple[Holder, ...] = ()  # all that runs on these nodes, federated or not
    switches: Mapping[str, str] = field(default_factory=dict)  # the switch above each switch
    windows: tuple[SiteWindow, ...] = ()  # in which nodes are not to be had, by start
    licenses: tuple[SiteLicense, ...] = ()  # by name
    qos: frozenset[str] | None = None  # None: not told
    problems: tuple[str, ...] = ()  # records that could not be read
    nodes_complete: bool = True  # no node is among them
    local: tuple[LocalRecord, ...] | None = None  # of the site's own jobs; None: not watched
    revoked: tuple[Revocation, ...] = ()  # nodes that its provider takes back


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition as slurmctld has it now."""

    name: str
    nodes: tuple[str, ...]
    up: bool  # takes and starts jobs
    is_default: bool = False
    max_time_s: float = inf
    grace_s: float = 0.0  # between a victim's warning and its end
    priority_tier: int = 1
    preempt_mode: str = "OFF"
    default_time_s: float | None = None  # None: ``max_time_s``
    min_nodes: int = 1
    max_nodes: int | None = None  # None: any number
    root_only: bool | None = None  # None: not told
    over_subscribe: str = ""  # in Slurm's words: NO, EXCLUSIVE, YES:4, FORCE:4; "": not told
    groups: str | None = None  # whose users it takes, with commas between; "": all; None: not told


class SubmittedJob(NamedTuple):
    """Sbatch's answer."""

    job_id: int  # the (leader's)
    work_dir: str | None = None  # as of ``AttemptReport``


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A job that does nothing, to see whether one can; see ``agent.services.site_check``."""

    attempt: AttemptId  # of workload 0, which there is none of
    partition: str
    account: str = ""  # the user's default
    node: str = ""  # any
    gpus: int = 0
    ticket: str = ""
    later: bool = False  # it is to be ended before it starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An attempt that squeue does not show, as its site remembers it."""

    attempt: AttemptId
    user: str
    submitted_at_s: float  # sbatch was called no earlier; read only without a job id
    job_id: int = 0  # 0: sbatch's answer is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The attempt and user of a job that the agent's own sbatch made."""

    attempt: AttemptId
    user: str
    at_s: float  # it had been submitted by then, by the agent's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJobs:
    """The agent's knowledge of its jobs before it looks.

    ``launched``: by (leader's) job id; such a job is that attempt whatever its comment says, unless
    that names one of ``begun``, whose job ids are not known yet. ``ended``: so it was seen.
    """

    launched: Mapping[int, Launched] = field(default_factory=dict)
    begun: Container[AttemptId] = ()
    ended: Container[AttemptId] = ()


NOTHING: Final = KnownJobs()


class SbatchRefused(SiteRefused):
    """Slurm took no job; ``code`` tells whether it would take the same submission later."""

    def __init__(self, words: str, code: ReasonCode) -> None:
        super().__init__(words)
        self.code = code


class SiteInspector(Protocol):
    """Slurm as somebody sees it who verifies how a site is set up.

    Every method raises ``SiteUnavailable`` when slurmctld does not answer.
    """

    async def version(self) -> str: ...

    async def settings(self) -> Mapping[str, str]:
        """Return slurmctld's settings, and under ``as of`` its time."""
        ...

    async def partitions(self) -> Sequence[Partition]: ...

    async def nodes(self) -> Sequence[Node]: ...

    async def jobs(self, job_ids: Collection[int]) -> Mapping[int, SiteJob]:
        """These jobs, by id, as far as Slurm knows them; cheap."""
        ...

    async def probe(self, user: str, probe: Probe) -> int:
        """Submit a probe as a user; return its job id.

        Raises:
            SiteRefused: Slurm, sudo or the helper said no; there is no job.
        """
        ...

    async def missing_names(self) -> Sequence[str] | None:
        """Return the site's names, by federation.yaml, that Slurm does not know; each with its key.

        None: the file gives it none.
        """
        ...

    async def is_loose(self, user: str) -> bool:
        """Tell whether sudo or helper let the agent do what they must not."""
        ...

    async def read_checkpoint_status(
        self, user: str, orders: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        """As ``SiteDriver.read_checkpoint_status``."""
        ...

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:
        """As ``SiteDriver.cancel``."""
        ...


class CheckpointFolders(Protocol):
    """The folders in which jobs leave notes for the federation."""

    async def read_checkpoint_status(
        self, user: str, orders: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        """As ``SiteDriver.read_checkpoint_status``."""
        ...


class SiteAccounts(Protocol):
    """What a site's accounting knows of jobs that have ended."""

    async def ends_of(self, missing: Collection[Missing]) -> Mapping[AttemptId, AttemptReport]:
        """Return how those of these ended whom the site's accounting knows for certain.

        Of one whose job id is not known, also how it stands if it lives by them: slurmctld may have
        lost it. Nothing where it keeps none, or does not answer: that proves nothing.
        """
        ...

    async def use_of(self, jobs: Sequence[EndedJob]) -> Sequence[MeasuredUse | None]:
        """Return what each of these has used, as the site's accounts say; None: they do not.

        They may not yet, or never: a site may keep none.
        """
        ...


class SiteDriver(Protocol):
    """Slurm as an agent sees it.

    Every method raises ``SiteUnavailable`` when slurmctld does not answer.
    """

    @property
    def accounts(self) -> SiteAccounts:
        """The site's accounting."""
        ...

    async def version(self) -> str: ...

    async def sweep(self, own: KnownJobs = NOTHING) -> Sweep:
        """Look at all of it, and at ``own`` jobs wherever they are and whatever they are called."""
        ...

    async def settings_changed(self) -> bool:
        """Tell whether partitions or reservations have changed since the last sweep; cheap."""
        ...

    async def launch(
        self, order: LaunchOrder, ticket: str = "", start_line: str = ""
    ) -> SubmittedJob:
        """Submit an attempt, pinned, as the real user.

        ``ticket`` opens the partition to it; "" where the site has no spool. ``start_line``: in
        place of the script's first one; "": it stays. A driver names the time after which sbatch
        is not called any more, and only then asks whether its agent still acts (``AgentTenure``).

        Raises:
            StaleState: another agent of this site acts; sbatch was not called.
            SbatchRefused: Slurm, sudo or the helper said no; there is no job.
            SiteRefused: it cannot even be asked for such a job.
        """
        ...

    async def notify(self, order: PreemptOrder, deadline_s: float) -> None:
        """Tell a job when it will be killed: write that down for it, and send its own signal.

        Raises:
            SiteRefused: Slurm said no, or the job does not run.
        """
        ...

    async def signal(self, user: str, job_id: int, name: str, to: SignalTo) -> None:
        """Send a running job a signal.

        Raises:
            SiteRefused: as ``notify``.
        """
        ...

    async def limit(self, user: str, job_id: int, minutes: int) -> None:
        """Set the time limit of a job.

        Raises:
            SiteRefused: the job is not there; or its limit would be higher than it is.
        """
        ...

    async def kill_wait_s(self) -> float:
        """Return how long after TERM Slurm kills a job that it ends."""
        ...

    async def inspect(self, user: str, orders: Sequence[LaunchOrder]) -> list[str]:
        """Say which files of each of the user's attempts cannot be opened, as seen from here.

        Raises:
            SiteRefused: the site does not let us act for the user.
        """
        ...

    async def tidy(self, user: str, order: Tidying) -> Removal:
        """Remove checkpoint folders of workloads that have ended.

        Raises:
            SiteRefused: the site does not let us act for the user.
        """
        ...

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        """Have a data set's copy go on by one step; its phase, the bytes copied, what was wrong.

        Raises:
            SiteRefused: the site does not let us act for the data set's owner.
        """
        ...

    async def output(self, order: OutputOrder) -> OutputStatus:
        """Have what a job wrote be sealed, or its folder removed, by one step.

        Raises:
            SiteRefused: the site does not let us act for the job's user.
        """
        ...

    async def read_checkpoint_status(
        self, user: str, orders: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        """Read what the user's jobs have left in their checkpoint folders; in the same order.

        Raises:
            SiteRefused: the site does not let us act for the user.
        """
        ...

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:
        """End a job; with ``pending_only`` only if it has not started.

        Returns:
            False if Slurm has no such job (any more).

        Raises:
            SiteRefused: Slurm said no.
        """
        ...


class AgentDriver(SiteDriver, SiteInspector, Protocol):
    """A Slurm to work with, and to be verified."""
