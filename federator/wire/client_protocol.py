"""The calls of users' commands and the daemon's answers, as bytes on a unix socket.

Every command imports this module at its start, and half of a short command's time is imports. So
nothing here may need ``asyncio``, ``dataclasses`` or the plans of bids; see ``replies`` for these.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import Final

import msgspec

from federator.errors import InvalidRequest
from federator.model.drain import LeaveDrill
from federator.model.lending import LendingDecision, LendingPlan
from federator.model.partition import PartitionSummary
from federator.model.reason import Reason, Refusal
from federator.model.score import Score
from federator.model.start_estimate import StartEstimate, StartHelp
from federator.model.submission import NodeRange, Submission
from federator.model.tagged import Message
from federator.model.window import SiteWindow
from federator.wire.accounting_rows import AccountingRow
from federator.wire.data_rows import DATA_ANSWERS, CatalogueCall, PlaceDataCall
from federator.wire.holdings_rows import HoldingsCall, HoldingsReply
from federator.wire.queue_rows import (
    JobDetails,
    OutputRow,
    PaceRow,
    PreemptionRow,
    QueueOutcome,
    QueueRank,
    RegionRow,
    SetbackRow,
)
from federator.wire.quota_messages import LoanReply, QuotaCall
from federator.wire.status_rows import (
    BudgetRow,
    ClaimRow,
    DrainRow,
    KeyChange,
    LendingRow,
    LicenseRow,
    PassRow,
    StartsRow,
    TenantModeRow,
)
from federator.wire.usage_messages import USAGE_ANSWERS, ReportCall

BANNER: Final = b"FEDERATOR-1\n"
MAX_FRAME_BYTES: Final = 64 * 2**20
MAX_CALL_BYTES: Final = 8 * 2**20  # of a user's command; a script has at most 4 MiB
VERIFY_TAKES_S: Final = 90.0  # at most, for an agent to prove how its site is set up


# ---- users' commands → daemon (through the agent of a site, or directly on its host) ----


class SubmitCall(Message, frozen=True, kw_only=True, tag="submit"):
    submission: Submission
    key: str  # made by the client; a retry with the same key gets the same ids
    as_user: str = ""  # sbatch --uid: only an operator on the daemon's host may
    test_only: bool = False  # answer with each site's bid, queue nothing
    federation: str = ""  # sbatch --clusters: it must be this one's name; "": nothing was said
    interactive: bool = False  # of fsalloc and fsrun; with ``watched`` as of ``Workload``
    watched: bool = False


class QueueCall(Message, frozen=True, kw_only=True, tag="queue"):
    ids: tuple[str, ...] = ()  # "4294967296", "4294967296_3" (array task); empty: all
    users: tuple[str, ...] = ()
    ended: bool = False  # also those that have ended
    collapsed: bool = False  # waiting tasks of an array in one row
    why: bool = False  # fill ``rank``, ``setbacks``, ``regions``; it costs the daemon a ranking
    files: bool = False  # fill ``work_dir``, ``stdin``, ``stdout`` and ``stderr``
    outcome: bool = False  # fill ``outcome``, with a few rows: of those that failed, once all ended
    # Of these only, where any is named. A daemon of an earlier build knows none: the client
    # compares, too.
    states: tuple[str, ...] = ()  # a WorkloadState's value
    names: tuple[str, ...] = ()  # as the next, whatever their case
    tenants: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()  # planned, or asked for
    clusters: tuple[str, ...] = ()  # sites; the federation's own name and "all" are every site
    brief: bool = False  # without ``refusals``, ``offers`` and ``preemption``: rows of a table
    codes: bool = False  # where it is ``brief``: of reasons the code alone
    details: bool = False  # fill ``details``
    starts: bool = False  # fill ``start``
    helps: bool = False  # fill ``helps``, of one job alone that waits; answered within some seconds


class CancelCall(Message, frozen=True, kw_only=True, tag="cancel"):
    ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()  # only workloads of these users; with no ids: all of theirs


class ControlCall(Message, frozen=True, kw_only=True, tag="control"):
    """Changes jobs that live, as scontrol does."""

    verb: str  # a ControlVerb's value
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # the caller's live jobs that are called so
    # Of ``update``: scontrol's names in lower case.
    fields: dict[str, str] = msgspec.field(default_factory=dict)


class SignalCall(Message, frozen=True, kw_only=True, tag="signal_jobs"):
    """Sends running jobs a signal, by the site's scancel."""

    ids: tuple[str, ...]
    signal: str  # without SIG: "USR1"
    to: str = "steps"  # as scancel: "steps", "batch" (--batch) or "all" (--full)


