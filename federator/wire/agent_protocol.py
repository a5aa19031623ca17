"""The messages between daemon and agents, in ``ToAgent`` and ``FromAgent``.

Those that the core makes or reads as they are, are in ``federator.model.site_message``, those of
users' commands in ``client_protocol``. They travel in frames, see ``framing``. Unknown fields are
ignored, so neighbours of one release apart understand each other; a message that changes its
meaning raises ``PROTOCOL_VERSION``.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import Final

import msgspec

from federator.errors import SiteUnavailable
from federator.model.data_output import OutputPlace
from federator.model.data_use import DataPath
from federator.model.dataset import CopyPhase
from federator.model.local_record import LocalRecord
from federator.model.plan import JobPlan, Shrink
from federator.model.site import AttemptReport, GpuModel, Snapshot
from federator.model.site_message import (
    Ask,
    AttemptAbsent,
    BidsMade,
    CancelOrder,
    LaunchAccepted,
    LaunchDeclined,
    Report,
    ShrinkOrder,
)
from federator.model.site_mode import SiteMode
from federator.model.site_names import SiteNames
from federator.model.site_reader import SiteReader
from federator.model.submission import Submission
from federator.model.tagged import Message
from federator.model.unreadable import UNREADABLE
from federator.model.workload import AttemptId, Workload
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.client_protocol import Call, Finding
from federator.wire.replies import Reply

PROTOCOL_VERSION: Final = 6


# ---- daemon → agent ----


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """First message to an agent. It serves no epoch older than the newest it has seen.

    ``log_began``: the epoch by which the daemon's log is told from others; 0: of a daemon that does
    not say. A site that has served another log serves this one only if it ``displaces`` that.
    ``served_channel``: by which the site was last served in this term, from ``served_host``; 0 and
    "": it was not, or has one login node. An agent on another host has found in its state folder
    that this channel's tenure began, or its folder is another one.
    """

    protocol: int
    epoch: int
    site: str
    partitions: tuple[str, ...]
    poll_interval_s: float
    # What each gres type is, by federation.yaml.
    gpus: dict[str, GpuModel] = msgspec.field(default_factory=dict)
    federation: str = ""  # its name; "": of a daemon that does not say
    log_began: int = 0
    displaces: bool = False
    names: SiteNames = SiteNames()  # of the site; only for agents whose ``Hello`` says "names"
    mode: SiteMode = SiteMode.ENFORCED  # shadow: only for agents whose ``Hello`` says "shadow"
    watches: bool = False  # the site's own jobs are to be told: ``LocalJobs``
    channel: int = 0  # a later channel of this daemon to the site has a greater number
    reader: SiteReader = SiteReader.CLI  # an agent that does not know it reads by commands
    served_channel: int = 0
    served_host: str = ""


class SnapshotAsk(Message, frozen=True, kw_only=True, tag="snapshot"):
    """Show what you bid on now."""

    ask_id: int


class VerifyAsk(Message, frozen=True, kw_only=True, tag="verify"):
    """Prove that the site is set up as it should be; see ``VerifyCall``."""

    ask_id: int
    user: str = ""
    account: str = ""  # to which the user's probe jobs are charged
    nodes: tuple[str, ...] = ()


class NodesAsk(Message, frozen=True, kw_only=True, tag="nodes_of"):
    """List the nodes of these partitions; only for agents whose ``Hello`` says "nodes"."""

    ask_id: int
    partitions: tuple[str, ...]


class TenantCap(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts that one tenant may have at once, and has.

    ``limit_gpus``: the least of its own limit and its ancestors'; None: there is none.
    ``used_gpus``: what it and its descendants hold at all sites.
    """

    name: str
    limit_gpus: int | None
    used_gpus: int


