"""Answers users' calls: checks who may ask for what, and makes observations of the calls.

A call comes from the agent of a site, which vouches for the user by the peer of its socket, or
from a process on the daemon's host. There root and the daemon's own user are operators: they may
act for others (``--uid``), cancel anything, see what a site bids on, have a site verified, and
drain sites.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from federator.config import FederationConfig
from federator.daemon.accounting import AccountingDesk
from federator.daemon.control import jobs_meant, verb_of
from federator.daemon.ids_asked import own_ids
from federator.daemon.job_update import updates_of
from federator.daemon.links import SiteLink
from federator.daemon.operator_calls import OperatorCall, operator_asked
from federator.daemon.site_calls import ask_nodes, send_signals
from federator.daemon.status_view import status_reply
from federator.daemon.submissions import draft_of
from federator.daemon.tenant_views import tenant_rows
from federator.daemon.views import (
    RankView,
    find,
    outcome_of,
    queue_rows,
    site_rows,
    unknown_ids,
)
from federator.errors import FederatorError, InvalidRequest
from federator.history.service import JobHistory
from federator.model.lifecycle import TERMINAL
from federator.model.message import (
    CancelAsked,
    ControlAsked,
    ControlVerb,
    Observation,
    SubmitAsked,
)
from federator.model.viewer import Viewer
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.wire.agent_protocol import ClientCall
from federator.wire.client_protocol import (
    AccountingCall,
    Call,
    CancelCall,
    CancelReply,
    ControlCall,
    ControlReply,
    DrainCall,
    ErrorKind,
    ErrorReply,
    NodesCall,
    PlanCall,
    QueueCall,
    QueueReply,
    ReloadCall,
    ResumeCall,
    SignalCall,
    SitesCall,
    SitesReply,
    SnapshotCall,
    StatusCall,
    StatusReply,
    SubmitCall,
    TenantsCall,
    TenantsReply,
    VerifyCall,
    WriteOffCall,
)
from federator.wire.client_socket import ClientSocket, OpenSocket, user_of
from federator.wire.replies import Reply

MAX_FAILED_ROWS: Final = 10  # with an outcome: enough to see why
MAX_ROWS: Final = 5_000  # of one answer; some 3 MB, twice that with their ranks
MAX_BRIEF_ROWS: Final = 20_000  # of one answer that is brief; some 4 MB
MAX_CANCELS: Final = 20_000  # of one request

log = structlog.get_logger()


_Reload = Callable[[ReloadCall, str, Callable[[Reply], None]], None]


def _nobody_reloads(_call: ReloadCall, _user: str, answer: Callable[[Reply], None]) -> None:
    answer(ErrorReply(message="this daemon cannot reload"))


def operators() -> frozenset[str]:
    """The users that may act for others: root, and the account that the daemon really runs as."""
    return frozenset({"root", user_of(os.geteuid())})


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
        links: the daemon's, to each site; it sets them.
        reload: takes an operator's wish to reload, and whom to answer; the daemon sets it.
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
        self._operators = operators()
        self._accounting = AccountingDesk(config.federation, federation.ledger, history, clock)
        self.reconfigure(config)
        self.links: Mapping[SiteName, SiteLink] = {}
        self.reload: _Reload = _nobody_reloads
        self._waiting: dict[int, Callable[[Reply], None]] = {}
        self._errors: dict[int, tuple[str, ...]] = {}  # found before the core was asked
        self._next_client = 1

    def reconfigure(self, config: FederationConfig) -> None:
        """Answer by this configuration from now on."""
        self._config = config
        policy = config.policy
        weights = policy.credit.weights if policy.order.by_quota else None
        self._ranks = RankView(self._federation, policy.name, weights)
        self._accounting.sites = frozenset(config.sites)

    # ---- calls ----

    def take(self, call: ClientCall, origin: SiteName, answer: Callable[[Reply], None]) -> None:
        """Take a call made at a site; the answer may come later."""
        log.debug("call", user=call.user, site=origin, call=type(call.call).__name__)
        self._take(call.call, call.user, False, answer)

    def take_here(self, user: str, call: Call, answer: Callable[[Reply], None]) -> None:
        """Take a call made on the daemon's host, where some users are operators."""
        self._take(call, user, user in self._operators, answer)

    def _take(self, call: Call, user: str, operator: bool, answer: Callable[[Reply], None]) -> None:
        if not self._leads():
            return
        replied, answer = answer, partial(_note_refusal, user, call, answer)
        try:
            match call:
                case SubmitCall():
                    self._submit(call, self._acting(call.as_user, user, operator), answer)
                case CancelCall():
                    self._cancel(call, user, operator, answer)
                case ControlCall():
                    self._control(call, user, operator, answer)
                case QueueCall() | SitesCall() | TenantsCall() | AccountingCall():
                    self._show(call, self._config.viewer(user, operator=operator), answer)
                case StatusCall():
                    answer(self._status())
                case DrainCall() | ResumeCall() | WriteOffCall() | PlanCall() | ReloadCall():
                    self._operate(call, user, operator, answer)
                case _:
                    self._ask_agents(call, user, operator, answer)
        except FederatorError as error:
            answer(ErrorReply(message=str(error)))
        except Exception:  # a fault of ours in one call must not end the caller's channel
            log.exception("call_fault", user=user, call=type(call).__name__)
            replied(ErrorReply(message="the daemon failed on this request; its log says how"))

    def _show(
        self,
        call: QueueCall | SitesCall | TenantsCall | AccountingCall,
        viewer: Viewer | None,
        answer: Callable[[Reply], None],
    ) -> None:
        match call:
            case QueueCall():
                answer(self._queue(call, viewer))
            case SitesCall():
                answer(self._sites())
            case TenantsCall():
                answer(self._tenants())
            case AccountingCall():
                own = msgspec.structs.replace(call, ids=own_ids(call.ids, self._config.federation))
                self._accounting.take(own, answer, viewer)

    def _queue(self, call: QueueCall, viewer: Viewer | None) -> QueueReply:
        ids = own_ids(call.ids, self._config.federation)
        call = msgspec.structs.replace(call, ids=ids, clusters=self._sites_of(call.clusters))
        now_s = self._clock()
        ranks = self._ranks.at(now_s) if call.why else None
        unknown = unknown_ids(self._federation.ledger, call.ids, viewer)
        if call.outcome:
            outcome, failed = outcome_of(self._federation, call, MAX_FAILED_ROWS, viewer)
            return QueueReply(rows=failed, now_s=now_s, unknown=unknown, outcome=outcome)
        is_brief = call.brief and not (call.why or call.files or call.details)
        most = MAX_BRIEF_ROWS if is_brief else MAX_ROWS
        rows, left_off = queue_rows(self._federation, call, most, ranks, viewer)
        return QueueReply(rows=rows, now_s=now_s, left_off=left_off, unknown=unknown, selects=True)

    def _sites_of(self, clusters: tuple[str, ...]) -> tuple[str, ...]:
        """The sites that ``--clusters`` means; none: all of them.

        Raises:
            InvalidRequest: there is no such site, and the federation is not called so.
        """
        known = self._config.sites
        for name in clusters:
            if name not in ("all", self._config.federation) and name not in known:
                raise InvalidRequest(
                    f"No cluster '{name[:64]}' known by federation {self._config.federation}; "
                    f"its sites: {', '.join(known)}"
                )
        return clusters if all(name in known for name in clusters) else ()

    def _ask_agents(
        self,
        call: NodesCall | SignalCall | SnapshotCall | VerifyCall,
        user: str,
        operator: bool,
        answer: Callable[[Reply], None],
    ) -> None:
        if isinstance(call, NodesCall):
            sites = self._sites_of(call.clusters)
            ask_nodes(self._config, self._federation, self.links, sites, answer)
        elif isinstance(call, SignalCall):
            call = msgspec.structs.replace(call, ids=own_ids(call.ids, self._config.federation))
            owner = None if operator else user
            send_signals(self._federation, self.links, call, owner, answer)
        else:
            self._ask_site(call, user, operator, answer)

    def _ask_site(
        self,
        call: SnapshotCall | VerifyCall,
        user: str,
        operator: bool,
        answer: Callable[[Reply], None],
    ) -> None:
        if not operator:
            answer(_not_an_operator(user))
            return
        link = self.links.get(SiteName(call.site))
        if link is None:
            known = ", ".join(self._config.sites)
            raise InvalidRequest(f"unknown site {call.site[:64]!r}; one of {known}")
        if isinstance(call, VerifyCall):
            tenants = self._config.tenants_of(call.user)
            link.questions.ask_proof(call, tenants[0] if tenants else "", answer)
        else:
            link.questions.ask_snapshot(answer)

    def _operate(
        self,
        call: OperatorCall | ReloadCall,
        user: str,
        operator: bool,
        answer: Callable[[Reply], None],
    ) -> None:
        if not operator:
            answer(_not_an_operator(user))
            return
        if isinstance(call, ReloadCall):
            self.reload(call, user, answer)
            return
        client, ledger = self._next_client, self._federation.ledger
        asked = operator_asked(call, user, client, self._config.sites, ledger, self._clock())
        self._client(answer)
        self._observe(asked)

    def _sites(self) -> SitesReply:
        regions = {name: site.region for name, site in self._config.sites.items()}
        return SitesReply(sites=site_rows(self._federation, regions))

    def _status(self) -> StatusReply:
        config = self._config
        return status_reply(
            config.federation,
            config.policy.name,
            self._federation,
            self._sites().sites,
            self._clock(),
        )

    def _tenants(self) -> TenantsReply:
        now_s = self._clock()
        users = {name: tenant.users for name, tenant in self._config.tenants.items()}
        weights = self._config.policy.credit.weights
        rows = tenant_rows(self._federation, users, weights, self._ranks.at(now_s), now_s)
        return TenantsReply(rows=rows, now_s=now_s, policy=self._config.policy.name)

    def reply(self, client: int, reply: Reply) -> None:
        """Hand the core's answer to whom it is for."""
        answer = self._waiting.pop(client, None)
        errors = self._errors.pop(client, ())
        if isinstance(reply, CancelReply | ControlReply):
            reply = msgspec.structs.replace(reply, errors=errors + reply.errors)
        if answer is not None:
            answer(reply)

    def _client(self, answer: Callable[[Reply], None]) -> int:
        client = self._next_client
        self._next_client += 1
        self._waiting[client] = answer
        return client

    def _acting(self, as_user: str, user: str, operator: bool) -> str:
        if not as_user or as_user == user:
            return user
        if not operator:
            raise InvalidRequest(f"--uid: {user} may not act for {as_user}")
        return as_user

    # ---- submissions ----

    def _submit(  # one field a line
        self, call: SubmitCall, user: str, answer: Callable[[Reply], None]
    ) -> None:
        draft = draft_of(call, user, self._config, self._federation.ledger)
        client = self._client(answer)
        key = f"{user}:{call.key}"  # one user's key cannot meet another's
        self._observe(SubmitAsked(client=client, key=key, draft=draft, test_only=call.test_only))

    # ---- cancels ----

    def _cancel(
        self, call: CancelCall, user: str, operator: bool, answer: Callable[[Reply], None]
    ) -> None:
        ids: list[WorkloadId] = []
        errors: list[str] = []
        for wanted in dict.fromkeys(own_ids(call.ids, self._config.federation)):
            found = find(self._federation.ledger, wanted)
            if len(ids) + len(found) > MAX_CANCELS:
                raise InvalidRequest(f"more than {MAX_CANCELS} jobs at once; cancel fewer")
            if not found:
                errors.append(f"Invalid job id specified: {wanted}")
            for id_ in found:
                entry = self._federation.ledger.entries[id_]
                if call.users and entry.workload.user not in call.users:
                    continue
                if entry.workload.user != user and not operator:
                    errors.append(f"Access/permission denied: {wanted} belongs to another user")
                    break
                if entry.state not in TERMINAL:
                    ids.append(id_)
        if not call.ids:
            ids = self._all_of(call, user, operator)
        ids = list(dict.fromkeys(ids))
        client = self._client(answer)
        self._errors[client] = tuple(errors)
        self._observe(CancelAsked(client=client, ids=tuple(ids), by=user))

    def _control(
        self, call: ControlCall, user: str, operator: bool, answer: Callable[[Reply], None]
    ) -> None:
        verb = verb_of(call.verb)
        call = msgspec.structs.replace(call, ids=own_ids(call.ids, self._config.federation))
        ids, errors = jobs_meant(self._federation.ledger, call, None if operator else user)
        if len(ids) > MAX_CANCELS:
            raise InvalidRequest(f"more than {MAX_CANCELS} jobs at once; name fewer")
        amended = (
            updates_of(self._federation, ids, call.fields) if verb is ControlVerb.UPDATE else ()
        )
        client = self._client(answer)
        self._errors[client] = errors
        self._observe(
            ControlAsked(
                client=client,
                verb=verb,
                ids=ids,
                by=user,
                is_operator=operator,
                amended=amended,
            )
        )

    def _all_of(self, call: CancelCall, user: str, operator: bool) -> list[WorkloadId]:
        """Every live workload of the users named; others' only for an operator."""
        users = set(call.users)
        if not operator and users != {user}:
            raise InvalidRequest(f"{user} may cancel only workloads of {user}")
        entries = self._federation.ledger.entries.values()
        return [
            e.workload.id for e in entries if e.state not in TERMINAL and e.workload.user in users
        ]

    # ---- processes on the daemon's host ----

    async def serve(self, path: Path) -> OpenSocket:
        """Listen on the daemon's own socket.

        Raises:
            ConfigError: the path cannot be listened at.
        """
        return await ClientSocket(self._answered).listen(path)

    async def _answered(self, user: str, call: Call) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answer(reply: Reply) -> None:
            if not future.done():
                future.set_result(reply)

        self.take_here(user, call, answer)
        return await future


def _not_an_operator(user: str) -> ErrorReply:
    message = f"{user} is no operator, or not on the daemon's host"
    return ErrorReply(message=message, kind=ErrorKind.DENIED)


def _note_refusal(user: str, call: Call, answer: Callable[[Reply], None], reply: Reply) -> None:
    """Pass an answer on, and say in the log if it is a refusal."""
    if isinstance(reply, ErrorReply):
        log.info("call_refused", user=user, call=type(call).__name__, detail=reply.message)
    answer(reply)