class SessionCall(Message, frozen=True, kw_only=True, tag="session"):
    """Asks where an interactive workload is, and says that its command still waits for it."""

    id: int
    attach: bool = False  # asks only: whoever does so does not keep it


class SitesCall(Message, frozen=True, kw_only=True, tag="sites"):
    """Asks for the state of every site."""


class NodesCall(Message, frozen=True, kw_only=True, tag="nodes"):
    """Asks every site that is up for its nodes and the limits of its partitions."""

    clusters: tuple[str, ...] = ()  # as of ``QueueCall``


class TenantsCall(Message, frozen=True, kw_only=True, tag="tenants"):
    """Asks for quota, use and share of every tenant."""


class SnapshotCall(Message, frozen=True, kw_only=True, tag="snapshot_of"):
    """Asks for the snapshot that a site bids on now; for operators."""

    site: str


class VerifyCall(Message, frozen=True, kw_only=True, tag="verify_site"):
    """Asks a site's agent to prove that the site is set up as it should be; for operators."""

    site: str
    user: str = ""  # as whom probe jobs are submitted; "": none are
    nodes: tuple[str, ...] = ()  # on which one must run


class StatusCall(Message, frozen=True, kw_only=True, tag="status"):
    """Asks how the federation as a whole stands."""


class PassesCall(Message, frozen=True, kw_only=True, tag="passes"):
    """Asks for the last scheduling passes."""


class DrainCall(Message, frozen=True, kw_only=True, tag="drain_site"):
    """Drains or cordons a site, or nodes of it; for operators."""

    site: str
    nodes: tuple[str, ...] = ()  # only these; none: all of the site
    reason: str = ""
    cordon: bool = False  # running workloads run on
    migrate: bool = False  # they save and go on elsewhere, as fast as the eviction budget allows
    deadline_s: float = 0.0  # Unix time by which they have left; 0: none
    revoked: bool = False  # its provider takes it away then: the deadline may be too soon for all


class ResumeCall(Message, frozen=True, kw_only=True, tag="resume_site"):
    """Ends a drain or a cordon; for operators."""

    site: str
    nodes: tuple[str, ...] = ()  # as they were drained; none: the site
    drill: LeaveDrill | None = None  # that ends with it


class WriteOffCall(Message, frozen=True, kw_only=True, tag="write_off_site"):
    """Gives a site up that is gone; for operators. ``DrainReply.not_requeued`` have failed."""

    site: str
    reason: str = ""


class PlanCall(Message, frozen=True, kw_only=True, tag="plan"):
    """Puts a lending plan in place of the one before; for operators."""

    plan: LendingPlan


class ReloadCall(Message, frozen=True, kw_only=True, tag="reload"):
    """Has the daemon read its federation.yaml anew; for operators."""

    dry_run: bool = False  # nothing is changed: what would be?


class AccountingCall(Message, frozen=True, kw_only=True, tag="accounting"):
    """Asks for workloads that lived in a time, ended or not; an empty tuple asks for any."""

    start_s: float = 0.0  # Unix time, as the next
    end_s: float = float("inf")
    ids: tuple[str, ...] = ()  # as of ``QueueCall``
    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()  # sites, or the federation itself
    partitions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    states: tuple[str, ...] = ()  # Slurm's; then those that were in such a state in that time
    attempts: bool = False  # fill ``earlier``
    use: bool = False  # fill ``use`` of all attempts in the answer
    reasons: bool = False  # say why what waits does, as fsqueue does; it costs the daemon more
    after: tuple[float, int] | None = None  # the next page: ``AccountingReply.after``


class SpokenCall(Message, frozen=True, kw_only=True, tag="spoken"):
    """An act of a user whom another process has identified: it is the web page's account."""

    user: str
    call: CancelCall | ControlCall | DrainCall | ResumeCall


Call = (
    SubmitCall
    | QueueCall
    | CancelCall
    | ControlCall
    | SignalCall
    | SessionCall
    | SitesCall
    | NodesCall
    | TenantsCall
    | SnapshotCall
    | VerifyCall
    | AccountingCall
    | ReportCall
    | StatusCall
    | DrainCall
    | ResumeCall
    | WriteOffCall
    | PlanCall
    | QuotaCall
    | ReloadCall
    | PassesCall
    | HoldingsCall
    | CatalogueCall
    | PlaceDataCall
    | SpokenCall
)


