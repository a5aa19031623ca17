"""Lives through the attempts at simulated sites: they start, save and leave, fail, or end."""

from __future__ import annotations

from math import isfinite
from typing import Final

from federator.errors import FederatorError
from federator.model.lifecycle import AT_SITE, WorkloadState
from federator.model.message import LaunchAt, PreemptAt, SiteSent
from federator.model.site import AttemptReport, Leave, SiteJobState
from federator.model.site_message import AttemptAbsent, CancelOrder, LaunchAccepted, Report
from federator.model.workload import SiteName
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules
from federator.sim.failures import SimEventKind, Stage
from federator.sim.job_records import JobRecords
from federator.sim.physics import Physics
from federator.sim.site_state import SimulatedAttempt
from federator.sim.trace import ReplayOptions

LEAVES_IN_S: Final = 30.0  # what is on its way out when a simulation begins


class SimulatedAttempts:
    """Each attempt from its launch to its end.

    Args:
        stage: where it happens.
        records: of what becomes of the arrivals.
        rules: of the federation.
        physics: of the sites.
        options: of the replay.
    """

    def __init__(
        self,
        stage: Stage,
        records: JobRecords,
        rules: Rules,
        physics: Physics,
        options: ReplayOptions,
    ) -> None:
        self._stage, self._records = stage, records
        self._physics, self._options = physics, options
        self._tracked = rules.evicts or rules.forecast_ends

    def launch(self, order: LaunchAt) -> None:
        """Start it, or have it wait for its victims; orders may be repeated."""
        site = self._stage.sites[order.site]
        if order.attempt in site.attempts:
            return  # the order was repeated
        if self._options.audit and (taken := site.scheduler.holds(order.jobs, order.victims)):
            raise FederatorError(f"{order.site}: {taken.detail}, and is launched on again")
        attempt = site.take(order)
        self._records.launched(order.workload.id)
        accepted = LaunchAccepted(attempt=order.attempt, site_job_id=1)
        self._stage.see(SiteSent(site=order.site, message=accepted))
        if attempt in site.can_start():
            self._start(attempt)

    def _start(self, attempt: SimulatedAttempt) -> None:
        order, stage, physics = attempt.order, self._stage, self._physics
        id_, records = order.workload.id, self._records
        attempt.speed = records.speed(attempt)
        tracked = self._tracked or isfinite(order.workload.time_limit_s)
        stage.sites[order.site].start(attempt, stage.now_s, tracked=tracked)
        startup_s = physics.startup_s(self._options.seed, records.index(id_), order.attempt.attempt)
        restore_s = physics.restore_s if records.has_saved(id_) else 0.0
        attempt.works_from_s = stage.now_s + startup_s + restore_s
        if self._options.audit and (node := stage.sites[order.site].overused()):
            raise FederatorError(f"{order.site}: more runs on node {node} than it has")
        records.started(id_, order.site, stage.now_s)
        self._will_end(attempt)
        self._report(attempt, SiteJobState.RUNNING)

    def _will_end(self, attempt: SimulatedAttempt) -> None:
        """By itself, if nobody ends it before."""
        workload = attempt.order.workload
        limit_s = attempt.started_at_s + workload.time_limit_s
        ends_at_s = attempt.works_from_s + self._records.left_s(workload.id) / attempt.speed
        state = SiteJobState.COMPLETED if ends_at_s <= limit_s else SiteJobState.TIMEOUT
        at_s = min(ends_at_s, limit_s)
        self._stage.later(at_s, SimEventKind.END, lambda: self._end(attempt, state))

    # ---- those that are there when it begins ----

    def found(self, ledger: Ledger) -> dict[SiteName, tuple[AttemptReport, ...]]:
        """Take in what the ledger has at the sites, and give what each site tells of it."""
        here: dict[SiteName, list[AttemptReport]] = {name: [] for name in self._stage.sites}
        for entry in ledger.in_state(*AT_SITE):
            if entry.site in here:
                here[entry.site].append(self._found(entry))
        return {name: tuple(reports) for name, reports in here.items()}

    def _found(self, entry: WorkloadRecord) -> AttemptReport:
        """One that has not started yet starts now; one on its way out is gone soon."""
        now_s, id_ = self._stage.now_s, entry.workload.id
        order = LaunchAt(
            site=entry.site, attempt=entry.attempt_id, workload=entry.workload, jobs=entry.plan
        )
        site = self._stage.sites[entry.site]
        attempt = site.take(order)
        attempt.site_job_id = entry.site_job_id or attempt.site_job_id
        self._records.launched(id_)
        attempt.speed = self._records.speed(attempt)
        site.start(attempt, entry.started_at_s or now_s, tracked=True)
        attempt.works_from_s = now_s
        self._records.started(id_, entry.site, now_s)
        if entry.state is WorkloadState.PREEMPTING:
            attempt.leaves_at_s = now_s + LEAVES_IN_S
            self._stage.later(
                attempt.leaves_at_s, SimEventKind.LEAVE, lambda: self._leave(attempt, 0.0, 0.0)
            )
        elif entry.state is WorkloadState.CANCELLING:
            gone_s, state = now_s + LEAVES_IN_S, SiteJobState.CANCELLED
            self._stage.later(gone_s, SimEventKind.END, lambda: self._end(attempt, state))
        else:
            self._will_end(attempt)
        return self._attempt_report(attempt, SiteJobState.RUNNING)

    def _end(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        """It ends by itself; nothing happens if it has gone before."""
        order = attempt.order
        if self._stage.sites[order.site].attempts.get(order.attempt) is attempt:
            self._records.life(order.workload.id).timed_out = state is SiteJobState.TIMEOUT
            if state is SiteJobState.COMPLETED:
                self._records.completed(attempt)
            self._over_with(attempt, state)

    def _over_with(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        self._records.ended(attempt.order.workload.id, self._stage.now_s)
        self._gone(attempt, state)

    def preempt(self, order: PreemptAt) -> None:
        """It saves and leaves, at its deadline at the latest; orders may be repeated."""
        attempt = self._stage.sites[order.site].attempts.get(order.attempt)
        if attempt is None or isfinite(attempt.leaves_at_s):
            return
        now_s = self._stage.now_s
        saves = self._physics.save_s <= order.grace_s
        done_s = self._records.done_s(attempt, now_s)
        attempt.leaves_at_s = now_s + min(self._physics.save_s, order.grace_s)
        kept_s = done_s if saves else self._physics.kept_s(done_s)
        if attempt.order.workload.elastic is not None:  # of others nothing is told
            saved_at_s = attempt.leaves_at_s if saves else 0.0
            attempt.leave = Leave(told_at_s=now_s, saved_at_s=saved_at_s, forced=not saves)
        self._stage.later(
            attempt.leaves_at_s, SimEventKind.LEAVE, lambda: self._leave(attempt, done_s, kept_s)
        )

    def _leave(self, attempt: SimulatedAttempt, done_s: float, kept_s: float) -> None:
        order = attempt.order
        if self._stage.sites[order.site].attempts.get(order.attempt) is attempt:
            self._records.life(order.workload.id).preemptions += 1
            self._stop(attempt, done_s, kept_s, SiteJobState.CANCELLED)

    def break_off(self, attempt: SimulatedAttempt) -> None:
        """Its node fails: what it has not saved by itself is lost."""
        if attempt.started_at_s < 0:
            return
        done_s = self._records.done_s(attempt, self._stage.now_s)
        if attempt.order.workload.requeue:
            self._stop(attempt, done_s, self._physics.kept_s(done_s), SiteJobState.NODE_FAIL)
        else:
            life = self._records.life(attempt.order.workload.id)
            life.failed = True
            life.lost_gpu_s += done_s / attempt.speed * attempt.gpus
            self._over_with(attempt, SiteJobState.NODE_FAIL)

    def _stop(
        self, attempt: SimulatedAttempt, done_s: float, kept_s: float, state: SiteJobState
    ) -> None:
        """It goes back to the queue with what it has saved."""
        self._records.requeued(attempt, done_s, kept_s)
        self._gone(attempt, state)

    def _gone(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        site = self._stage.sites[attempt.order.site]
        site.remove(attempt.order.attempt)
        if attempt.started_at_s >= 0:
            self._records.left_site(attempt, self._stage.now_s)
        self._report(attempt, state)
        self._stage.came_free(attempt.order.site)

    def start_what_can(self, name: SiteName) -> None:
        """Who waited for others to leave, or for a node, and needs to no more."""
        for waited in self._stage.sites[name].can_start():
            self._start(waited)

    def cancel(self, site: SiteName, order: CancelOrder) -> None:
        """Only the federation's own withdrawals: a launched job whose node failed meanwhile."""
        attempt = self._stage.sites[site].attempts.get(order.attempt)
        if attempt is None:
            self._stage.see(SiteSent(site=site, message=AttemptAbsent(attempt=order.attempt)))
        elif attempt.started_at_s < 0:
            self._stop(attempt, 0.0, 0.0, SiteJobState.CANCELLED)

    def _report(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        name = attempt.order.site
        site = self._stage.sites[name]
        news = Report(
            attempts=(self._attempt_report(attempt, state),),
            partitions=self._stage.usage_of(site),
            freed=site.scheduler.freed,
        )
        self._stage.see(SiteSent(site=name, message=news))

    def _attempt_report(self, attempt: SimulatedAttempt, state: SiteJobState) -> AttemptReport:
        order = attempt.order
        return AttemptReport(
            attempt=order.attempt,
            user=order.workload.user,
            site_job_id=attempt.site_job_id,
            state=state,
            started_at_s=max(0.0, attempt.started_at_s),
            ended_at_s=self._stage.now_s if state.ended else 0.0,
            leave=attempt.leave if state is SiteJobState.CANCELLED else None,
        )
