"""Answers users' calls: checks who may ask for what, and makes observations of the calls.

A call comes from the agent of a site, which vouches for the user by the peer of its socket, and is
believed about the users of its own map; or from a process on the daemon's host. There operators may
act for others (``--uid``), cancel anything, see what a site bids on, have a site verified, and
drain sites. ``roles`` says who is what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from federator.audit.chain import AuditAct
from federator.audit.latest import LatestActs
from federator.config import FederationConfig
from federator.daemon.callers import Caller, GiveReply, WaitingClients, named_here
from federator.daemon.control import jobs_meant, verb_of
from federator.daemon.data_calls import data_asked, data_sets
from federator.daemon.data_plan_calls import shown_plan
from federator.daemon.data_privacy import without_hidden_names
from federator.daemon.ids_asked import SiteNumbers, own_ids
from federator.daemon.interactive_jobs import InteractiveJobs
from federator.daemon.job_top import put_first
from federator.daemon.job_update import Asker, updates_of
from federator.daemon.lower_limits import limits_to_lower
from federator.daemon.operator_calls import OperatorCall, operator_asked
from federator.daemon.region_views import data_report
from federator.daemon.roles import Roles
from federator.daemon.site_calls import SiteCalls
from federator.daemon.start_forecasts import StartForecasts
from federator.daemon.strangers_ids import without_strangers
from federator.daemon.submissions import draft_of
from federator.daemon.view_calls import ViewCalls
from federator.daemon.views import find
from federator.errors import FederatorError, InvalidRequest, NotAllowed
from federator.history.service import JobHistory
from federator.model.draft import Draft
from federator.model.eligibility import Hold
from federator.model.event import Amended
from federator.model.lifecycle import TERMINAL
from federator.model.message import (
    CancelAsked,
    ControlAsked,
    ControlRefusal,
    ControlVerb,
    Observation,
    SubmitAsked,
)
from federator.model.start_estimate import NoEstimate, StartEstimate
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.starts.estimates import TRIAL
from federator.sched.state.ledger import Ledger
from federator.wire.agent_protocol import ClientCall
from federator.wire.audit_messages import AuditCall, AuditReply
from federator.wire.client_protocol import (
    Call,
    CancelCall,
    ControlCall,
    ErrorKind,
    ErrorReply,
    NodesCall,
    ReloadCall,
    SessionCall,
    SignalCall,
    SnapshotCall,
    SpokenCall,
    SubmitCall,
    VerifyCall,
)
from federator.wire.client_socket import ClientSocket, OpenSocket
from federator.wire.data_rows import (
    CatalogueCall,
    DataCall,
    DataPlanCall,
    DataReportCall,
    DataSetsCall,
)
from federator.wire.replies import Reply, TestOnlyReply
from federator.wire.usage_messages import DoctorCall, UsageCall

MAX_CANCELS: Final = 20_000  # of one request
MAX_NAME: Final = 256  # characters of a user's
VIA_PAGE: Final = "web page"
OF_THE_PAGE: Final = frozenset({ControlVerb.HOLD.value, ControlVerb.RELEASE.value})

log = structlog.get_logger()


def is_of_the_page(call: SpokenCall) -> bool:
    """Whether an act is one that the web page may bring for a user."""
    act = call.call
    return not isinstance(act, ControlCall) or act.verb in OF_THE_PAGE


_Reload = Callable[[ReloadCall, str, GiveReply], None]


def _nobody_reloads(_call: ReloadCall, _user: str, answer: GiveReply) -> None:
    answer(ErrorReply(message="this daemon cannot reload"))


def _tell(
    caller: Caller, ledger: Ledger, config: FederationConfig, answer: GiveReply, reply: Reply
) -> None:
    """Answer with what the caller may see of it."""
    reply = without_hidden_names(reply, ledger, caller, config)
    answer(without_strangers(reply, ledger, caller, config))


def page_reply(
    call: AuditCall | SpokenCall, caller: Caller, latest: LatestActs | None, now_s: float
) -> Reply:
    """The answer to what else the web page asks: the last acts of the audit, for operators, too.

    An act for a user comes here only from another account than the page's.
    """
    if isinstance(call, SpokenCall):
        message = f"{caller.user} may not speak for users so: see web.account"
        return ErrorReply(message=message, kind=ErrorKind.DENIED)
    if not (caller.operator or caller.speaks):
        return caller.refusal()
    rows = () if latest is None else latest.rows()
    return AuditReply(rows=rows, now_s=now_s, kept=latest is not None)


class Api:
    """The desk where calls are taken.

    Args:
        config: names the tenants and their users.
        federation: read for views, never changed here.
        observe: takes observations in.
        clock: returns Unix time.
        leads: whether the daemon still does. If not, it is about to end and answers nothing: what
            it knows may be out of date, and who asks again is told by the one that leads.
        history: of what has ended; None: none is kept.

    Attributes:
        site_calls: those that sites' agents answer; the daemon sets its links.
        sessions: interactive workloads, and who still asks about them.
        reload: takes an operator's wish to reload, and whom to answer; the daemon sets it.
        roles: says who a caller is.
        audit: notes what was denied; the daemon sets it.
        audited: the last acts of the audit; None: none is kept. The daemon sets it.
    """

    def __init__(
        self,
        config: FederationConfig,
        federation: Federation,
        observe: Callable[[Observation], None],
        clock: Callable[[], float],
        leads: Callable[[], bool] = lambda: True,
        history: JobHistory | None = None,
    ) -> None:
        self._federation = federation
        self._observe = observe
        self._clock = clock
        self._leads = leads
        self.roles = Roles(config)
        self._views = ViewCalls(config, federation, clock, history)
        self.site_calls = SiteCalls(config, federation)
        self.sessions = InteractiveJobs(config, federation, clock)
        self._config = config
        self.reload: _Reload = _nobody_reloads
        self.audit: Callable[[AuditAct], None] = lambda _act: None
        self.audited: LatestActs | None = None
        self._clients = WaitingClients()
        self._starts: StartForecasts | None = None

    def show_starts(self, starts: StartForecasts) -> None:
        """Tell these estimates from now on."""
        self._starts = self._views.starts = starts

    def reconfigure(self, config: FederationConfig) -> None:
        """Answer by this configuration from now on."""
        self._config = config
        self.roles = self.roles.by(config)
        self._views.reconfigure(config)
        self.site_calls.reconfigure(config)
        self.sessions.reconfigure(config)

    # ---- calls ----

    def take(self, call: ClientCall, origin: SiteName, answer: GiveReply) -> None:
        """Take a call made at a site; the answer may come later."""
        there = call.user[:MAX_NAME]  # a site may write anything; no account has a longer name
        user = self._config.user_at(origin, there)
        log.debug("call", user=there, site=origin, call=type(call.call).__name__)
        if user is not None and there == call.user and self._config.speaks_for(origin, user):
            meant, caller = named_here(call.call, origin, self._config), user
            self.roles.when_known(
                caller, lambda: self._take(meant, self.roles.caller(caller, origin), answer)
            )
            return
        message = f"site {origin} may not speak for {user}: sites.{origin}.users says for whom"
        if user is None:
            message = f"{there} of site {origin} is another user than the federation's of that name"
            user = there
        refusal = ErrorReply(message=message, kind=ErrorKind.DENIED)
        stranger = Caller(user=user, operator=False, via=origin)
        self._note_refusal(stranger, call.call, answer, refusal)

    def take_here(self, user: str, call: Call, answer: GiveReply) -> None:
        """Take a call made on the daemon's host, where some users are operators."""
        account = self._config.web.account
        speaks = bool(account) and user == account
        if speaks and isinstance(call, SpokenCall) and is_of_the_page(call):
            log.info("page_call", user=call.user, by=user, call=type(call.call).__name__)
            named, meant = call.user, call.call
            self.roles.when_known(named, lambda: self._take(meant, self._page_user(named), answer))
            return
        self.roles.when_known(
            user,
            lambda: self._take(call, self.roles.caller(user, None)._replace(speaks=speaks), answer),
        )

    def _page_user(self, user: str) -> Caller:
        """A user whom the web page names: its operators are those of federation.yaml alone."""
        is_operator = user in self._config.web.operators
        return self.roles.caller(user, None)._replace(operator=is_operator, via=VIA_PAGE)

    def _take(self, call: Call, caller: Caller, answer: GiveReply) -> None:
        if not self._leads():
            return
        replied, answer = answer, partial(self._note_refusal, caller, call, answer)
        try:
            self._dispatch(call, caller, answer)
        except FederatorError as error:
            answer(ErrorReply(message=str(error)))
        except Exception:  # a fault of ours in one call must not end the caller's channel
            log.exception("call_fault", user=caller.user, call=type(call).__name__)
            replied(ErrorReply(message="the daemon failed on this request; its log says how"))

    def _dispatch(self, call: Call, caller: Caller, answer: GiveReply) -> None:
        if isinstance(call, OperatorCall | ReloadCall):
            self._operate(call, caller, answer)
            return
        match call:
            case AuditCall() | SpokenCall():
                answer(page_reply(call, caller, self.audited, self._clock()))
            case SubmitCall():
                self._submit(call, caller, answer)
            case CancelCall():
                self._cancel(call, caller, answer)
            case ControlCall():
                self._control(call, caller, answer)
            case SessionCall():
                partial(_tell, caller, self._federation.ledger, self._config, answer)(
                    self.sessions.take(call, caller)
                )
            case DataCall() | DataSetsCall() | DataPlanCall() | DataReportCall():
                self._data(call, caller, answer)
            case NodesCall() | SignalCall() | SnapshotCall() | VerifyCall():
                self.site_calls.take(call, caller, answer)
            case UsageCall() | DoctorCall():
                others = caller.administers
                viewer = self._config.usage_viewer(caller.user, caller.sees_all, others)
                self._views.take(call, viewer, answer)
            case _:
                give = partial(_tell, caller, self._federation.ledger, self._config, answer)
                self._views.take(call, caller.viewer_by(self._config), give, caller.user)

    def _data(self, call: CatalogueCall, caller: Caller, answer: GiveReply) -> None:
        if isinstance(call, DataPlanCall):
            answer(shown_plan(caller, self._config, self._federation.ledger, self._clock()))
            return
        if isinstance(call, DataReportCall):
            answer(data_report(caller, self._federation, self._clock()))
            return
        catalogue = self._federation.ledger.catalogue
        if isinstance(call, DataSetsCall):
            answer(data_sets(call, catalogue, caller, self._config, self._clock()))
            return
        try:
            asked = data_asked(call, caller, self._clients.following, self._config, catalogue)
        except NotAllowed as error:
            answer(ErrorReply(message=str(error), kind=ErrorKind.DENIED))
            return
        self._clients.add(answer)
        self._observe(asked)

    def _operate(self, call: OperatorCall | ReloadCall, caller: Caller, answer: GiveReply) -> None:
        if not caller.operator:
            answer(caller.refusal())
            return
        if isinstance(call, ReloadCall):
            self.reload(call, caller.user, answer)
            return
        client, ledger = self._clients.following, self._federation.ledger
        asked = operator_asked(call, caller.user, client, self._config, ledger, self._clock())
        self._clients.add(answer)
        self._observe(asked)

    def reply(self, client: int, reply: Reply) -> None:
        """Hand the core's answer to whom it is for."""
        self._clients.reply(client, reply)

    # ---- submissions ----

    def _submit(self, call: SubmitCall, caller: Caller, answer: GiveReply) -> None:
        user = caller.acting_as(call.as_user)
        viewer = caller.viewer_by(self._config)
        draft = draft_of(call, user, self._config, self._federation.ledger, viewer)
        if call.test_only:
            answer = partial(
                self._estimate,
                draft,
                partial(_tell, caller, self._federation.ledger, self._config, answer),
            )
        client = self._clients.add(answer)
        key = f"{user}:{call.key}"  # one user's key cannot meet another's
        by = "" if user == caller.user else caller.user
        self._observe(
            SubmitAsked(client=client, key=key, draft=draft, test_only=call.test_only, by=by)
        )

    def _estimate(self, draft: Draft, answer: GiveReply, reply: Reply) -> None:
        """Add to the bids for a trial that nobody would start now when it is estimated to start."""
        if self._starts is None or not isinstance(reply, TestOnlyReply) or reply.winner:
            answer(reply)
            return
        at_s = self._clock()
        held = draft.hold is not Hold.NONE or draft.waits_for or draft.begin_at_s > at_s
        if held or reply.for_watched_tenant:
            none = StartEstimate(none=NoEstimate.MAY_NOT_START.value)
            answer(msgspec.structs.replace(reply, start=none))
            return
        workload = draft.workloads(TRIAL, at_s)[0]
        self._starts.try_out(
            workload, lambda start: answer(msgspec.structs.replace(reply, start=start))
        )

    # ---- cancels ----

    def _cancel(self, call: CancelCall, caller: Caller, answer: GiveReply) -> None:
        ids: list[WorkloadId] = []
        errors: list[str] = []
        numbers = SiteNumbers(self._federation.ledger, caller.may_end)
        viewer = caller.viewer_by(self._config)
        for wanted in dict.fromkeys(own_ids(call.ids, self._config.federation)):
            found = find(self._federation.ledger, wanted, viewer)
            if len(ids) + len(found) > MAX_CANCELS:
                raise InvalidRequest(f"more than {MAX_CANCELS} jobs at once; cancel fewer")
            if not found:
                errors.append(f"Invalid job id specified: {wanted}{numbers.whose(wanted)}")
            for id_ in found:
                entry = self._federation.ledger.entries[id_]
                if call.users and entry.workload.user not in call.users:
                    continue
                if not caller.may_end(entry.workload):
                    errors.append(f"Access/permission denied: {wanted} belongs to another user")
                    break
                if entry.state not in TERMINAL:
                    ids.append(id_)
        if not call.ids:
            ids = self._all_of(call, caller)
        ids = list(dict.fromkeys(ids))
        client = self._clients.add(answer, tuple(errors))
        self._observe(CancelAsked(client=client, ids=tuple(ids), by=caller.user))

    def _control(self, call: ControlCall, caller: Caller, answer: GiveReply) -> None:
        verb = verb_of(call.verb)
        call = msgspec.structs.replace(call, ids=own_ids(call.ids, self._config.federation))
        amends = verb in (ControlVerb.UPDATE, ControlVerb.TOP)
        may = caller.may_change if amends else caller.may_end
        viewer = caller.viewer_by(self._config)
        ids, errors = jobs_meant(self._federation.ledger, call, may, viewer)
        if len(ids) > MAX_CANCELS:
            raise InvalidRequest(f"more than {MAX_CANCELS} jobs at once; name fewer")
        amended = self._amended(verb, ids, call, caller)
        fields = call.fields if verb is ControlVerb.UPDATE else ("",)
        limits = limits_to_lower(self._federation.ledger, ids, fields, amended)

        def observe(failed: Mapping[WorkloadId, str]) -> None:
            wrong = {**limits.refused, **failed}
            self._observe(
                ControlAsked(
                    client=self._clients.add(answer, (*errors, *wrong.values())),
                    verb=verb,
                    ids=tuple(id_ for id_ in ids if id_ not in wrong),
                    by=caller.user,
                    is_operator=caller.operator,
                    amended=amended,
                    lowered=frozenset(limits.minutes.keys() - failed.keys()),
                )
            )

        if limits.minutes:
            self.site_calls.lower_limits(limits.minutes, observe)
        else:
            observe({})

    def _amended(
        self, verb: ControlVerb, ids: tuple[WorkloadId, ...], call: ControlCall, caller: Caller
    ) -> tuple[Amended, ...]:
        """What is changed of workloads, where that is more than whether they are held."""
        if verb is ControlVerb.UPDATE:
            asker = Asker(self._config, caller.operator, caller.viewer_by(self._config))
            return updates_of(self._federation, ids, call.fields, asker)
        if verb is ControlVerb.TOP and ids:
            if not (caller.operator or self._config.policy.enable_user_top):
                raise InvalidRequest(ControlRefusal.DENIED.value)
            policy = self._config.policy
            weights = policy.credit.weights if policy.order.by_quota else None
            return put_first(self._federation.ledger, ids, weights, self._clock())
        return ()

    def _all_of(self, call: CancelCall, caller: Caller) -> list[WorkloadId]:
        """Every live workload of the users named that the caller may end."""
        users = set(call.users)
        if not caller.operator and not caller.administers and users != {caller.user}:
            raise InvalidRequest(f"{caller.user} may cancel only workloads of {caller.user}")
        entries = self._federation.ledger.entries.values()
        return [
            e.workload.id
            for e in entries
            if e.state not in TERMINAL and e.workload.user in users and caller.may_end(e.workload)
        ]

    # ---- processes on the daemon's host ----

    async def serve(self, path: Path) -> OpenSocket:
        """Listen on the daemon's own socket.

        Raises:
            ConfigError: the path cannot be listened at.
        """
        return await ClientSocket(self._answered).listen(path)

    def _note_refusal(self, caller: Caller, call: Call, answer: GiveReply, reply: Reply) -> None:
        """Pass an answer on, and say in the log if it is a refusal; in the audit, if denied."""
        if isinstance(reply, ErrorReply):
            log.info(
                "call_refused", user=caller.user, call=type(call).__name__, detail=reply.message
            )
            if reply.kind is ErrorKind.DENIED:
                self.audit(
                    AuditAct(
                        at_s=self._clock(),
                        act=str(type(call).__struct_config__.tag),
                        by=caller.user,
                        via=caller.via,
                        refused=reply.message[:500],
                    )
                )
        answer(reply)

    async def _answered(self, user: str, call: Call) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answer(reply: Reply) -> None:
            if not future.done():
                future.set_result(reply)

        self.take_here(user, call, answer)
        return await future