class ErrorKind(Enum):
    """The remedy that the caller has."""

    REQUEST = "request"  # ask for something else
    UNAVAILABLE = "unavailable"  # ask again later
    BUSY = "busy"  # ask again at once: the call was not even read
    DENIED = "denied"  # nothing: it is not the caller's to ask


class ErrorReply(Message, frozen=True, kw_only=True, tag="error"):
    """The call was refused; nothing was queued or changed."""

    message: str  # one line, fit for the user
    kind: ErrorKind = ErrorKind.REQUEST
    # By site, where sites refused.
    reasons: dict[str, Refusal] = msgspec.field(default_factory=dict)


class SubmitReply(Message, frozen=True, kw_only=True, tag="submitted"):
    id: int  # of the workload, or of the array's first task
    federation: str


class QueueRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workload, for fsqueue.

    ``priority`` is the one at which it was awarded; of a pending workload the one at which it
    ranks now, if ``why`` was asked, else the one it was submitted with.
    """

    id: int
    name: str
    user: str
    tenant: str
    priority: int
    state: str  # a WorkloadState's value, e.g. "PENDING"
    attempt: int
    submitted_at_s: float
    array_id: int = 0  # 0: not a task of an array
    array_index: int = 0
    jobs: int = 1  # het components
    nodes: int = 0  # planned, or asked for; 0: the site chooses
    gpus: int = 0
    time_limit_s: float = 0.0  # inf: none
    site: str = ""
    site_job_id: int = 0
    node_names: tuple[str, ...] = ()
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    unknown_since_s: float = 0.0  # the site has not been heard since; 0: it is heard
    exit_code: int | None = None  # of what has ended, if its site has told it
    signal: int = 0
    reason: Reason | None = None
    refusals: dict[str, Refusal] = {}  # by site, of the last pass that tried it
    offers: dict[str, Score] = {}  # of the sites that bid when it was awarded
    costs: dict[str, float] = {}  # of those offers that cost anything: ``Bid.cost``
    site_state: str = ""  # Slurm's last word, e.g. "OUT_OF_MEMORY"
    rank: QueueRank | None = None  # this and the next only with ``why``; of a live workload
    setbacks: dict[str, SetbackRow] = {}  # by site
    preemption: PreemptionRow | None = None  # None: no eviction or save is known, of it or for it
    project: str = ""  # this and the next two as the user said
    datasets: tuple[str, ...] = ()
    elastic: NodeRange | None = None
    output: OutputRow | None = None
    work_dir: str = ""  # this and the next three only with ``files``; absolute, at the site
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    tasks: int = 1  # waiting tasks of an array that the row stands for; it tells of the first
    array_tasks: str = ""  # of a ``collapsed`` row, e.g. "[5-99%4]"
    details: JobDetails | None = None  # only with ``details``
    start: StartEstimate | None = None  # only with ``starts``, of one that has not started
    helps: tuple[StartHelp, ...] = ()  # only with ``helps``
    helps_untried: bool = False  # there was no time to find out
    lending: LendingDecision | None = None  # of its award: over quota, and cannot be evicted
    pace: PaceRow | None = None  # of one that runs, if it is known and not ``brief``
    spare: int = 0  # of ``nodes``, so many are spare
    partition: str = ""  # of its plan, else those asked for, with commas between; "": any
    command: str = ""  # only with ``files``: its script's path; "": not known, or it has none
    regions: tuple[RegionRow, ...] = ()  # only with ``why`` and ``ids``, if it names data sets


class QueueReply(Message, frozen=True, kw_only=True, tag="queue_is"):
    rows: tuple[QueueRow, ...]
    now_s: float
    left_off: int = 0  # rows that one answer does not hold; ask for fewer
    unknown: tuple[str, ...] = ()  # ids asked for that no workload ever had
    # Whom it answers, by the federation's name, which a site may call otherwise; "": not said.
    caller: str = ""
    outcome: QueueOutcome | None = None  # only if it was asked for
    selects: bool = False  # the daemon has left out what ``clusters`` and the like exclude


class CancelReply(Message, frozen=True, kw_only=True, tag="cancelled"):
    ids: tuple[int, ...]
    errors: tuple[str, ...] = ()  # one line for each id that could not be cancelled


class ControlReply(Message, frozen=True, kw_only=True, tag="controlled"):
    ids: tuple[int, ...]
    errors: tuple[str, ...] = ()  # one line, of Slurm's words, for each job that was not changed


class SignalReply(Message, frozen=True, kw_only=True, tag="signalled"):
    ids: tuple[int, ...]
    errors: tuple[str, ...] = ()  # one line for each id that could not be signalled


class SessionReply(Message, frozen=True, kw_only=True, tag="session_is"):
    """How an interactive workload stands, and the way to its nodes."""

    id: int
    state: str  # a WorkloadState's value
    silence_s: float  # it is cancelled when it is not asked about for so long; 0: never
    attempt: int = 0
    site: str = ""
    site_job_id: int = 0
    node_names: tuple[str, ...] = ()
    login: str = ""  # HOST[:PORT]; "": federation.yaml names none
    account: str = ""  # the user's there, where it has another name than here
    here: bool = False  # the call came from that site
    reason: Reason | None = None
    site_state: str = ""  # Slurm's last word
    left_s: float = inf  # of its time limit, while it runs
    # By site, of the last pass that tried it.
    refusals: dict[str, Refusal] = msgspec.field(default_factory=dict)


class DrainReply(Message, frozen=True, kw_only=True, tag="drain_taken"):
    """A drain, a cordon or the end of one is in the log; numbers of workloads."""

    site: str
    running: int = 0
    withdrawn: int = 0  # submitted there, and not running yet: they go elsewhere
    not_requeued: int = 0  # of the running ones: they may not start again


class PlanReply(Message, frozen=True, kw_only=True, tag="plan_taken"):
    """A lending plan is in the log and in force."""


class ReloadReply(Message, frozen=True, kw_only=True, tag="reloaded"):
    """The daemon goes by its federation.yaml; with ``dry_run`` it would."""

    path: str
    changes: tuple[KeyChange, ...] = ()
    dry_run: bool = False
    warnings: tuple[str, ...] = ()


class SiteRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    region: str
    up: bool
    slurm_version: str = ""
    down_since_s: float = 0.0
    partitions: tuple[PartitionSummary, ...] = ()
    drains: tuple[DrainRow, ...] = ()
    windows: tuple[SiteWindow, ...] = ()  # in which its Slurm keeps nodes for others
    mode: str = "enforced"  # of ``SiteMode``; a later release may have others
    login_node: str = ""  # where its agent runs; "": not known
    agent_release: str = ""  # of its agent; "": not known, as of an earlier release
    gpus_by_type: dict[str, int] = {}  # of its nodes, in whatever partitions; none: not known


class SitesReply(Message, frozen=True, kw_only=True, tag="sites_are"):
    sites: tuple[SiteRow, ...]
    licenses: tuple[LicenseRow, ...] = ()  # of the pools that all sites share


class StatusReply(Message, frozen=True, kw_only=True, tag="status_is"):
    """How the federation as a whole stands; ``queue`` counts workloads by state."""

    federation: str
    now_s: float
    policy: str
    epoch: int
    sites: tuple[SiteRow, ...]
    queue: dict[str, int]
    gpus_held: int = 0  # by workloads of the federation
    last_pass: PassRow | None = None  # None: there was none since the daemon's start
    budget: BudgetRow
    claims: tuple[ClaimRow, ...] = ()
    lending: LendingRow = LendingRow(mode="off")
    keep_ended_s: float = 0.0  # what has ended is known for so long; 0: not told
    starts: StartsRow | None = None  # None: of an older daemon
    tenant_modes: tuple[TenantModeRow, ...] = ()  # of those that are not in mode enforced
    # By site, Unix time at which its job ids last went back, as far as this daemon has read of it:
    job_ids_back: dict[str, float] = msgspec.field(default_factory=dict)


class PassesReply(Message, frozen=True, kw_only=True, tag="passes_are"):
    passes: tuple[PassRow, ...]  # oldest first
    now_s: float


class SiteNodesRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one site says of its nodes; without ``nodes`` ``detail`` says why there are none."""

    site: str
    region: str = ""
    slurm_version: str = ""
    nodes: bytes = b""  # a SiteNodes, packed
    detail: str = ""


