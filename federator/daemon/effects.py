"""Carries commands out: each becomes a message to a site or an answer to a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import is_
from pathlib import Path
from typing import Final

import structlog

from federator.daemon.data_calls import data_reply
from federator.daemon.drain_calls import drain_reply
from federator.daemon.links import SiteLink
from federator.daemon.submissions import BEYOND_POLICY
from federator.errors import InvalidRequest
from federator.model.decision import SeenDecision
from federator.model.message import (
    NOBODY,
    Answer,
    AnswerCancelled,
    AnswerControlled,
    AnswerData,
    AnswerDataRefused,
    AnswerDrained,
    AnswerDrainRefused,
    AnswerKeyUsed,
    AnswerLoan,
    AnswerPlanned,
    AnswerRefused,
    AnswerSubmitted,
    AnswerTested,
    AskAbout,
    Command,
    Decided,
    LaunchAt,
    Note,
    PreemptAt,
    Record,
    SendTo,
    Wake,
)
from federator.model.reason import SUBMIT_LIMITS, ReasonCode, Refusal
from federator.model.site_message import Ask
from federator.model.submission import Submission, pack_submission, unpack_submission
from federator.model.tagged import Message
from federator.model.workload import SiteName, Workload, WorkloadId
from federator.slurm.options.deadline_option import TOO_LATE
from federator.slurm.options.license_option import INVALID as INVALID_LICENSE
from federator.slurm.options.notice import notice_of
from federator.slurm.options.reservation_option import DENIED as NOT_ADMITTED
from federator.slurm.options.reservation_option import INVALID as NO_RESERVATION
from federator.wire.agent_protocol import LaunchOrder, Origin, PreemptOrder
from federator.wire.client_protocol import (
    CancelReply,
    ControlReply,
    ErrorReply,
    PlanReply,
    SubmitReply,
    frame,
)
from federator.wire.quota_messages import LoanReply
from federator.wire.replies import Reply, SiteBid, TestOnlyReply

log = structlog.get_logger()

_NO_SUBMISSION: Final = pack_submission(Submission(components=(), script=""))


class Effects:
    """Carries out all commands but ``Record``, which the loop makes durable before.

    Args:
        federation: its name, as ``--parsable`` prints it.
        links: by site.
        answer: gives a reply to a waiting client.
        wake: asks for a ``Tick`` at a time.
        shared: the folder that each site shares with its region.
    """

    def __init__(
        self,
        federation: str,
        links: Mapping[SiteName, SiteLink],
        answer: Callable[[int, Reply], None],
        wake: Callable[[float], None],
        shared: Mapping[SiteName, Path],
    ) -> None:
        self.keep: Callable[[SeenDecision], None] = lambda _seen: None  # decisions
        self.mails: Callable[[], bool] = lambda: False
        self.know_folders(shared)
        self._federation = federation
        self._links = links
        self._answer = answer
        self._wake = wake
        self._asked: tuple[Ask, bytes] | None = None  # the last question, as a frame

    def _give(self, client: int, reply: Reply) -> None:
        """Answer who asked; what a site's file asks for is answered in the log."""
        if client != NOBODY:
            self._answer(client, reply)
        elif isinstance(reply, ErrorReply):
            log.warning("revocation_refused", detail=reply.message)

    def know_folders(self, shared: Mapping[SiteName, Path]) -> None:
        """Name these from now on."""
        self._shared = {site: str(folder) for site, folder in shared.items()}
        self._all_shared = tuple(sorted(set(self._shared.values())))

    def carry_out(self, command: Command) -> None:
        match command:
            case Record():
                pass
            case Wake():
                self._wake(command.at_s)
            case Decided():
                self.keep(command.seen)
            case Note():
                log.info(command.event, **command.fields)
            case AskAbout():
                if command.site in self._links:
                    self._links[command.site].recall.ask(command.attempts)
            case SendTo() | LaunchAt() | PreemptAt() if command.site not in self._links:
                pass  # a reload has taken it out
            case SendTo() | LaunchAt() | PreemptAt():
                try:
                    self._tell_site(command)
                except InvalidRequest as error:  # too large for a frame: the site stays silent
                    log.error("order_too_large", site=command.site, detail=str(error))
            case _:
                self._give(command.client, self._reply(command))

    def _tell_site(self, command: SendTo | LaunchAt | PreemptAt) -> None:
        message: Message
        match command:
            case SendTo():
                message = command.message
            case LaunchAt():
                message = self._launch_order(command)
            case PreemptAt():
                message = self._preempt_order(command)
        log.debug("order", type=type(message).__name__, site=command.site)
        self._links[command.site].send_frame(message, self._framed(message))

    def _framed(self, message: Message) -> bytes:
        """The frame of a message; of a question that is put to many sites it is made once."""
        if not isinstance(message, Ask):
            return frame(message)
        if self._asked is not None:
            last, framed = self._asked
            if _is_the_same(last, message):
                return framed
        framed = frame(message)
        self._asked = message, framed
        return framed

    def _launch_order(self, command: LaunchAt) -> LaunchOrder:
        w = command.workload
        return LaunchOrder(
            attempt=command.attempt,
            user=w.user,
            tenant=w.tenant,
            name=w.name,
            submission=unpack_submission(w.submission),
            jobs=command.jobs,
            has_run=command.has_run,
            array_index=w.array.index if w.array is not None else None,
            array_id=w.array.array_id if w.array is not None else 0,
            time_limit_s=w.time_limit_s,
            victims=command.victims,
            shrinks=command.shrinks,
            checkpoint_dir=self._checkpoint_dir(command.site, w),
            checkpoint_interval_s=command.checkpoint_interval_s,
            shared=self._all_shared,
            data=command.data,
            output=command.output,
            mailed=self.mails(),
            origin=Origin(
                workload=replace(w, submission=_NO_SUBMISSION),
                key=command.key,
                priority=command.priority,
                within_quota=command.within_quota,
                credit=command.credit,
            ),
        )

    def _preempt_order(self, command: PreemptAt) -> PreemptOrder:
        notice = notice_of(unpack_submission(command.workload.submission))
        return PreemptOrder(
            attempt=command.attempt,
            user=command.workload.user,
            site_job_id=command.site_job_id,
            grace_s=command.grace_s,
            signal=notice.signal,
            signal_to=notice.to,
            checkpoint_dir=self._checkpoint_dir(command.site, command.workload),
        )

    def _checkpoint_dir(self, site: SiteName, workload: Workload) -> str:
        """A workload's own folder on what the sites of a region share; "" where nothing is."""
        shared = self._shared.get(site)
        return checkpoint_dir(shared, workload) if shared else ""

    def _reply(self, command: Answer) -> Reply:
        match command:
            case AnswerSubmitted():
                return SubmitReply(id=command.id, federation=self._federation)
            case AnswerRefused() | AnswerKeyUsed():
                return _not_queued(command)
            case AnswerTested():
                bids = tuple(
                    SiteBid(site=site, bid=answer.bid, refusal=answer.refusal)
                    for site, answer in command.answers.items()
                )
                return TestOnlyReply(
                    bids=bids, winner=command.winner or "", advised=tuple(command.advised)
                )
            case AnswerCancelled():
                return CancelReply(ids=command.ids)
            case AnswerControlled():
                lines = tuple(f"{why.value} for job {id_}" for id_, why in command.refused)
                return ControlReply(ids=command.ids, errors=lines)
            case _:
                return _operated(command)