class Admission(Message, frozen=True, kw_only=True, tag="admission"):
    """The figures for a site's own admission rules; the agent writes them into its spool."""

    tenants: tuple[TenantCap, ...]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The queue's knowledge of an attempt beyond what its site needs to start it.

    The site keeps it beside the order, so that a queue that is lost can be built anew. All fields
    are those of the ``Submitted`` and ``Awarded`` records of the log.
    """

    workload: Workload  # with an empty submission: the order has it
    key: str = ""  # the client's submit key
    priority: int = 0
    within_quota: bool = False
    credit: float = 0.0


class LaunchOrder(Message, frozen=True, kw_only=True, tag="launch"):
    """Submit this attempt, pinned to the plan; the same order twice submits once.

    ``checkpoint_dir``: made for it, as its user; "" where the region has no shared folder.
    ``checkpoint_interval_s``: suggested to it; 0: nothing is known.
    ``victims``: workloads that will leave for it; ``shrinks``: optional jobs of others that will.
    ``has_run``: an earlier attempt has started somewhere, and may have left files.
    """

    attempt: AttemptId
    user: str
    tenant: str
    name: str
    submission: Submission
    jobs: tuple[JobPlan, ...]
    array_index: int | None = None
    array_id: int = 0  # of its array, if it is a task of one
    time_limit_s: float = inf
    victims: tuple[int, ...] = ()
    shrinks: tuple[Shrink, ...] = ()
    checkpoint_dir: str = ""
    checkpoint_interval_s: float = 0.0
    has_run: bool = False
    shared: tuple[str, ...] = ()  # folders of regions: what login nodes lack there, nodes lack, too
    origin: Origin | None = None
    data: tuple[DataPath, ...] = ()  # where it finds its data sets at the site
    output: OutputPlace | None = None  # where it writes one
    mailed: bool = False  # the federation mails its events, and so the site need not


class SignalTo(Enum):
    """The part of a job that a signal is for."""

    BATCH = "batch"  # its script, not the script's children
    STEPS = "steps"  # what it started with srun
    PROGRAM = "program"  # its steps; if it has none, its script with all children
    ALL = "all"  # script, children and steps


class PreemptOrder(Message, frozen=True, kw_only=True, tag="preempt"):
    """Let an attempt save, and see to it that it is gone when its grace is over.

    The grace begins when the order first arrives; the same order again changes nothing.
    """

    attempt: AttemptId
    user: str
    site_job_id: int
    grace_s: float
    signal: str = "TERM"  # by which it is told, without SIG
    signal_to: SignalTo = SignalTo.PROGRAM
    checkpoint_dir: str = ""


class SignalAsk(Message, frozen=True, kw_only=True, tag="signal"):
    """Send a job a signal; only for agents whose ``Hello`` says "signal"."""

    ask_id: int
    user: str
    site_job_id: int
    signal: str  # without SIG
    to: SignalTo


class LimitAsk(Message, frozen=True, kw_only=True, tag="limit"):
    """Lower the time limit of a job that runs; only for agents whose ``Hello`` says "limit"."""

    ask_id: int
    user: str
    site_job_id: int
    minutes: int


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that is over, as its site knows it."""

    attempt: AttemptId
    user: str
    site_job_id: int  # of a het job its leader's
    started_at_s: float
    checkpoint_dir: str = ""  # in which it may have left notes; "": nothing is shared
    ended_at_s: float = 0.0  # this and the next: 0 from a daemon of an earlier release
    gpus: int = 0  # on all its nodes


class UsageAsk(Message, frozen=True, kw_only=True, tag="usage_of"):
    """Tell what these have used; only for agents whose ``Hello`` says "usage"."""

    ask_id: int
    jobs: tuple[EndedJob, ...]


class TidyOrder(Message, frozen=True, kw_only=True, tag="tidy"):
    """Remove checkpoint folders below ``shared``: those of ``ended`` workloads if nothing is in
    them, those of any others if all in them was last changed before ``before_s`` (0: none).

    By user. What is in ``live`` stays, and what has an id from ``below`` on: it is not known yet.
    ``keep_s``: nothing goes that is younger by the site's own clock, whatever ``before_s`` says.
    The answers are ``Tidied``, if the order has an ``order_id``.
    """

    shared: str
    ended: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    live: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    below: int = 0
    before_s: float = 0.0
    keep_s: float = 0.0
    order_id: int = 0


class CopyOrder(Message, frozen=True, kw_only=True, tag="copy"):
    """Have a data set's copy go on by one step; only for agents whose ``Hello`` says "copy".

    ``user``: its owner, as whom it is read and written. ``host``: where the source is,
    [USER@]HOST[:PORT]; "": at this site, too. ``replace``: what is at the place is known to be
    damaged. ``drop``: what is half copied goes. The answer is ``CopyStatus``.

    Agents that say "objects" copy from object stores: ``source`` is ``rclone:REMOTE:PATH``.

    ``remove``: the files at the place go, if their digest is this; "dropped" once they have. Only
    for agents that say "remove"; host, source and the rest do not count then.

    Agents that say "checkpoint" copy sealed checkpoints, too, whose digests begin with ``sealed:``.
    That alone asks for the newest in the folder ``path`` of a workload; the answer is "found", with
    its bytes and, in ``detail``, its name and digest, or - and the reason why there is none.
    """

    name: str
    version: str
    domain: str  # that it is copied to
    user: str
    host: str
    source: str  # absolute, at that host
    root: str  # of the domain at this site, absolute
    path: str  # below that
    digest: str
    size_bytes: int = 0
    keep_free_bytes: int = 0
    kib_per_s: int = 0  # 0: as fast as it goes
    streams: int = 1  # rsyncs side by side; earlier agents have one
    replace: bool = False
    drop: bool = False
    remove: bool = False