class NodesReply(Message, frozen=True, kw_only=True, tag="nodes_are"):
    sites: tuple[SiteNodesRow, ...]


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant. Amounts are by resource: "gpus", "cpus", and GPU types that any quota counts.

    ``used``: what the tenant and its descendants hold at sites. ``borrowed``: what its own
    workloads hold there that stand over quota now. ``lent``: the part of its idle quota that
    borrowers use.
    """

    name: str
    parent: str = ""
    depth: int = 0  # number of its ancestors
    configured: bool = True  # False: met in the log, not in federation.yaml
    priority: int
    users: tuple[str, ...] = ()
    home: tuple[str, ...] = ()  # sites at which the quota is guaranteed; none: at all
    start_within_s: float = 0.0  # its start objective; 0: none
    quota: dict[str, int | None] | None = None  # None: it has none; of one resource: not counted
    limit: dict[str, int | None]  # None: unlimited
    used: dict[str, int]
    used_own: dict[str, int]  # without descendants
    borrowed: dict[str, int]
    lent: dict[str, int]
    pending: int = 0  # workloads of its own, as the next
    pending_within: int | None = None  # within quota; None where the policy knows no quota
    pending_over: int | None = None
    average_gpus: float = 0.0  # weighted, its own, over the accounting window
    usage_share_frac: float = 0.0  # of the sum over tenants
    fair_share_term: float | None = None  # of its workloads' credit; None: no credit
    preempt_tax_gpu_s: float = 0.0  # destroyed by evictions for its own workloads
    preempt_lost_gpu_s: float = 0.0  # destroyed by evictions of its own workloads
    mode: str = "enforced"  # the lowest of its own and those above it; as that of ``SiteRow``


class TenantsReply(Message, frozen=True, kw_only=True, tag="tenants_are"):
    rows: tuple[TenantRow, ...]  # children behind their parent, in the file's order
    now_s: float
    policy: str = ""
    caller: str = ""  # as of ``QueueReply``


class SnapshotReply(Message, frozen=True, kw_only=True, tag="snapshot_is"):
    snapshot: bytes  # a Snapshot, see ``unpacked``


class Verdict(Enum):
    """Of one finding."""

    OK = "ok"
    WARN = "warn"  # it works, but could be better; or it could not be proved
    FAIL = "fail"  # the federation does not work there as promised until it is mended


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The finding of one check of a site; ``detail`` is one line: what was seen, what to do."""

    check: str  # e.g. "spool"
    verdict: Verdict
    detail: str


