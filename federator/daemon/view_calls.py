"""Answers the calls that only look: the queue, sites, tenants, accounts and the daemon's status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from federator.config import FederationConfig
from federator.daemon.accounting import AccountingDesk
from federator.daemon.callers import GiveReply
from federator.daemon.doctor_desk import DoctorDesk
from federator.daemon.holdings_view import HoldingsView
from federator.daemon.ids_asked import own_ids
from federator.daemon.site_calls import sites_meant
from federator.daemon.start_forecasts import Helps, StartForecasts
from federator.daemon.status_view import pass_rows, status_reply
from federator.daemon.tenant_views import tenant_rows
from federator.daemon.usage_desk import UsageDesk
from federator.daemon.views import (
    RankView,
    outcome_of,
    queue_rows,
    shown_reason,
    site_rows,
    unknown_ids,
)
from federator.history.service import JobHistory
from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason
from federator.model.viewer import Viewer
from federator.model.workload import WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.passes.spoken import Spoken
from federator.sched.state.ledger import WorkloadRecord
from federator.wire.client_protocol import (
    AccountingCall,
    PassesCall,
    PassesReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SitesCall,
    SitesReply,
    StatusCall,
    StatusReply,
    TenantsCall,
    TenantsReply,
)
from federator.wire.holdings_rows import HoldingsCall, HoldingsReply
from federator.wire.status_rows import LicenseRow
from federator.wire.usage_messages import DoctorCall, UsageCall

MAX_FAILED_ROWS: Final = 10  # with an outcome: enough to see why
MAX_ROWS: Final = 5_000  # of one answer; some 3 MB, twice that with their ranks
MAX_BRIEF_ROWS: Final = 20_000  # of one answer that is brief; some 4 MB

_WAITS: Final = frozenset(
    s.value for s in (WorkloadState.PENDING, WorkloadState.HELD, WorkloadState.INELIGIBLE)
)

ViewCall = (
    QueueCall
    | SitesCall
    | StatusCall
    | TenantsCall
    | AccountingCall
    | UsageCall
    | DoctorCall
    | HoldingsCall
    | PassesCall
)


class ViewCalls:
    """What users are shown.

    Args:
        config: names the tenants and their users.
        federation: read, never changed here.
        clock: returns Unix time.
        history: of what has ended; None: none is kept.

    Attributes:
        starts: estimates of starts; the daemon sets it.
    """

    def __init__(
        self,
        config: FederationConfig,
        federation: Federation,
        clock: Callable[[], float],
        history: JobHistory | None,
    ) -> None:
        self._federation = federation
        self._clock = clock
        self._history = history
        self.starts: StartForecasts | None = None
        self._accounting = AccountingDesk(
            config.federation, federation.ledger, history, clock, self._why_waits
        )
        self._usage = UsageDesk(config, history)
        self._doctor = DoctorDesk(config, history)
        self.reconfigure(config)

    def reconfigure(self, config: FederationConfig) -> None:
        """Answer by this configuration from now on."""
        self._config = config
        policy = config.policy
        weights = policy.credit.weights if policy.order.by_quota else None
        self._ranks = RankView(self._federation, policy.name, weights)
        self._accounting.sites = frozenset(config.sites)
        self._usage.reconfigure(config)
        self._doctor.reconfigure(config)
        self._holdings = HoldingsView(self._federation, by_quota=weights is not None)

    def take(
        self, call: ViewCall, viewer: Viewer | None, answer: GiveReply, user: str = ""
    ) -> None:
        """Take a call of a user; ``viewer``: whose view it is, None for an operator's."""
        match call:
            case QueueCall():
                reply = replace(self._queue(call, viewer), caller=user)
                self._tell_queue(call, reply, answer, user)
            case SitesCall():
                answer(self._sites())
            case StatusCall():
                answer(self._status())
            case TenantsCall():
                answer(replace(self._tenants(), caller=user))
            case PassesCall():
                rows = pass_rows(self._federation)
                answer(PassesReply(passes=rows, now_s=self._clock()))
            case HoldingsCall():
                answer(self._held(call))
            case AccountingCall():
                own = replace(call, ids=own_ids(call.ids, self._config.federation))
                self._accounting.take(own, answer, viewer)
            case UsageCall():
                self._usage.take(call, viewer, answer)
            case DoctorCall():
                self._doctor.take(call, viewer, answer)

    def _status(self) -> StatusReply:
        config = self._config
        found = status_reply(
            config.federation,
            config.policy.name,
            self._federation,
            self._sites().sites,
            self._clock(),
            keep_ended_s=config.log.keep_ended_h * 3600.0,
        )
        if self._history is not None:
            back = self._history.went_back_at_s  # another thread's
            at_s = {name: back.get(name, 0.0) for name in config.sites}
            found = replace(found, job_ids_back={name: t for name, t in at_s.items() if t})
        return found if self.starts is None else replace(found, starts=self.starts.row())

    def _queue(self, call: QueueCall, viewer: Viewer | None) -> QueueReply:
        ids = own_ids(call.ids, self._config.federation)
        call = replace(call, ids=ids, clusters=sites_meant(self._config, call.clusters))
        now_s = self._clock()
        ranks = self._ranks.at(now_s) if call.why else None
        unknown = unknown_ids(self._federation.ledger, call.ids, viewer)
        if call.outcome:
            outcome, failed = outcome_of(self._federation, call, MAX_FAILED_ROWS, viewer)
            return QueueReply(rows=failed, now_s=now_s, unknown=unknown, outcome=outcome)
        is_brief = call.brief and not (call.why or call.files or call.details)
        most = MAX_BRIEF_ROWS if is_brief else MAX_ROWS
        rows, left_off = queue_rows(self._federation, call, most, ranks, viewer)
        if call.starts and self.starts is not None:
            rows = tuple(_with_start(row, self.starts) for row in rows)
        return QueueReply(rows=rows, now_s=now_s, left_off=left_off, unknown=unknown, selects=True)

    def _tell_queue(self, call: QueueCall, reply: QueueReply, answer: GiveReply, user: str) -> None:
        """Answer; of one job that waits also what would help, after that was played."""
        rows, starts = reply.rows, self.starts
        one = call.helps and len(rows) == 1 and rows[0].state == WorkloadState.PENDING.value
        if not one or starts is None:
            answer(reply)
            return

        def tell(found: Helps) -> None:
            row = replace(rows[0], helps=found or (), helps_untried=found is None)
            answer(replace(reply, rows=(row,)))

        starts.try_changes(WorkloadId(rows[0].id), user, tell)

    def _sites(self) -> SitesReply:
        regions = {name: site.region for name, site in self._config.sites.items()}
        used = self._federation.ledger.counts.licenses
        licenses = tuple(
            LicenseRow(name=name, total=total, used=used[name])
            for name, total in sorted(self._federation.rules.licenses.items())
        )
        return SitesReply(sites=site_rows(self._federation, regions), licenses=licenses)

    def _why_waits(self, entry: WorkloadRecord, spoken: Spoken) -> Reason | None:
        return shown_reason(entry, self._federation, spoken)

    def _held(self, call: HoldingsCall) -> HoldingsReply:
        now_s = self._clock()
        meant = sites_meant(self._config, call.clusters) or tuple(self._config.sites)
        return HoldingsReply(sites=self._holdings.at(meant, now_s), now_s=now_s)

    def _tenants(self) -> TenantsReply:
        now_s = self._clock()
        users = {name: tenant.users for name, tenant in self._config.tenants.items()}
        weights = self._config.policy.credit.weights
        rows = tenant_rows(self._federation, users, weights, self._ranks.at(now_s), now_s)
        return TenantsReply(rows=rows, now_s=now_s, policy=self._config.policy.name)


def _with_start(row: QueueRow, starts: StartForecasts) -> QueueRow:
    """A row with its estimate, if it waits for its start."""
    if row.state not in _WAITS:
        return row
    return replace(row, start=starts.of(WorkloadId(row.id)))
