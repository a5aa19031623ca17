"""Checks what becomes durable in the log: each record is a step that its workload may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from federator.faults.checks.evidence import Array, Evidence, Size
from federator.faults.checks.output_checks import OutputChecks
from federator.faults.checks.size_checks import SizeChecks
from federator.faults.checks.spare_checks import SpareChecks
from federator.faults.checks.wish_checks import WishChecks
from federator.faults.process import later
from federator.model.event import (
    Awarded,
    Changed,
    DataSetKept,
    DrainRecord,
    Planned,
    QuotaLoan,
    SiteDrained,
    SiteReturned,
    SiteWrittenOff,
    Submitted,
    decode_event,
)
from federator.model.lifecycle import TERMINAL, TRANSITIONS, WorkloadEvent, WorkloadState
from federator.model.quota_loan import LoanStep
from federator.model.reason import ReasonCode
from federator.model.site import Node
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.drains import DrainedSites
from federator.sched.state.eligibility import may_not_start

PASS_LASTS_S: Final = 30.0  # at most: sites that are silent are not asked again


class LogChecks:
    """Sees every record that the log holds.

    Args:
        evidence: of this history.
        wishes: checks them at each submission and award.
        outputs: checks what is registered.
    """

    def __init__(self, evidence: Evidence, wishes: WishChecks, outputs: OutputChecks) -> None:
        self._evidence = evidence
        self._sizes, self._spares = SizeChecks(evidence), SpareChecks(evidence)
        self._wishes, self._outputs = wishes, outputs
        self._drains = DrainedSites()
        self.nodes: dict[str, Sequence[Node]] = {}  # of each site
        self.lends = False  # nobody is evicted, and who is over quota is lent GPUs by a forecast
        self.most_saves = 0  # at a time; 0: any number
        self._saving: set[WorkloadId] = set()  # told to make room for others
        self._loans: dict[str, QuotaLoan] = {}  # the last step of each
        self._plans: dict[float, Planned] = {}  # by when each was made, the latest last

    def logged(self, records: Sequence[bytes]) -> None:
        """These are durable now."""
        for record in records:
            event = decode_event(record)
            if isinstance(event, Awarded):
                self._evidence.truth(event.attempt.workload).last_attempt = event.attempt.attempt
                self._moves(event.attempt.workload, WorkloadEvent.AWARDED)
                self._evidence.tell(f"log: {event.attempt} awarded to {event.site}")
                self._goes_where_it_may(event)
                self._is_lent_by_a_plan(event)
                self._wishes.awarded(event)
                self._sizes.awarded(event)
                self._spares.awarded(event)
            elif isinstance(event, QuotaLoan | Planned):
                self._lends(event)
            elif isinstance(event, DrainRecord):
                self._drained(event)
            elif isinstance(event, DataSetKept):
                self._outputs.logged(event)
            elif isinstance(event, Changed):
                self._moves(event.workload, event.happening)
                self._evidence.tell(f"log: {event.workload} {event.happening.value}")
                self._saves(event)
                self._sizes.changed(event)
                if event.happening is WorkloadEvent.CANCEL_ASKED:
                    self._wishes.cancelled(event.workload)
                if event.happening is WorkloadEvent.HELD:
                    self._held(event.workload)
            elif isinstance(event, Submitted):
                self._submitted(event)
                self._wishes.submitted(event)

    def _goes_where_it_may(self, event: Awarded) -> None:
        nodes = [name for plan in event.jobs for name in plan.nodes]
        site = SiteName(event.site)
        if self._drains.of(site, nodes) is not None or site in self._drains.written_off:
            self._evidence.break_(f"{event.attempt} is awarded to {event.site}, which is drained")

    def _is_lent_by_a_plan(self, event: Awarded) -> None:
        """With lending on, nobody starts over quota but by the plan that is in force.

        A pass goes on by the plan with which it began.
        """
        lending, since_s = event.lending, event.at_s - PASS_LASTS_S
        if lending is None:
            if self.lends and not event.within_quota:
                self._evidence.break_(f"{event.attempt} is over quota, and nothing was lent to it")
            return
        self._evidence.counts["lent"] += 1
        planned = self._plans.get(lending.planned_at_s)
        if (
            planned is None
            or not planned.plan.holds(since_s)
            # By the log's time: the planner's clock may have been set back.
            or any(planned.at_s < each.at_s < since_s for each in self._plans.values())
        ):
            self._evidence.break_(f"{event.attempt} is lent GPUs by a plan that is not in force")

    def _lends(self, event: QuotaLoan | Planned) -> None:
        """No quota is lent but after its notice, nor where quotas are not to be lent."""
        if isinstance(event, Planned):
            self._plans[event.plan.made_at_s] = event
            return
        last = self._loans.get(event.tenant)
        self._loans[event.tenant] = event
        self._evidence.tell(f"log: quota of {event.tenant} {event.step.value}")
        if not self.lends:
            self._evidence.break_(f"the quota of {event.tenant} is {event.step.value}")
        if event.step is not LoanStep.LENT:
            return
        self._evidence.counts["quotas lent"] += 1
        if last is None or last.step is not LoanStep.NOTICED or event.at_s < last.lends_at_s:
            self._evidence.break_(f"the quota of {event.tenant} is lent before its notice is over")

    def _drained(self, event: DrainRecord) -> None:
        self._drains.apply(event)
        self._evidence.tell(f"log: {event.site}: {type(event).__name__}")
        if isinstance(event, SiteWrittenOff):
            for each in event.attempts:
                self._evidence.truth(each.attempt.workload).given_up.add(each.attempt)
        if isinstance(event, SiteReturned):
            self._evidence.tell("a site returns")
        if isinstance(event, SiteDrained) and event.deadline_s:
            later(max(0.0, event.deadline_s - self._evidence.clock()), self._count_left, event)

    def _count_left(self, drain: SiteDrained) -> None:
        """Whoever is left after a deadline is counted only: its site may have been away.

        ``tests/property/test_drain_laws.py`` has histories in which nothing is an excuse.
        """
        if self._drains.by_site.get(drain.site) != drain:
            return
        runs = [run for truth in self._evidence.truths.values() for run in truth.runs]
        left = [run for run in runs if run.site == drain.site and run.ended is None]
        self._evidence.counts["drains with a deadline"] += 1
        self._evidence.counts["left after a deadline"] += len(left)
        for run in left:
            self._evidence.tell(f"{run.site}: {run.attempt} is left after the deadline of a drain")

    def _submitted(self, event: Submitted) -> None:
        self._evidence.tell(f"log: submitted {event.first_id}")
        self._evidence.counts["het jobs"] += len(event.draft.jobs) > 1
        for workload in event.workloads():
            truth = self._evidence.truth(workload.id)
            truth.needs = Size.needed(workload.jobs)
            if may_not_start(event):
                truth.state = WorkloadState.INELIGIBLE
        if event.draft.array_indices:
            self._evidence.counts["arrays"] += 1
            array = Array(
                id=event.first_id,
                indices=event.draft.array_indices,
                max_running=event.draft.array_max_running,
            )
            self._evidence.arrays |= dict.fromkeys(array.tasks, array)

    def _held(self, id_: WorkloadId) -> None:
        self._evidence.counts["held"] += 1
        truth = self._evidence.truth(id_)
        excluded = truth.script.exclude if truth.script is not None else ""
        for site, nodes in self.nodes.items():
            size = Size.of([node for node in nodes if node.name != excluded])
            fits = truth.needs is None or size.holds(truth.needs)
            if fits and truth.may_run_at(site) and site not in truth.refused_at:
                self._evidence.break_(f"{id_} is held, and {site} has not refused it")

    def _saves(self, event: Changed) -> None:
        """Of those who leave for others, no more save at a time than may."""
        truths = self._evidence.truths
        self._saving = {
            id_ for id_ in self._saving if truths[id_].state is WorkloadState.PREEMPTING
        }
        reason = event.reason
        codes = (ReasonCode.PREEMPTED, ReasonCode.MOVED)
        if event.happening is not WorkloadEvent.EVICTED or reason is None or not reason.detail:
            return
        if reason.code not in codes:
            return
        self._saving.add(event.workload)
        self._evidence.counts["evicted for others"] += 1
        self._evidence.counts["moved for others"] += reason.code is ReasonCode.MOVED
        self._evidence.counts["evicted while others saved"] += len(self._saving) > 1
        if self.most_saves and len(self._saving) > self.most_saves:
            self._evidence.break_(f"{len(self._saving)} save at a time, {event.workload} the last")

    def _moves(self, id_: WorkloadId, event: WorkloadEvent) -> None:
        truth = self._evidence.truth(id_)
        if truth.state in TERMINAL:
            self._evidence.break_(f"{id_} has ended, {truth.state.value}, and is {event.value}")
        elif event is WorkloadEvent.AWARDED and truth.state is WorkloadState.INELIGIBLE:
            self._evidence.break_(f"{id_} may not start yet, and is awarded")
        elif (truth.state, event) in TRANSITIONS:
            truth.state = TRANSITIONS[truth.state, event].to