def _operated(
    command: (
        AnswerData
        | AnswerDataRefused
        | AnswerDrained
        | AnswerDrainRefused
        | AnswerPlanned
        | AnswerLoan
    ),
) -> Reply:
    match command:
        case AnswerData() | AnswerDataRefused():
            return data_reply(command)
        case AnswerPlanned():
            return PlanReply()
        case AnswerLoan():
            return LoanReply(tenant=command.tenant, step=command.step.value)
        case AnswerDrained() | AnswerDrainRefused():
            return drain_reply(command)


_IN_SBATCHS_WORDS: Final = {
    ReasonCode.NO_PARTITION: "Batch job submission failed: Invalid partition name specified",
    ReasonCode.NO_NODE: "Batch job submission failed: Invalid node name specified",
    ReasonCode.LICENSES: INVALID_LICENSE,
    ReasonCode.NO_RESERVATION: NO_RESERVATION,
    ReasonCode.NO_QOS: "Batch job submission failed: Invalid qos specification",
}
"""Of what all sites refuse for this reason alone."""


def _not_queued(command: AnswerRefused | AnswerKeyUsed) -> ErrorReply:
    if isinstance(command, AnswerKeyUsed):
        return ErrorReply(message=_key_used(command))
    reasons = {str(site): refusal for site, refusal in command.refusals.items()}
    found = [reason for refusal in reasons.values() for reason in refusal.reasons]
    codes = {reason.code for reason in found}
    message = "no site can ever run this job"
    if len(codes) == 1:
        message = _IN_SBATCHS_WORDS.get(found[0].code, message)
    if codes == {ReasonCode.NO_RESERVATION} and any(", " in reason.detail for reason in found):
        message = NOT_ADMITTED
    if "" in reasons and reasons[""].reasons[0].code in SUBMIT_LIMITS:
        return ErrorReply(message=BEYOND_POLICY, reasons=reasons)
    if "" in reasons and reasons[""].reasons[0].code is ReasonCode.DEADLINE:
        return ErrorReply(message=TOO_LATE, reasons=reasons)
    if "" in reasons and codes != {ReasonCode.LICENSES}:
        message = _never_for_the_tenant(reasons[""])
    return ErrorReply(message=message, reasons=reasons)


def _is_the_same(one: Ask, other: Ask) -> bool:
    """Whether two questions have one frame: requests are equal though jobs' names may differ."""
    alike = len(one.requests) == len(other.requests)
    return alike and all(map(is_, one.requests, other.requests)) and one == other


def checkpoint_dir(shared: str, workload: Workload) -> str:
    """Its folder below a region's shared one; ids never come again, so no other has it."""
    return checkpoint_folder(shared, workload.user, workload.id)


def checkpoint_folder(shared: str, user: str, id_: WorkloadId) -> str:
    """The same, by the workload's user and id."""
    return f"{shared.rstrip('/')}/{user}/checkpoints/{id_}"


def _key_used(command: AnswerKeyUsed) -> str:
    key = command.key.partition(":")[2]  # without its user
    return (
        f"submit key {key!r} was used for job {command.id} with "
        f"{' and '.join(command.differences)}: use another key (FED_SUBMIT_KEY) for another job"
    )


def _never_for_the_tenant(refusal: Refusal) -> str:
    if refusal.reasons[0].code is ReasonCode.NOT_LENT:
        return "a job that may not be evicted must fit its tenant's quota"
    return "the job asks for more than its tenant may ever use"
