"""What would the federation itself have done? Its own code, with simulated sites, in virtual time.

Each pool is a site, and a tenant whose quota is the pool. ``Federation.handle`` and
``SiteScheduler`` are those of daemon and agent; between them are function calls. A launch starts
at once, and a job ends after its recorded duration.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from federator.errors import FederatorError
from federator.model.event import Draft
from federator.model.message import (
    AnswerSubmitted,
    AskSite,
    BidsCame,
    LaunchAt,
    LaunchConfirmed,
    Observation,
    Request,
    SiteReported,
    SiteUp,
    SubmitAsked,
    Tick,
    Wake,
)
from federator.model.site import AttemptReport, Node, SiteJobState
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import AttemptId, Job, SiteName, Submission, TenantName, WorkloadId
from federator.sched.federation import Federation
from federator.sched.ledger import Ledger
from federator.sched.policy import Policy
from federator.sched.rules import Rules
from federator.sched.site_scheduler import SiteScheduler
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePool

PARTITION = "gpu"
NODES_PER_RACK = 16  # a trace does not say it
TENANT_PRIORITY = 4  # where most workloads are (MAST sec. 4.2)
_BEGIN_S = 1_000_000.0  # of virtual time; the trace's clock begins here
_SCRIPT = Submission(components=((),), script="")


@dataclass(slots=True)
class _Site:
    """One pool, as its agent would see it."""

    scheduler: SiteScheduler
    running: dict[AttemptId, float] = field(default_factory=dict)  # when each has started


class Fleet:
    """A federation and its sites, and the trace that they get.

    Args:
        trace: pools and jobs.
        policy: ranks the queue.
        rules: of the federation.
        options: of the replay.
    """

    def __init__(self, trace: Trace, policy: Policy, rules: Rules, options: ReplayOptions) -> None:
        self._trace = trace
        self._options = options
        self._timetable = Timetable.of(trace)
        self._now_s = _BEGIN_S
        self._inbox: deque[Observation] = deque()
        self._wakes: list[float] = []
        self._ends: list[tuple[float, int, AttemptId, SiteName]] = []
        self._row_of: dict[WorkloadId, int] = {}
        names = [SiteName(pool.name) for pool in trace.pools]
        tenants = [
            Tenant(name=TenantName(pool.name), priority=TENANT_PRIORITY,
                   quota=Allowance(gpus=pool.gpus), limit=Allowance())
            for pool in trace.pools
        ]  # fmt: skip
        ledger = Ledger(Tenancy(tenants, {}))
        sites: dict[SiteName, tuple[str, ...]] = dict.fromkeys(names, (PARTITION,))
        self._federation = Federation(sites, policy, rules, ledger)
        self._sites = {name: _Site(SiteScheduler((PARTITION,))) for name in names}

    def run(self) -> Timetable:
        """Replay the whole trace.

        Raises:
            FederatorError: jobs wait and nothing is to come; that would be a fault of ours.
        """
        self._federation.begin_epoch(self._now_s)
        for pool in self._trace.pools:
            site = SiteName(pool.name)
            scheduler = self._sites[site].scheduler
            scheduler.update(nodes_of(pool), ())
            self._see(SiteUp(site=site))
            self._see(SiteReported(site=site, complete=True, capacity=scheduler.capacity))
        order = self._trace.in_order()
        at = 0
        while at < len(order) or self._ends:
            self._now_s = self._next_s(order, at)
            self._end_what_ends()
            while at < len(order) and self._arrival_s(order[at]) <= self._now_s:
                self._submit(order[at])
                at += 1
            self._tick()
        self._check_all_ended()
        return self._timetable

    def _arrival_s(self, row: int) -> float:
        return _BEGIN_S + self._trace.submit_s[row]

    def _next_s(self, order: Sequence[int], at: int) -> float:
        times = [self._arrival_s(order[at])] if at < len(order) else []
        times += [self._ends[0][0]] if self._ends else []
        times += [self._wakes[0]] if self._wakes else []
        return max(self._now_s, min(times))

    def _tick(self) -> None:
        while self._wakes and self._wakes[0] <= self._now_s:
            while self._wakes and self._wakes[0] <= self._now_s:
                heapq.heappop(self._wakes)
            self._see(Tick())

    # ---- jobs ----

    def _submit(self, row: int) -> None:
        trace = self._trace
        pool = trace.pools[trace.pool[row]]
        wanted = Draft(
            name=trace.job_id[row],
            user=trace.user[row] or "user",
            tenant=TenantName(pool.name),
            priority=TENANT_PRIORITY,
            jobs=(job_of(trace, row),),
            submission=_SCRIPT,
            time_limit_s=inf,  # a trace says none
            requeue=True,
        )
        self._see(SubmitAsked(client=row, key=str(row), draft=wanted))

    def _end_what_ends(self) -> None:
        while self._ends and self._ends[0][0] <= self._now_s:
            _, _, attempt, name = heapq.heappop(self._ends)
            site = self._sites[name]
            started_at_s = site.running.pop(attempt)
            site.scheduler.release(attempt)
            row = self._row_of[attempt.workload]
            self._timetable.start_s[row] = int(started_at_s - _BEGIN_S)
            self._timetable.end_s[row] = int(self._now_s - _BEGIN_S)
            self._timetable.site[row] = name
            self._report(name, attempt, SiteJobState.COMPLETED, started_at_s, self._now_s)
            self._options.progress(1)

    def _report(
        self, site: SiteName, attempt: AttemptId, state: SiteJobState, started_at_s: float,
        ended_at_s: float = 0.0,
    ) -> None:  # fmt: skip
        user = self._trace.user[self._row_of[attempt.workload]] or "user"
        told = AttemptReport(
            attempt=attempt, user=user, site_job_id=1, state=state, started_at_s=started_at_s,
            ended_at_s=ended_at_s,
        )  # fmt: skip
        self._see(SiteReported(site=site, attempts=(told,)))

    def _check_all_ended(self) -> None:
        ended = sum(end_s > 0 for end_s in self._timetable.end_s)
        if ended < len(self._trace):
            raise FederatorError(f"{len(self._trace) - ended} jobs of the trace never ran")

    # ---- the federation ----

    def _see(self, observation: Observation) -> None:
        self._inbox.append(observation)
        if len(self._inbox) > 1:
            return  # the loop below is already under way
        while self._inbox:
            for command in self._federation.handle(self._inbox[0], self._now_s):
                match command:
                    case Wake():
                        heapq.heappush(self._wakes, command.at_s)
                    case AskSite():
                        self._bid(command)
                    case LaunchAt():
                        self._launch(command)
                    case AnswerSubmitted():
                        self._row_of[command.id] = command.client
                    case _:
                        pass
            self._inbox.popleft()

    def _bid(self, ask: AskSite) -> None:
        answers = self._sites[ask.site].scheduler.bid(
            map(Request.bid_request, ask.requests),
            self._now_s,
            reserve=ask.reserve.bid_request() if ask.reserve is not None else None,
            reserving=ask.reserving,
        )
        self._inbox.append(BidsCame(site=ask.site, pass_id=ask.pass_id, answers=answers))

    def _launch(self, order: LaunchAt) -> None:
        site, attempt = self._sites[order.site], order.attempt
        if self._options.audit and (taken := site.scheduler.holds(order.jobs)) is not None:
            raise FederatorError(f"{order.site}: {taken.detail}, and is launched on again")
        site.scheduler.hold(attempt, order.jobs)
        site.running[attempt] = self._now_s
        row = self._row_of[order.workload.id]
        ends_at_s = self._now_s + self._trace.duration_s[row]
        heapq.heappush(self._ends, (ends_at_s, row, attempt, order.site))
        self._inbox.append(LaunchConfirmed(site=order.site, attempt=attempt, site_job_id=1))
        self._report(order.site, attempt, SiteJobState.RUNNING, self._now_s)


def nodes_of(pool: TracePool) -> tuple[Node, ...]:
    """A pool's nodes in racks; a CPU for each GPU, and one more for jobs without any."""
    return tuple(
        Node(
            name=f"{pool.name}-{k}", partitions=(PARTITION,),
            switch=f"{pool.name}-r{k // NODES_PER_RACK}", cpus=max(1, 2 * pool.gpus_per_node),
            gpus=pool.gpus_per_node, gpu_type="gpu",
        )
        for k in range(pool.nodes)
    )  # fmt: skip


def job_of(trace: Trace, row: int) -> Job:
    """A job on as few nodes of its own pool's size as hold its GPUs."""
    gpus, each = trace.gpus[row], trace.pools[trace.pool[row]].gpus_per_node
    if gpus <= each:
        return Job(name="job", nodes=1, gpus_per_node=gpus)
    return Job(name="job", gpus=gpus)
