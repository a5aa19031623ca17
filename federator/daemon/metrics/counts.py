"""Counts what the loop decides, records and waits for, since this daemon began to lead.

It follows: it is called with what has happened, and nothing depends on it. A site, a tenant or a
reason is there with 0 from the start, so that a rate exists before the first event.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, get_args

from federator.daemon.metrics.catalogue import (
    CATALOGUE,
    Collected,
    Distribution,
    MetricType,
    family,
    histogram,
)
from federator.daemon.metrics.data_counts import DataCounts, SiteRegions
from federator.daemon.transition_log import event_name
from federator.model.event import (
    Awarded,
    Changed,
    Claimed,
    ClaimEnded,
    DataSetDropped,
    DataSetKept,
    LogRecord,
    SnapshotRecord,
    Submitted,
)
from federator.model.lifecycle import TERMINAL, WorkloadEvent, WorkloadState
from federator.model.message import (
    AnswerRefused,
    Command,
    Observation,
    SendTo,
    SiteDown,
    SiteSent,
)
from federator.model.reason import ReasonCode
from federator.model.site_message import Ask, BidsMade
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.round import PassSummary
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.shrink import gpus_of

QUOTAS: Final = ("within", "over")
BUDGETS: Final = ("within", "beyond")
OUTCOMES: Final = ("kept", "late", "broken", "withdrawn")
_REASONS: Final = {code: (code.value,) for code in ReasonCode}
_STEPS: Final = {step: (event_name(step),) for step in WorkloadEvent}
_KINDS: Final = {kind: (str(kind.__name__),) for kind in get_args(Observation)}
_RECORDS: Final = {
    kind: (str(kind.__struct_config__.tag),)
    for kind in get_args(LogRecord)
    if kind not in get_args(SnapshotRecord)
}
_ENDS: Final = tuple(sorted(state.value for state in TERMINAL))
_AT_SITES: Final = {
    WorkloadEvent.ACCEPTED: "launches_accepted",
    WorkloadEvent.DECLINED: "launches_declined",
    WorkloadEvent.STARTED: "starts",
}
_NOWHERE: Final = SiteName("")  # of what ended before it was at any site

_Labels = tuple[str, ...]

_COUNTED_ELSEWHERE: Final = frozenset(  # by ``Gauges``
    {
        "federator_start_estimates_judged_total",
        "federator_site_connections_total",
        "federator_lost_gpu_seconds_total",
    }
)


class Counts:
    """The counters and histograms of one term.

    Args:
        ledger: read for what a record does not say itself.
        sites: that are configured.
        now_s: a clock in seconds that never runs backwards.
        regions: returns the region of each site.
    """

    def __init__(
        self,
        ledger: Ledger,
        sites: Iterable[SiteName],
        now_s: float,
        regions: SiteRegions = dict,
    ) -> None:
        self._ledger = ledger
        self._counters: dict[str, dict[_Labels, float]] = {}
        self._seconds: dict[str, dict[_Labels, Distribution]] = {}
        self._bounds: dict[str, tuple[float, ...]] = {}
        for spec in CATALOGUE:
            name = spec.name.removeprefix("federator_")
            if spec.name in _COUNTED_ELSEWHERE:
                continue
            if spec.kind is MetricType.COUNTER:
                name = name.removesuffix("_total")
                self._counters[name] = {} if spec.labels else {(): 0.0}
            elif spec.kind is MetricType.HISTOGRAM:
                name = name.removesuffix("_seconds")
                self._bounds[name] = spec.buckets
                series = self._seconds[name] = {}
                if not spec.labels:
                    series[()] = Distribution(spec.buckets)
        self._pass: PassSummary | None = None
        self._pass_counted = False
        self._asked: dict[SiteName, tuple[int, float]] = {}  # the question that each has open
        self._claims = dict(ledger.claims)
        self._leaving: dict[WorkloadId, float] = {}  # victims, and when they were told to leave
        self._now_s = now_s
        self._data = DataCounts(ledger, self._count, self._have, regions)
        self._begin(sites)

    def _begin(self, sites: Iterable[SiteName]) -> None:
        self._have("observations", _KINDS.values())
        self._have("log_records", _RECORDS.values())
        self._have("refusals", _REASONS.values())
        self._have("steps", _STEPS.values())
        self._have("claims_ended", ((outcome,) for outcome in OUTCOMES))
        for name in ("evictions", "evicted_gpus"):
            self._have(name, ((budget,) for budget in BUDGETS))
        for quota in QUOTAS:
            self._series("wait", (quota,))
        self._have("ended_workloads", ((_NOWHERE, state) for state in _ENDS))
        self.know(sites)

    def know(self, sites: Iterable[SiteName]) -> None:
        """These sites are configured; what was counted of others stays."""
        names = list(sites)
        self._have("denied_calls", ((via,) for via in ("", *names)))
        for name in (
            *("bid_requests", "bids", "bid_timeouts", "launches_accepted", "launches_declined"),
            *("starts", "site_downs"),
        ):
            self._have(name, ((site,) for site in names))
        self._have("awards", ((site, quota) for site in names for quota in QUOTAS))
        self._have("ended_workloads", ((site, state) for site in names for state in _ENDS))
        for site in names:
            self._series("bid", (site,))
        self._data.know()

    def _have(self, name: str, labels: Iterable[_Labels]) -> None:
        series = self._counters[name]
        for each in labels:
            series.setdefault(each, 0.0)

    def _count(self, name: str, labels: _Labels = (), by: float = 1.0) -> None:
        series = self._counters[name]
        series[labels] = series.get(labels, 0.0) + by

    def _series(self, name: str, labels: _Labels = ()) -> Distribution:
        series = self._seconds[name]
        found = series.get(labels)
        if found is None:
            found = series[labels] = Distribution(self._bounds[name])
        return found

    def _took(self, name: str, seconds: float, labels: _Labels = ()) -> None:
        seen = self._series(name, labels)
        seen.counts[bisect_left(seen.bounds, seconds)] += 1
        seen.total += max(0.0, seconds)

    def metrics(self) -> list[Collected]:
        """All of them, as they are now; what is counted later is not in it."""
        counters = [
            family(f"federator_{name}_total", list(series.items()))
            for name, series in self._counters.items()
        ]
        return counters + [
            histogram(f"federator_{name}_seconds", series) for name, series in self._seconds.items()
        ]

    # ---- the loop ----

    def turn_took(self, seconds: float) -> None:
        """A turn is over."""
        self._took("turn", seconds)

    def decided(
        self, observation: Observation, commands: Sequence[Command], last: PassSummary | None
    ) -> None:
        """The core has decided; ``last``: the pass that is open by now, or was the last."""
        self._count("observations", _KINDS[type(observation)])
        if isinstance(observation, SiteSent):
            if isinstance(observation.message, BidsMade):
                self._bids_came(observation.site, observation.message)
        elif isinstance(observation, SiteDown):
            self._count("site_downs", (observation.site,))
            self._asked.pop(observation.site, None)
        for command in commands:
            if isinstance(command, SendTo):
                if isinstance(command.message, Ask):
                    self._asks(command.site, command.message)
            elif isinstance(command, AnswerRefused):
                self._count("submissions_refused")
        if last is not self._pass:
            self._count_pass()  # the one before ended in the meantime
            self._pass, self._pass_counted = last, False
        self._count_pass()

    def denied(self, via: str) -> None:
        """A call was denied that came by this site; "": it was made on the daemon's host."""
        self._count("denied_calls", (via,))

    def turn_begins(self, now_s: float) -> None:
        """The time of what is decided and recorded from now on, by the clock of ``__init__``."""
        self._now_s = now_s

    def recorded(self, events: Sequence[LogRecord], seconds: float) -> None:
        """These are durable, and applied to the ledger; the append took so long."""
        self._took("log_commit", seconds)
        last = {e.workload: number for number, e in enumerate(events) if isinstance(e, Changed)}
        for number, event in enumerate(events):
            self._count("log_records", _RECORDS[type(event)])
            if isinstance(event, Changed):
                self._changed(event, is_last=last[event.workload] == number)
            elif isinstance(event, Submitted):
                self._count("submissions")
                tasks = len(event.draft.array_indices) or 1
                self._count("submitted_workloads", by=tasks)
            elif isinstance(event, Awarded):
                self._awarded(event)
            elif isinstance(event, Claimed):
                if event.workload not in self._claims:
                    self._count("claims_made")
                self._claims[event.workload] = event
            elif isinstance(event, ClaimEnded):
                self._claim_ended(event.workload, "broken")
            elif isinstance(event, DataSetKept | DataSetDropped):
                self._data.recorded(event)

    # ---- passes ----

    def _count_pass(self) -> None:
        """Count a pass once, when it is over; one that was dropped never is."""
        over = self._pass
        if over is not None and over.ended_s and not self._pass_counted:
            self._pass_counted = True
            self._took("pass", over.ended_s - over.began_s)
            self._count("pass_rounds", by=over.rounds)

    def _asks(self, site: SiteName, question: Ask) -> None:
        if site in self._asked:
            self._count("bid_timeouts", (site,))
        self._asked[site] = (question.pass_id, self._now_s)
        self._count("bid_requests", (site,), by=len(question.requests))

    def _bids_came(self, site: SiteName, came: BidsMade) -> None:
        asked = self._asked.get(site)
        if asked is None or asked[0] != came.pass_id:
            return  # too late: it has been counted so
        del self._asked[site]
        self._took("bid", self._now_s - asked[1], (site,))
        refusals = [a.refusal.reasons[0].code for a in came.answers if a.refusal is not None]
        self._count("bids", (site,), by=len(came.answers) - len(refusals))
        for code, times in Counter(refusals).items():
            self._count("refusals", _REASONS[code], by=times)

    # ---- workloads ----

    def _awarded(self, event: Awarded) -> None:
        quota = QUOTAS[0] if event.within_quota else QUOTAS[1]
        self._count("awards", (event.site, quota))
        self._count("steps", _STEPS[WorkloadEvent.AWARDED])
        id_ = event.attempt.workload
        entry = self._ledger.entries.get(id_)
        if entry is not None and event.attempt.attempt == 1:
            self._took("wait", event.at_s - entry.queued_since_s, (quota,))
        claim = self._claims.get(id_)
        if claim is not None:
            self._claim_ended(id_, "kept" if event.at_s <= claim.promised_by_s else "late")

    def _claim_ended(self, id_: WorkloadId, outcome: str) -> None:
        if self._claims.pop(id_, None) is not None:
            self._count("claims_ended", (outcome,))

    def _changed(self, event: Changed, *, is_last: bool) -> None:
        self._count("steps", _STEPS[event.happening])
        if event.failed_nodes or event.happening is WorkloadEvent.NODE_FAILED:
            self._count("node_failures")
        entry = self._ledger.entries.get(event.workload)
        if entry is None:
            return
        if entry.state is not WorkloadState.PENDING:
            self._claim_ended(event.workload, "withdrawn")
        award = entry.award
        mine = award is not None and award.attempt.attempt == event.attempt
        site = SiteName(award.site) if award is not None and mine else _NOWHERE
        if (name := _AT_SITES.get(event.happening)) is not None:
            self._count(name, (site,))
        if event.happening is WorkloadEvent.STARTED and award is not None:
            self._took("launch", event.at_s - award.at_s)
            self._data.started(entry, award)
        self._eviction(event, entry)
        if is_last and entry.state in TERMINAL:
            self._count("ended_workloads", (site, entry.state.value))
            self._data.ended(entry)

    def _eviction(self, event: Changed, entry: WorkloadRecord) -> None:
        """A victim is told to leave, or loses optional jobs; or one that was told is gone."""
        if event.happening in (WorkloadEvent.EVICTED, WorkloadEvent.SHRUNK):
            gpus = entry.held_gpus
            if event.happening is WorkloadEvent.EVICTED:
                self._leaving[event.workload] = event.at_s
            elif entry.award is not None:
                gpus = gpus_of(entry.award.jobs, event.components)
            budget = BUDGETS[1] if event.beyond_budget else BUDGETS[0]
            self._count("evictions", (budget,))
            self._count("evicted_gpus", (budget,), by=gpus)
        elif entry.state is not WorkloadState.PREEMPTING:
            told_at_s = self._leaving.pop(event.workload, None)
            if told_at_s is not None:
                self._took("eviction", event.at_s - told_at_s)