class OutputOrder(Message, frozen=True, kw_only=True, tag="output"):
    """Have what a job wrote be sealed, by one step; only for agents whose ``Hello`` says "output".

    ``drop``: its folder is removed instead. The answer is ``OutputStatus``.
    """

    place: OutputPlace
    attempt: int  # the last that wrote
    user: str
    drop: bool = False


class RecoverAsk(Message, frozen=True, kw_only=True, tag="recover"):
    """Tell all that the site knows of these attempts; of none: of every attempt.

    The answer is one or more ``RecoverDone``.
    """

    ask_id: int
    attempts: tuple[AttemptId, ...] = ()


class CallAnswer(Message, frozen=True, kw_only=True, tag="call_answer"):
    """The daemon's reply to a ``ClientCall``."""

    call_id: int
    reply: Reply


class Ping(Message, frozen=True, kw_only=True, tag="ping"):
    """Keeps the channel alive; an agent that hears nothing for long ends itself."""


ToAgent = (
    Welcome
    | Ask
    | SnapshotAsk
    | VerifyAsk
    | NodesAsk
    | SignalAsk
    | LimitAsk
    | UsageAsk
    | Admission
    | LaunchOrder
    | PreemptOrder
    | ShrinkOrder
    | TidyOrder
    | CopyOrder
    | OutputOrder
    | CancelOrder
    | RecoverAsk
    | CallAnswer
    | Ping
)


# ---- agent → daemon ----


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """First message of an agent.

    ``last_epoch``: the newest that the site had served when it was told of this one; 0: none. A
    daemon of an older one is not served: it is told so, and the channel ends. ``federation`` and
    ``log_began``: whose epoch that was, and of which log; "" and 0: not known. ``other_log``: the
    daemon is not served, for its log is not that one. ``answers``: questions beside those of the
    first release that the agent knows, "nodes", "signal", "limit" and "usage"; "names": it knows
    the ``names`` of a ``Welcome``; "tenure": it finds out whether another agent acts before it
    does; "usage-end": of a job that has just ended it says when more is to come. ``host``: where
    it runs; ``folder_id``: the name of its state folder. ``other_folder``:
    the daemon is not served, for the tenure of its ``served_channel`` did not begin there.
    ``release``: the agent's own; "": of one that does not say it.
    """

    protocol: int
    site: str
    slurm_version: str
    last_epoch: int = 0
    federation: str = ""
    log_began: int = 0
    other_log: bool = False
    answers: tuple[str, ...] = ()
    host: str = ""
    folder_id: str = ""
    other_folder: bool = False
    release: str = ""


class SnapshotTaken(Message, frozen=True, kw_only=True, tag="snapshot_taken"):
    """Answer to a ``SnapshotAsk``; without a snapshot ``detail`` says why there is none."""

    ask_id: int
    snapshot: bytes = b""  # a Snapshot, packed: the daemon passes it on as it is
    detail: str = ""


class VerifyDone(Message, frozen=True, kw_only=True, tag="verify_done"):
    """Answer to a ``VerifyAsk``."""

    ask_id: int
    findings: tuple[Finding, ...]


class NodesTaken(Message, frozen=True, kw_only=True, tag="nodes_taken"):
    """Answer to a ``NodesAsk``; without nodes ``detail`` says why there are none."""

    ask_id: int
    nodes: bytes = b""  # a SiteNodes, packed
    detail: str = ""


class SignalDone(Message, frozen=True, kw_only=True, tag="signal_done"):
    """Answer to a ``SignalAsk``."""

    ask_id: int
    detail: str = ""  # why it was not sent; "": it was


class LimitDone(Message, frozen=True, kw_only=True, tag="limit_done"):
    """Answer to a ``LimitAsk``."""

    ask_id: int
    detail: str = ""  # why it was not lowered; "": it was