class VerifyReply(Message, frozen=True, kw_only=True, tag="verified"):
    findings: tuple[Finding, ...]


class AccountingReply(Message, frozen=True, kw_only=True, tag="accounting_is"):
    """One page of rows; the order of all is the caller's to make.

    A workload that has just ended may be in two pages: the later one counts.
    """

    rows: tuple[AccountingRow, ...]
    now_s: float
    federation: str
    after: tuple[float, int] | None = None  # to be asked for next; None: this is all
    left_off: int = 0  # live workloads that one answer does not hold; ask for fewer
    note: str = ""  # what the answer lacks, and why


ANSWERS: Final[dict[type[Message], type[Message]]] = {
    SubmitCall: SubmitReply,
    QueueCall: QueueReply,
    CancelCall: CancelReply,
    ControlCall: ControlReply,
    SignalCall: SignalReply,
    SessionCall: SessionReply,
    SitesCall: SitesReply,
    NodesCall: NodesReply,
    TenantsCall: TenantsReply,
    SnapshotCall: SnapshotReply,
    VerifyCall: VerifyReply,
    AccountingCall: AccountingReply,
    StatusCall: StatusReply,
    DrainCall: DrainReply,
    ResumeCall: DrainReply,
    WriteOffCall: DrainReply,
    PlanCall: PlanReply,
    QuotaCall: LoanReply,
    ReloadCall: ReloadReply,
    PassesCall: PassesReply,
    HoldingsCall: HoldingsReply,
    PlaceDataCall: PlanReply,
    **(DATA_ANSWERS | USAGE_ANSWERS),
}
"""What a call is answered with unless it is refused; ``test_only`` with a ``TestOnlyReply``, a
``SpokenCall`` as the call that it holds."""

_encoder: Final = msgspec.msgpack.Encoder()


def frame(message: Message) -> bytes:
    """Encode one message with its length in front.

    Raises:
        InvalidRequest: it is larger than the other side would take, or holds what is not UTF-8, or
            a number of more than 64 bits.
    """
    try:
        body = _encoder.encode(message)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{error.object[:60]!r} holds bytes that are not UTF-8") from error
    except OverflowError as error:
        raise InvalidRequest("a message holds a number of more than 64 bits") from error
    if len(body) > MAX_FRAME_BYTES:
        raise InvalidRequest(f"a message of {len(body)} bytes, more than {MAX_FRAME_BYTES}")
    return len(body).to_bytes(4, "big") + body
