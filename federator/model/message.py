"""Observations, which go into ``Federation.handle``, and commands, which come out of it.

Observations carry no time: ``now_s`` is an argument of ``handle``. Commands are data; the daemon
carries them out in order, every ``Record`` durably before anything else of the same answer. What
sites send and are sent as it is, is in ``federator.model.site_message``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from federator.model.data_output import OutputPlace
from federator.model.data_placement import DataPlacement
from federator.model.data_use import DataPath
from federator.model.dataset import CopyPhase, DataGiven, DataRefusal, DataSet, DataVerb
from federator.model.decision import SeenDecision
from federator.model.draft import Draft
from federator.model.drain import DrainRefusal, LeaveDrill
from federator.model.event import Amended, LogRecord
from federator.model.lending import LendingPlan
from federator.model.plan import JobPlan, Shrink
from federator.model.quota_loan import LoanStep
from federator.model.reason import Refusal
from federator.model.site import AttemptReport
from federator.model.site_message import SiteAnswer, SiteNews, SiteOrder
from federator.model.workload import AttemptId, SiteName, TenantName, Workload, WorkloadId

# ---- observations ----


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitAsked:
    """A user submits a workload, or asks what would become of it."""

    client: int  # whom to answer
    key: str
    draft: Draft
    test_only: bool = False
    by: str = ""  # the operator who submits it for its user; "": the user does


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """A user cancels workloads.

    ``ids`` are workloads that exist; the edge has checked that ``by`` may cancel them.
    """

    client: int
    ids: tuple[WorkloadId, ...]
    by: str


class ControlVerb(Enum):
    """The changes of ``fscontrol``."""

    HOLD = "hold"  # an operator's hold is only an operator's to release
    USER_HOLD = "uhold"  # also an operator's is the user's to release
    RELEASE = "release"
    REQUEUE = "requeue"
    REQUEUE_HOLD = "requeuehold"
    UPDATE = "update"
    TOP = "top"  # in ``amended``: what puts them before others of their user


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAsked:
    """A user or an operator holds, releases or changes workloads.

    ``ids`` are workloads that exist; the edge has checked that ``by`` may change them.
    """

    client: int
    verb: ControlVerb
    ids: tuple[WorkloadId, ...]
    by: str
    is_operator: bool = False
    amended: tuple[Amended, ...] = ()  # of ``UPDATE``: for all of ``ids``; the time is not theirs
    lowered: frozenset[WorkloadId] = frozenset()  # of ``ids``: sites have done so


NOBODY: Final = 0
"""As a client: nobody waits for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAsked:
    """An operator drains or cordons a site.

    Or nodes of it; fields as of ``SiteDrained``.
    """

    client: int
    site: SiteName
    nodes: tuple[str, ...] = ()
    reason: str = ""
    by: str = ""
    cordon: bool = False
    migrate: bool = False
    deadline_s: float = 0.0
    revoked: bool = False  # by then it is gone in any case, however soon that is


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAsked:
    """An operator ends that."""

    client: int
    site: SiteName
    nodes: tuple[str, ...] = ()
    by: str = ""
    drill: LeaveDrill | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOffAsked:
    """An operator gives a site up."""

    client: int
    site: SiteName
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAsked:
    """A user changes the catalogue of data sets."""

    client: int
    verb: DataVerb
    sets: tuple[DataGiven, ...]
    by: str
    operator: bool = False
    administers: frozenset[TenantName] = frozenset()  # tenants whose data sets it may change
    tenants: frozenset[TenantName] = frozenset()  # that it belongs to
    force: bool = False  # takes out also what jobs that wait name