class UsageTaken(Message, frozen=True, kw_only=True, tag="usage_taken"):
    """Answer to a ``UsageAsk``, in its order; None: the site does not know (yet).

    ``again``: places of those of which it may know more later, as accounts or a folder were silent.
    """

    ask_id: int
    used: tuple[MeasuredUse | None, ...]
    again: tuple[int, ...] = ()


class RememberedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, as its site remembers it.

    ``void``: it is not there and never will be. ``withdrawn``, ``cancelled``: it was ordered to
    end, unless it had started or in any case. ``order``: None where the site has put it aside,
    as that of an attempt that is long over, or an older release took it. ``report``: how it stands
    or how it ended; None: nobody knows. ``unnotified``: it had a job, and was not told to leave.
    """

    attempt: AttemptId
    user: str
    site_job_id: int = 0
    void: bool = False
    withdrawn: bool = False
    cancelled: bool = False
    order: LaunchOrder | None = None
    report: AttemptReport | None = None
    unnotified: bool = False


class RecoverDone(Message, frozen=True, kw_only=True, tag="recover_done"):
    """A part of the answer to a ``RecoverAsk``; ``detail``: why there is none."""

    ask_id: int
    kept: tuple[RememberedAttempt, ...] = ()
    last: bool = False
    detail: str = ""


class CancelFailed(Message, frozen=True, kw_only=True, tag="cancel_failed"):
    attempt: AttemptId
    detail: str


class Tidied(Message, frozen=True, kw_only=True, tag="tidied"):
    """The outcome of one user's part of a ``TidyOrder``; without a user: the order is done."""

    order_id: int
    user: str = ""
    removed: tuple[int, ...] = ()  # workloads whose folders are gone
    wrong: str = ""  # why others are not, that should be


class CopyStatus(Message, frozen=True, kw_only=True, tag="copy_status"):
    """Answer to a ``CopyOrder``: where the copy stands."""

    name: str
    version: str
    domain: str
    digest: str
    phase: CopyPhase
    copied_bytes: int = 0
    detail: str = ""


class OutputStatus(Message, frozen=True, kw_only=True, tag="output_status"):
    """Answer to an ``OutputOrder``: where the output stands; what was sealed once it is done."""

    workload: int
    attempt: int
    domain: str
    phase: CopyPhase
    size_bytes: int = 0
    files: int = 0
    digest: str = ""
    detail: str = ""


class LocalJobs(Message, frozen=True, kw_only=True, tag="local_jobs"):
    """What is new of the site's own jobs, to a daemon whose ``Welcome`` says ``watches``.

    ``at_s``: Unix time of the look, by the agent's clock. ``complete``: the last part of a look at
    all of them, whose parts have the same ``at_s``: what was open before and is in none is gone.
    """

    at_s: float
    records: tuple[LocalRecord, ...]
    complete: bool = False


class ClientCall(Message, frozen=True, kw_only=True, tag="client_call"):
    """A user's command at the site; ``user`` is the peer of the agent's socket."""

    call_id: int
    user: str
    call: Call


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    """Answer to a ``Ping``; ``sweep_age_s``: since the last good sweep, -1: none, or not said."""

    sweep_age_s: float = -1.0


class Trouble(Message, frozen=True, kw_only=True, tag="trouble"):
    """The agent could not read its Slurm; the site takes no part until a Report follows."""

    detail: str


FromAgent = (
    Hello
    | BidsMade
    | SnapshotTaken
    | VerifyDone
    | NodesTaken
    | SignalDone
    | LimitDone
    | UsageTaken
    | RecoverDone
    | LaunchAccepted
    | LaunchDeclined
    | CancelFailed
    | AttemptAbsent
    | Report
    | Tidied
    | CopyStatus
    | OutputStatus
    | LocalJobs
    | ClientCall
    | Pong
    | Trouble
)

_encoder: Final = msgspec.msgpack.Encoder()
to_agent_decoder: Final[msgspec.msgpack.Decoder[ToAgent]] = msgspec.msgpack.Decoder(ToAgent)
from_agent_decoder: Final[msgspec.msgpack.Decoder[FromAgent]] = msgspec.msgpack.Decoder(FromAgent)


def packed(snapshot: Snapshot) -> bytes:
    """A snapshot as a part of a message."""
    return _encoder.encode(snapshot)


def unpacked(raw: bytes) -> Snapshot:
    """Undo ``packed``.

    Raises:
        SiteUnavailable: it is none.
    """
    try:
        return msgspec.msgpack.decode(raw, type=Snapshot)
    except UNREADABLE as error:
        raise SiteUnavailable(f"the site's snapshot cannot be read: {error}") from error
