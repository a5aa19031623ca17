"""A federation under load, and the CPU time of each of its decisions.

The daemon's own ``Federation`` and the sites' own ``SiteScheduler``, joined by function calls, in
virtual time. Every GPU is in use and the queue is long when it begins; from then on workloads end
and others come. CPU time is measured around each call of the core: no log, network or process is in
it.

Source:
    MAST sec. 4.2 and 5 for priorities, sizes and run times, as in ``generate.mast_like``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from math import inf
from random import Random
from time import process_time
from typing import Final

from federator.model.draft import Draft
from federator.model.event import Awarded, Changed, EpochBegan, LogRecord, Submitted
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import (
    AnswerSubmitted,
    CancelAsked,
    Command,
    LaunchAt,
    Observation,
    SendTo,
    SiteSent,
    SiteUp,
    SubmitAsked,
    Tick,
)
from federator.model.plan import JobPlan
from federator.model.site import AttemptReport, Node, NodeShare, SiteJobState
from federator.model.site_message import Ask, BidsMade, LaunchAccepted, Report
from federator.model.submission import Submission, pack_submission
from federator.model.tenant import LOWEST_PRIORITY, Allowance, Tenancy, Tenant
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    AttemptId,
    Job,
    SiteName,
    TenantName,
    WorkloadId,
)
from federator.policies.mast import Mast
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.passes.federation import Federation
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from federator.sim.experiments.base import seeded
from federator.sim.generate.mast_like import GPU_SHARES, LEVEL_SHARES, mean_run_time_s

NODE_GPUS: Final = 8
_NODES_PER_RACK: Final = 16
_PARTITION: Final = "gpu"
_GPU_TYPE: Final = "gpu"
_BEGIN_S: Final = 1_000_000.0
_USER: Final = "ada"
_SCRIPT: Final = pack_submission(Submission(components=((),), script="#!/bin/sh\nsrun train\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSize:
    """A point of the study.

    Attributes:
        sites: alike, of nodes with eight GPUs; at least 1.
        gpus: of all sites; a site has at least one node.
        pending: workloads in the queue, from pass to pass.
        per_s: submissions in a second.
    """

    sites: int
    gpus: int
    pending: int
    per_s: float

    @property
    def site_nodes(self) -> int:
        """Nodes of each site."""
        return max(1, round(self.gpus / NODE_GPUS / self.sites))

    @property
    def real_gpus(self) -> int:
        """GPUs that there are: whole nodes at each site."""
        return self.sites * self.site_nodes * NODE_GPUS


class DecisionPart(Enum):
    """What CPU time goes into. All but the last are the daemon's."""

    SUBMISSIONS = "submissions"
    REPORTS = "reports"  # of starts and ends, and answers to orders
    RANKING = "ranking"  # and the first question to the sites
    AWARDS = "awards"  # bids taken in, auction, orders, the questions of later rounds
    BIDS = "bids"  # at the site that needs most


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCosts:
    """One pass, and all that came since the one before it.

    Attributes:
        cpu_s: by part.
        submissions: that came.
        ends: workloads that ended.
        awards: of the pass.
        rounds: of the pass.
        asked: requests that the site with the most of them was asked about.
    """

    cpu_s: dict[DecisionPart, float]
    submissions: int
    ends: int
    awards: int
    rounds: int
    asked: int

    @property
    def pass_s(self) -> float:
        """The daemon's, for the pass alone."""
        return self.cpu_s[DecisionPart.RANKING] + self.cpu_s[DecisionPart.AWARDS]

    @property
    def daemon_s(self) -> float:
        """The daemon's, with all that came since the pass before."""
        return sum(cpu_s for part, cpu_s in self.cpu_s.items() if part is not DecisionPart.BIDS)

    @property
    def bid_s(self) -> float:
        """Of the site that needs most."""
        return self.cpu_s[DecisionPart.BIDS]