@dataclass(frozen=True, slots=True)
class DataTidied:
    """Data may be due to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySeen:
    """How far a site is with the copy of a data set.

    ``digest``: of what is copied; should the data set be another one by now, it counts for nothing.
    """

    name: str
    version: str
    domain: str
    digest: str
    phase: CopyPhase
    copied_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSeen:
    """News of a job's output."""

    workload: WorkloadId
    attempt: int
    domain: str
    phase: CopyPhase
    size_bytes: int = 0
    files: int = 0
    digest: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAsked:
    """The planner has made a lending plan."""

    client: int
    plan: LendingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlacementAsked:
    """The planner has planned homes of data."""

    client: int
    plan: DataPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasMeasured:
    """Quotas were measured by the history.

    ``unused``: of those of which too little was used, the part on the busiest of the days.
    """

    unused: Mapping[TenantName, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersMeasured:
    """Tiers were measured.

    ``factors``: GPU time by productive time, by site and tier, as the history has it.
    """

    factors: Mapping[tuple[SiteName, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsEstimated:
    """Starts were estimated.

    ``starts``: when each workload is likely to start where its data is, in Unix time; nothing is
    known of the others.
    """

    starts: Mapping[WorkloadId, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAsked:
    """An operator keeps an unused quota back, or releases it.

    ``until_s``: Unix time; 0: for ever.
    """

    client: int
    tenant: TenantName
    keep: bool
    until_s: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteUp:
    """A site's agent is connected, and its Slurm answers.

    ``last_epoch``: of ours, the newest that the site had served before it met us; 0: none.
    ``login_node``: the host of its agent; ``release``: of that, "" if it does not say it.
    """

    site: SiteName
    slurm_version: str = ""
    last_epoch: int = 0
    login_node: str = ""
    release: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteDown:
    """The channel to a site is gone, or its agent cannot read its Slurm."""

    site: SiteName
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSent:
    """A site's agent has sent a message, which is in ``federator.model.site_message``."""

    site: SiteName
    message: SiteNews


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """An attempt as its site remembers it; see ``RememberedAttempt`` and ``Origin``.

    The daemon joins the site's mark, the order and its origin to one record of the queue, with the
    submission packed as the ledger keeps it. ``workload`` and ``jobs``: None and empty where the
    site has put its order aside, or an older release took it.
    """

    attempt: AttemptId
    user: str
    site_job_id: int = 0
    void: bool = False
    withdrawn: bool = False
    cancelled: bool = False
    workload: Workload | None = None
    jobs: tuple[JobPlan, ...] = ()
    key: str = ""
    priority: int = 0
    within_quota: bool = False
    credit: float = 0.0
    report: AttemptReport | None = None
    unnotified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsShown:
    """A site tells what it remembers of attempts (``AskAbout``), or of all."""

    site: SiteName
    attempts: tuple[Remembered, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A time that was asked for (``Wake``) has come."""


Observation = (
    SubmitAsked
    | CancelAsked
    | ControlAsked
    | DrainAsked
    | ResumeAsked
    | WriteOffAsked
    | PlanAsked
    | DataPlacementAsked
    | QuotasMeasured
    | TiersMeasured
    | StartsEstimated
    | QuotaAsked
    | DataAsked
    | CopySeen
    | OutputSeen
    | DataTidied
    | SiteUp
    | SiteDown
    | SiteSent
    | AttemptsShown
    | Tick
)

# ---- commands ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Append an event to the log; it is durable before any later command is carried out."""

    event: LogRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTo:
    """Send a site a message as it is."""

    site: SiteName
    message: SiteOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAt:
    """Order a site to submit an attempt.

    The daemon makes the ``LaunchOrder`` of it: it unpacks the submission, which a replay never
    does, and adds the folders that sites share, which the core does not know.

    ``victims``, and optional jobs of others (``shrinks``), still hold part of the nodes. They leave
    when the site has accepted.

    ``checkpoint_interval_s``: how long it should work between two checkpoints; 0: not known.
    ``has_run``: an earlier attempt has started somewhere, and may have left files.
    """

    site: SiteName
    attempt: AttemptId
    workload: Workload
    jobs: tuple[JobPlan, ...]
    has_run: bool = False
    victims: tuple[WorkloadId, ...] = ()
    shrinks: tuple[Shrink, ...] = ()
    checkpoint_interval_s: float = 0.0
    key: str = ""  # this and the next three only for the site to remember
    priority: int = 0
    within_quota: bool = False
    credit: float = 0.0
    data: tuple[DataPath, ...] = ()  # where it finds its data sets
    output: OutputPlace | None = None  # where it writes one


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptAt:
    """Order a site to let an attempt save, and to end it when its grace is over.

    The daemon makes the ``PreemptOrder`` of it: it adds the signal, which is an option of sbatch in
    the submission, and the checkpoint folder.

    The grace begins when the order first arrives: repeated orders change nothing.
    """

    site: SiteName
    attempt: AttemptId
    workload: Workload
    site_job_id: int
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAbout:
    """Ask a site what it knows of attempts; the answer is ``AttemptsShown``.

    The daemon's link keeps who was asked about, for a site may tell of others.
    """

    site: SiteName
    attempts: tuple[AttemptId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSubmitted:
    """Tell a client the id of the workload that was queued."""

    client: int
    id: WorkloadId


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTested:
    """Tell a client each site's answer to ``--test-only``."""

    client: int
    answers: dict[SiteName, SiteAnswer]
    winner: SiteName | None
    advised: tuple[SiteName, ...] = ()  # would start it now, and get nothing: mode advisory


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRefused:
    """Tell a client that no site can ever run it; nothing was queued."""

    client: int
    refusals: dict[SiteName, Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerKeyUsed:
    """Tell a client that its submit key is of another submission; nothing was queued."""

    client: int
    key: str
    id: WorkloadId  # of the workload that it queued, or of its array
    differences: tuple[str, ...]  # for people


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCancelled:
    """Tell a client which workloads its cancel has reached."""

    client: int
    ids: tuple[WorkloadId, ...]


class ControlRefusal(Enum):
    """The reason why a workload was not changed, in Slurm's words."""

    ENDED = "Job has already finished"
    ENDING = "Job/step already completing or completed"
    DENIED = "Access/permission denied"
    STARTED = "Job is no longer pending execution"
    PENDING = "Job is pending execution"
    NO_REQUEUE = "Requested operation is presently disabled"
    HELD = "Job is in held state, pending scheduler release"
    BEYOND_POLICY = (
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerControlled:
    """Tell a client which workloads were held, released or changed."""

    client: int
    ids: tuple[WorkloadId, ...]
    refused: tuple[tuple[WorkloadId, ControlRefusal], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDrained:
    """Tell an operator what that concerns.

    An act on a site is carried out; workloads are counted as they were.
    """

    client: int
    site: SiteName
    running: int = 0  # workloads there
    withdrawn: int = 0  # submitted there, and not running yet
    not_requeued: int = 0  # of the running ones: they may not start again


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDrainRefused:
    """Tell an operator why not.

    An act on a site is refused; nothing was changed.
    """

    client: int
    site: SiteName
    refusal: DrainRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerData:
    """Tell a client how its data sets are now."""

    client: int
    sets: tuple[DataSet, ...]
    dropped: tuple[str, ...] = ()  # those that it took out


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDataRefused:
    """Tell a client why not; nothing was changed."""

    client: int
    refusal: DataRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlanned:
    """Tell the planner that its plan is in force."""

    client: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLoan:
    """Tell an operator how a quota stands."""

    client: int
    tenant: TenantName
    step: LoanStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Send a ``Tick`` at a time, at once when it has passed."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Write a line to the daemon's own log."""

    event: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Keep the grounds of an award."""

    seen: SeenDecision


Answer = (
    AnswerSubmitted
    | AnswerTested
    | AnswerRefused
    | AnswerKeyUsed
    | AnswerCancelled
    | AnswerControlled
    | AnswerDrained
    | AnswerDrainRefused
    | AnswerPlanned
    | AnswerLoan
    | AnswerData
    | AnswerDataRefused
)
"""Commands that give a client the reply for which it waits."""

Command = Record | SendTo | LaunchAt | PreemptAt | AskAbout | Answer | Wake | Decided | Note
