"""The effects that the core has its shell carry out: plain values, in their order.

One with ``after`` is carried out only once the journal's write of that number is durable, so that
what must be remembered first is data. An effect that has an answer brings it back as an
observation, ``Done`` or ``NotDone``, with the effect itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from federator.agent.base import CheckpointStatus, Missing, SubmittedJob, Sweep
from federator.agent.journal import JournalMark
from federator.model.reason import ReasonCode
from federator.model.site import AttemptReport
from federator.model.tagged import Message
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import LaunchOrder, PreemptOrder, RememberedAttempt


class AgentEffect(msgspec.Struct, frozen=True, kw_only=True, tag_field="effect"):
    """Base of all effects; ``number`` tells those with an answer apart."""

    number: int = 0
    after: int = 0  # the number of a ``WriteMark``; 0: none


# ---- at once, in order; a failure ends the agent ----


class WriteMark(AgentEffect, frozen=True, kw_only=True, tag="write_mark"):
    """Make the last word on an attempt durable."""

    attempt: AttemptId
    mark: JournalMark


class KeepOrder(AgentEffect, frozen=True, kw_only=True, tag="keep_order"):
    """Keep what was asked for, durably."""

    order: LaunchOrder


class KeepAlive(AgentEffect, frozen=True, kw_only=True, tag="keep_alive"):
    """Its job lives: its order is as good as new."""

    attempt: AttemptId
    at_s: float


class NoteEndings(AgentEffect, frozen=True, kw_only=True, tag="note_endings"):
    """Keep how attempts ended, durably; others than ended ones are passed over."""

    reports: tuple[AttemptReport, ...]
    at_s: float


class Send(AgentEffect, frozen=True, kw_only=True, tag="send"):
    """Tell the daemon; ``otherwise`` where no frame can hold it."""

    message: Message
    otherwise: Message | None = None


class SendRemembered(AgentEffect, frozen=True, kw_only=True, tag="send_remembered"):
    """Answer a ``RecoverAsk`` in parts of moderate size, with the orders that are kept."""

    ask_id: int
    kept: tuple[RememberedAttempt, ...]


class WakeAt(AgentEffect, frozen=True, kw_only=True, tag="wake_at"):
    """Come back at this time of a clock that is never set; only the last one counts."""

    at_s: float


# ---- with an answer ----


class MakeSweep(AgentEffect, frozen=True, kw_only=True, tag="make_sweep"):
    """Look at Slurm, and at the attempts of this agent whatever they are called."""


class SettleLeases(AgentEffect, frozen=True, kw_only=True, tag="settle_leases"):
    """Leases of what is over go, and who lives and has none gets one."""


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """The lease and ticket of one submission."""

    token: str  # of its ticket; "": the site has no spool
    start_line: str  # in place of its script's first one; "": it stays


class OpenLease(AgentEffect, frozen=True, kw_only=True, tag="open_lease"):
    """Make an attempt's lease and ticket."""

    order: LaunchOrder


class Sbatch(AgentEffect, frozen=True, kw_only=True, tag="sbatch"):
    """Submit an attempt; its ticket goes when sbatch has answered."""

    order: LaunchOrder
    leased: Leased


class FindBoundJob(AgentEffect, frozen=True, kw_only=True, tag="find_bound_job"):
    """Ask the site's hooks which job has used a lease."""

    attempt: AttemptId
    user: str


class Release(AgentEffect, frozen=True, kw_only=True, tag="release"):
    """Remove a lease. ``gone``: its job is not there, which is to be told afterwards."""

    attempt: AttemptId
    gone: bool = False


class AskAccounts(AgentEffect, frozen=True, kw_only=True, tag="ask_accounts"):
    """Ask sacct; ``number`` says for whom."""

    missing: tuple[Missing, ...]


class Scancel(AgentEffect, frozen=True, kw_only=True, tag="scancel"):
    """End a job; the answer is whether Slurm has it."""

    attempt: AttemptId
    user: str
    job_id: int
    pending_only: bool = False
    lane: str = "cancel"  # so many of a kind at once: cancel, end or shrink


class Terminate(AgentEffect, frozen=True, kw_only=True, tag="terminate"):
    """TERM to all of a job."""

    attempt: AttemptId
    user: str
    job_id: int


class Kill(AgentEffect, frozen=True, kw_only=True, tag="kill"):
    """KILL to all of a job, then scancel, however that went."""

    attempt: AttemptId
    user: str
    job_id: int


class Notify(AgentEffect, frozen=True, kw_only=True, tag="notify"):
    """Tell a job by when it will be killed."""

    order: PreemptOrder
    leave_by_s: float
    at_s: float  # Unix time: it counts as told then


class AskKillWait(AgentEffect, frozen=True, kw_only=True, tag="ask_kill_wait"):
    """Ask Slurm how long it lets a job handle TERM."""


class ReadFolders(AgentEffect, frozen=True, kw_only=True, tag="read_folders"):
    """Read what jobs of one user have left in their checkpoint folders."""

    user: str
    orders: tuple[PreemptOrder, ...]
    lane: str  # graces, endings, saves or progress


class Inspect(AgentEffect, frozen=True, kw_only=True, tag="inspect"):
    """Name the files that cannot be opened for attempts of one user."""

    user: str
    attempts: tuple[AttemptId, ...]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why an effect was not carried out."""

    detail: str
    refused: ReasonCode | None = None  # sbatch's no, which is certain
    timed_out: bool = False


Accounted = tuple[AttemptReport, ...]
ANSWERS: Final[Mapping[type[AgentEffect], object]] = MappingProxyType(
    {
        MakeSweep: Sweep,
        SettleLeases: str,
        OpenLease: Leased,
        Sbatch: SubmittedJob,
        FindBoundJob: int,
        Release: bool,
        AskAccounts: Accounted,
        Scancel: bool,
        Terminate: None,
        Kill: None,
        Notify: None,
        AskKillWait: float,
        ReadFolders: tuple[CheckpointStatus, ...],
        Inspect: tuple[str, ...],
    }
)
"""The type of each effect's answer."""