class LoadedFleet:
    """All GPUs in use and a queue; it lives from pass to pass.

    Args:
        size: of fleet and queue.
        tenants: at least one for each priority.
        seed: of sizes, tenants, and of who ends.
    """

    def __init__(self, size: FleetSize, tenants: int, seed: int) -> None:
        self.size = size
        names = [SiteName(f"site{k}") for k in range(size.sites)]
        self._draw = seeded(f"{seed}/{size}")
        self._tenants = list(_tenants(tenants, size.real_gpus))
        self._drafts: dict[tuple[int, int], Draft] = {}
        self._sizes = [min(n, size.site_nodes * NODE_GPUS) for n in GPU_SHARES]
        self._size_bounds = list(accumulate(GPU_SHARES.values()))
        self._tenant_bounds = list(accumulate(_tenant_shares(self._tenants)))
        self._now_s = _BEGIN_S
        self._running: list[tuple[SiteName, AttemptId]] = []
        self._queued: list[WorkloadId] = []  # as they came; some have started
        self._pending = self._keys = 0
        self._inbox: deque[Observation] = deque()
        self._costs = dict.fromkeys(DecisionPart, 0.0)
        self._site_costs = dict.fromkeys(names, 0.0)
        self._site_asked = dict.fromkeys(names, 0)
        self._rounds: set[int] = set()
        self._awards = self._submitted = 0
        ledger = Ledger(Tenancy(self._tenants, {}))
        self.federation = Federation(dict.fromkeys(names, (_PARTITION,)), Mast(), Rules(), ledger)
        self._sites = {name: SiteScheduler((_PARTITION,)) for name in names}
        self.federation.replay(self._fill())
        self._connect()
        self._reset()
        self._submit(size.pending)
        self.submit_s = self._costs[DecisionPart.SUBMISSIONS] / size.pending  # CPU time of one
        self._reset()

    # ---- before the first pass ----

    def _fill(self) -> Iterator[LogRecord]:
        """The log of a federation on all of whose nodes something runs."""
        yield EpochBegan(at_s=_BEGIN_S, epoch=1)
        for name, scheduler in self._sites.items():
            nodes = tuple(_nodes(name, self.size.site_nodes))
            scheduler.update(nodes, ())
            for plan in self._plans(nodes):
                id_ = WorkloadId(FIRST_WORKLOAD_ID + len(self._running))
                attempt = AttemptId(workload=id_, attempt=1)
                yield from _started(attempt, self._draft(plan.gpu_types[_GPU_TYPE]), name, plan)
                scheduler.hold(attempt, (plan,))
                self._running.append((name, attempt))

    def _plans(self, nodes: tuple[Node, ...]) -> Iterator[JobPlan]:
        """Jobs that use every GPU of some nodes, one after the other."""
        at, used = 0, 0
        while at < len(nodes):
            left = (len(nodes) - at) * NODE_GPUS - used
            gpus = min(self._gpus(), left)
            if gpus >= NODE_GPUS and used:  # whole nodes: first fill the one that is begun
                gpus = NODE_GPUS - used
            whole = max(1, gpus // NODE_GPUS)
            each = gpus if gpus < NODE_GPUS else NODE_GPUS
            each = min(each, NODE_GPUS - used)
            share = NodeShare(gpus=each, cpus=each)
            names = [node.name for node in nodes[at : at + whole]]
            yield JobPlan(
                name="job",
                partition=_PARTITION,
                nodes=dict.fromkeys(names, share),
                gpu_types={_GPU_TYPE: each * whole},
            )
            used += each
            if used == NODE_GPUS:
                at, used = at + whole, 0

    def _connect(self) -> None:
        """Sites come up and show all that runs there."""
        self.federation.begin_epoch(self._now_s)
        by_site: dict[SiteName, list[AttemptReport]] = {name: [] for name in self._sites}
        for name, attempt in self._running:
            by_site[name].append(_report(attempt, SiteJobState.RUNNING))
        for name, reports in by_site.items():
            self._see(SiteUp(site=name))
            scheduler = self._sites[name]
            complete = Report(
                attempts=tuple(reports),
                complete=True,
                capacity=scheduler.capacity,
                freed=scheduler.freed,
            )
            self._see(SiteSent(site=name, message=complete))

    # ---- what comes ----

    def live(self, lasts_s: float) -> PassCosts:
        """Let some time pass, with ends and submissions in it, and a pass at its end.

        Args:
            lasts_s: virtual seconds, > 0. So much of what runs ends in it: what runs does so for
                MAST's mean run time.
        """
        self._now_s += lasts_s
        due = len(self._running) * lasts_s / mean_run_time_s()
        ends = self._end(int(due) + (self._draw.random() < due % 1))
        self._submit(round(self.size.per_s * lasts_s))
        costs = self._pass(ends)
        self._even_out()
        return costs

    def first_pass(self) -> PassCosts:
        """The pass about the whole queue, while nothing is known of it yet."""
        self._now_s += 1.0
        return self._pass(0)

    def _pass(self, ends: int) -> PassCosts:
        self._see(Tick())
        costs = PassCosts(
            cpu_s={**self._costs, DecisionPart.BIDS: max(self._site_costs.values())},
            submissions=self._submitted,
            ends=ends,
            awards=self._awards,
            rounds=len(self._rounds),
            asked=max(self._site_asked.values()),
        )
        self._reset()
        return costs

    def _reset(self) -> None:
        self._costs = dict.fromkeys(DecisionPart, 0.0)
        self._site_costs = dict.fromkeys(self._sites, 0.0)
        self._site_asked = dict.fromkeys(self._sites, 0)
        self._rounds.clear()
        self._awards = self._submitted = 0

    def _end(self, count: int) -> int:
        """Some of what runs is over; each site tells of its own together."""
        over: dict[SiteName, list[AttemptReport]] = {}
        for _ in range(count):
            at = self._draw.randrange(len(self._running))
            self._running[at], self._running[-1] = self._running[-1], self._running[at]
            name, attempt = self._running.pop()
            self._sites[name].release(attempt)
            over.setdefault(name, []).append(_report(attempt, SiteJobState.COMPLETED, self._now_s))
        for name, reports in over.items():
            self._see(SiteSent(site=name, message=self._report_of(name, reports)))
        return count

    def _report_of(self, site: SiteName, reports: Sequence[AttemptReport]) -> Report:
        return Report(attempts=tuple(reports), freed=self._sites[site].freed)

    def _submit(self, count: int) -> None:
        for k in range(count):
            draft = self._draft(self._gpus())
            self._keys += 1
            self._see(SubmitAsked(client=k, key=str(self._keys), draft=draft))
        self._submitted += count

    def _even_out(self) -> None:
        """Keep the queue as long as it was, uncounted: what came last is cancelled, or more comes.

        Who ends and what starts is drawn, so either happens.
        """
        gone: list[WorkloadId] = []
        while self._queued and self._pending - len(gone) > self.size.pending:
            id_ = self._queued.pop()
            if self.federation.ledger.entries[id_].state is WorkloadState.PENDING:
                gone.append(id_)
        if gone:
            self._see(CancelAsked(client=0, ids=tuple(gone), by=_USER))
            self._pending -= len(gone)
        self._submit(self.size.pending - self._pending)
        self._reset()

    # ---- the federation and its sites ----

    def _see(self, observation: Observation) -> None:
        self._inbox.append(observation)
        while self._inbox:
            news = self._inbox.popleft()
            began_s = process_time()
            commands = self.federation.handle(news, self._now_s)
            self._costs[_part_of(news)] += process_time() - began_s
            for command in commands:
                self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case SendTo(message=Ask() as ask):
                self._bid(command.site, ask)
            case LaunchAt():
                self._launch(command)
            case AnswerSubmitted():
                self._queued.append(command.id)
                self._pending += 1

    def _bid(self, site: SiteName, ask: Ask) -> None:
        scheduler = self._sites[site]
        began_s = process_time()
        scheduler.rank(ask.victims)
        scheduler.expect(ask.predicted_ends, ask.prices, ask.cells)
        answers = scheduler.bid(
            ask.requests,
            self._now_s,
            reserve=ask.reserve,
            reserving=ask.reserving,
            claims=ask.claims,
        )
        self._site_costs[site] += process_time() - began_s
        self._site_asked[site] += len(ask.requests)
        self._rounds.add(ask.pass_id)
        made = BidsMade(pass_id=ask.pass_id, answers=answers, freed=scheduler.freed)
        self._inbox.append(SiteSent(site=site, message=made))

    def _launch(self, order: LaunchAt) -> None:
        """It starts at once."""
        self._sites[order.site].hold(order.attempt, order.jobs)
        self._running.append((order.site, order.attempt))
        self._awards += 1
        self._pending -= 1
        accepted = LaunchAccepted(attempt=order.attempt, site_job_id=1)
        self._inbox.append(SiteSent(site=order.site, message=accepted))
        started = _report(order.attempt, SiteJobState.RUNNING, user=order.workload.user)
        report = self._report_of(order.site, (started,))
        self._inbox.append(SiteSent(site=order.site, message=report))

    # ---- draws ----

    def _gpus(self) -> int:
        return _drawn(self._draw, self._size_bounds, self._sizes)

    def _draft(self, gpus: int) -> Draft:
        """A submission of a drawn tenant; equal ones are one object, as tasks of an array are."""
        row = _drawn(self._draw, self._tenant_bounds, range(len(self._tenants)))
        known = self._drafts.get((row, gpus))
        if known is None:
            tenant = self._tenants[row]
            known = self._drafts[row, gpus] = _draft(tenant, gpus)
        return known


def _drawn(draw: Random, bounds: list[float], values: Sequence[int]) -> int:
    return draw.choices(values, cum_weights=bounds)[0]


def _tenants(count: int, gpus: int) -> Iterator[Tenant]:
    """Of each level at least one; the rest where most workloads are. Their quotas are the fleet."""
    counts = [1] * len(LEVEL_SHARES)
    for _ in range(count - len(counts)):
        crowd = [share / have for share, have in zip(LEVEL_SHARES, counts, strict=True)]
        counts[crowd.index(max(crowd))] += 1
    for level, (share, have) in enumerate(zip(LEVEL_SHARES, counts, strict=True), 1):
        quota = None if level == LOWEST_PRIORITY else Allowance(gpus=round(share * gpus / have))
        for k in range(have):
            yield Tenant(name=TenantName(f"p{level}-{k}"), priority=level, quota=quota)


def _tenant_shares(tenants: Sequence[Tenant]) -> list[float]:
    """Of the workloads, by tenant."""
    counts = Counter(tenant.priority for tenant in tenants)
    return [LEVEL_SHARES[t.priority - 1] / counts[t.priority] for t in tenants]


def _draft(tenant: Tenant, gpus: int) -> Draft:
    each = gpus <= NODE_GPUS
    job = Job(name="job", nodes=1, gpus_per_node=gpus) if each else Job(name="job", gpus=gpus)
    return Draft(
        name="train",
        user=_USER,
        tenant=tenant.name,
        priority=tenant.priority,
        jobs=(job,),
        submission=_SCRIPT,
        time_limit_s=inf,
        requeue=True,
    )


def _nodes(site: str, count: int) -> Iterator[Node]:
    for k in range(count):
        yield Node(
            name=f"{site}-{k}",
            partitions=(_PARTITION,),
            switch=f"{site}-r{k // _NODES_PER_RACK}",
            cpus=8 * NODE_GPUS,
            gpus=NODE_GPUS,
            gpu_type=_GPU_TYPE,
        )


def _started(
    attempt: AttemptId, draft: Draft, site: SiteName, plan: JobPlan
) -> Iterator[LogRecord]:
    """Submitted, awarded, accepted and started."""
    id_ = attempt.workload
    yield Submitted(at_s=_BEGIN_S, draft=draft, first_id=id_, key=f"r{id_}")
    yield Awarded(
        at_s=_BEGIN_S,
        attempt=attempt,
        site=site,
        jobs=(plan,),
        priority=draft.priority,
        within_quota=True,
    )
    for event in (WorkloadEvent.ACCEPTED, WorkloadEvent.STARTED):
        yield Changed(
            at_s=_BEGIN_S,
            workload=id_,
            happening=event,
            attempt=attempt.attempt,
            site_job_id=1,
            started_at_s=_BEGIN_S if event is WorkloadEvent.STARTED else 0.0,
            site_state="RUNNING",
        )


def _report(
    attempt: AttemptId, state: SiteJobState, ended_at_s: float = 0.0, user: str = _USER
) -> AttemptReport:
    return AttemptReport(
        attempt=attempt,
        user=user,
        site_job_id=1,
        state=state,
        started_at_s=_BEGIN_S,
        ended_at_s=ended_at_s,
    )


def _part_of(news: Observation) -> DecisionPart:
    match news:
        case SubmitAsked():
            return DecisionPart.SUBMISSIONS
        case Tick():
            return DecisionPart.RANKING
        case SiteSent(message=BidsMade()):
            return DecisionPart.AWARDS
        case _:
            return DecisionPart.REPORTS
