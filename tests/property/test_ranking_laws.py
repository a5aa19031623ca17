"""Laws of the ranking, for every tenancy, queue and history; and the fast one against a naive one.

All amounts of use are whole numbers of GPU-seconds or halves, so that sums are exact whatever
their order, and "equal" below means equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federator.model.event import Awarded
from federator.model.lifecycle import AT_SITE, WorkloadState
from federator.model.message import Command, Record
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import Job, TenantName, Workload, WorkloadId
from federator.policies.mast import Mast
from federator.sched.queue.quota_status import quota_statuses
from federator.sched.queue.ranked import Ranked
from federator.sched.queue.ranking import CreditRanking
from federator.sched.state.backlog import Backlog
from federator.sched.state.credit import CreditWeights, usage_shares
from federator.sched.state.holdings import Charge, Holdings
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from federator.sched.state.usage import BUCKETS, DecayedAverage, UsageAverage, WindowAverage
from tests.fakes.build import draft, gang, rack, workload
from tests.fakes.loopback import LATENCY_S, Loopback
from tests.fakes.naive_rank import Held, ancestry, bounds, held_of, naive_rank, request

HOUR_S = 3600.0
NOW_S = 30 * HOUR_S
TYPES = ("a100", "h100")
NAMES = ("ant", "bee", "cat", "dog", "elk")
STRANGERS = ("fox", "gnu")  # that no configuration names


def quick(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


# ---- what is drawn ----

amounts = st.one_of(st.just(inf), st.integers(0, 40))
allowances = st.builds(
    Allowance,
    gpus=amounts,
    cpus=amounts,
    gpu_types=st.dictionaries(st.sampled_from(TYPES), st.integers(0, 24), max_size=2),
)
quotas = st.one_of(st.none(), allowances, allowances)


@st.composite
def tenancies(draw: st.DrawFn, flat: bool = False) -> list[Tenant]:
    """Up to five tenants in any order, each perhaps below one named before it."""
    names = NAMES[: draw(st.integers(0, len(NAMES)))]
    tenants = []
    for k, name in enumerate(names):
        above = [None, *names[:k]]
        parent = None if flat else draw(st.sampled_from(above))
        tenants.append(
            Tenant(
                name=TenantName(name),
                priority=draw(st.integers(1, 7)),
                quota=draw(quotas),
                parent=None if parent is None else TenantName(parent),
            )
        )
    return draw(st.permutations(tenants))


jobs = st.builds(
    Job,
    name=st.just("train"),
    nodes=st.sampled_from((None, 1, 2)),
    gpus_per_node=st.sampled_from((0, 0, 1, 2, 4, 8)),
    cpus_per_node=st.sampled_from((0, 1, 3)),
    cpus=st.sampled_from((0, 0, 5)),
    gpu_types=st.sampled_from(((), ("h100",), ("a100",), ("a100", "h100"), ("b200",))),
)


@dataclass(frozen=True)
class Drawn:
    """A workload without an id."""

    tenant: str
    hour: float
    asked_priority: int
    nice: int
    no_preempt: bool
    jobs: tuple[Job, ...]

    def numbered(self, number: int) -> Workload:
        plain = workload(
            number,
            *self.jobs,
            tenant=self.tenant,
            submitted_at_s=self.hour * HOUR_S,
            asked_priority=self.asked_priority,
            nice=self.nice,
        )
        return replace(plain, no_preempt=self.no_preempt)


def drawn(asked: Sequence[int] = (1, 1, 1, 2, 4, 7)) -> st.SearchStrategy[Drawn]:
    return st.builds(
        Drawn,
        tenant=st.sampled_from(NAMES + STRANGERS),
        hour=st.sampled_from((0, 0.5, 1, 2, 2, 2, 2.25, 20, 29, 30)),
        asked_priority=st.sampled_from(asked),
        nice=st.sampled_from((0, 0, 0, 1, 100, 2400)),
        no_preempt=st.sampled_from((False, False, False, True)),
        jobs=st.one_of(st.tuples(jobs), st.tuples(jobs, jobs)),
    )


def numbered(queue: Iterable[Drawn]) -> list[Workload]:
    return [d.numbered(k) for k, d in enumerate(queue)]


queues = st.lists(drawn(), max_size=20).map(numbered)
helds = st.builds(
    Held,
    tenant=st.sampled_from(NAMES + STRANGERS),
    gpus=st.integers(0, 20),
    cpus=st.integers(0, 20),
    gpu_types=st.dictionaries(st.sampled_from(TYPES), st.integers(0, 10), max_size=2),
    within_quota=st.booleans(),
)
holds = st.lists(helds, max_size=4)
weights = st.builds(
    CreditWeights,
    per_hour_waited=st.sampled_from((0.0, 0.1, 1.0, 3.7)),
    age_cap_h=st.sampled_from((0.0, 1.5, 9.9, 168.0)),
    fair_share=st.sampled_from((0.0, 1.0, 24.0, 100.3)),
    per_nice=st.sampled_from((0.0, 0.01, 1.0)),
    non_preemptible=st.sampled_from((0.0, 0.3, 2.0)),
)
uses = st.dictionaries(st.sampled_from(NAMES + STRANGERS), st.integers(0, 1000))


# ---- both rankings ----


def filled(tenants: Sequence[Tenant], queue: Iterable[Workload]) -> Backlog:
    backlog = Backlog(Tenancy(tenants))
    for waiting in queue:
        backlog.add(waiting)
    return backlog


def holdings_of(tenancy: Tenancy, held: Iterable[Held]) -> Holdings:
    holdings = Holdings(tenancy, WindowAverage(HOUR_S))
    for h in held:
        holdings.add(charge_of(tenancy, h), within_quota=h.within_quota, at_s=0.0)
    return holdings


def charge_of(tenancy: Tenancy, h: Held) -> Charge:
    amounts = tenancy.resources.amounts(h.gpus, h.cpus, h.gpu_types)
    return Charge(
        row=tenancy.row(TenantName(h.tenant)), amounts=amounts, weighted_gpus=float(h.gpus)
    )


@dataclass(frozen=True)
class Case:
    """One queue at one instant."""

    tenants: list[Tenant]
    queue: list[Workload]
    held: list[Held] = field(default_factory=list)
    used: dict[str, float] = field(default_factory=dict)
    weighed: CreditWeights = CreditWeights()

    def ranking(self) -> CreditRanking:
        backlog = filled(self.tenants, self.queue)
        tenancy = backlog.tenancy
        holdings = holdings_of(tenancy, self.held)
        rows = {name: tenancy.row(TenantName(name)) for name in self.used}
        averages = np.zeros(len(tenancy))
        for name, row in rows.items():
            averages[row] = self.used[name]
        return CreditRanking(backlog, holdings, self.weighed, NOW_S, averages)

    def naive(self) -> list[Ranked]:
        used = {TenantName(name): average for name, average in self.used.items()}
        return naive_rank(self.tenants, self.queue, self.held, used, self.weighed, NOW_S)

    def with_(self, old: Workload, new: Workload) -> Case:
        return replace(self, queue=[new if w is old else w for w in self.queue])

    def order(self) -> list[WorkloadId]:
        return [r.id for r in self.ranking()]

    def standing(self, id_: WorkloadId) -> tuple[int, float]:
        """Smaller is better."""
        (found,) = (r for r in self.ranking() if r.id == id_)
        return found.priority, -found.credit


cases = st.builds(Case, tenancies(), queues, holds, uses, weights)
some = st.builds(Case, tenancies(), queues.filter(bool), holds, uses, weights)
undemoted = st.lists(drawn((1,)), min_size=1, max_size=20).map(numbered)
flat = st.builds(Case, tenancies(flat=True), undemoted, holds, uses, weights)


@quick(800)
@given(cases)
def test_one_by_one_or_at_once_the_ranking_is_that_of_the_naive_reference(case: Case) -> None:
    ranking, naive = case.ranking(), case.naive()
    assert list(ranking) == naive
    assert list(ranking.listed()) == naive
    assert list(ranking) == naive  # again


@quick(200)
@given(tenancies(), st.lists(drawn((1,)), min_size=30, max_size=60).map(numbered), weights)
def test_a_long_queue_of_few_shapes_is_ranked_as_by_the_naive_reference(
    tenants: list[Tenant], queue: list[Workload], weighed: CreditWeights
) -> None:
    few = [replace(w, jobs=(gang(1, (1, 4)[w.id % 2]),), nice=0, no_preempt=False) for w in queue]
    case = Case(tenants, few, weighed=weighed)
    assert list(case.ranking()) == list(case.ranking().listed()) == case.naive()


# ---- laws of one ranking ----


@quick(200)
@given(cases, st.data())
def test_the_order_is_total_and_the_same_however_the_queue_came_about(
    case: Case, data: st.DataObject
) -> None:
    first = list(case.ranking())
    assert sorted(r.id for r in first) == [w.id for w in case.queue]
    shuffled = data.draw(st.permutations(case.queue))
    other = replace(case, tenants=case.tenants[::-1], queue=shuffled, held=case.held[::-1])
    assert list(other.ranking()) == first


@quick(300)
@given(cases)
def test_what_is_within_quota_fits_with_all_that_is_held_into_every_quota_above_it(
    case: Case,
) -> None:
    within = {r.id for r in case.ranking() if r.within_quota}
    by_name = {t.name: t for t in case.tenants}
    for name, tenant in by_name.items():
        below = [w for w in case.queue if w.id in within and name in ancestry(by_name, w.tenant)]
        if tenant.quota is None or not below:
            continue
        holders = [
            h
            for h in case.held
            if h.within_quota and name in ancestry(by_name, TenantName(h.tenant))
        ]
        for resource, bound in bounds(tenant.quota).items():
            total = sum(request(w).get(resource, 0) for w in below)
            if total or resource in ("gpus", "cpus"):
                assert total + sum(held_of(h, resource) for h in holders) <= bound


@quick(300)
@given(cases)
def test_who_is_over_quota_has_the_lowest_priority_and_who_is_within_that_of_its_tenant_or_lower(
    case: Case,
) -> None:
    levels = {t.name: t.priority for t in case.tenants}
    by_id = {w.id: w for w in case.queue}
    for r in case.ranking():
        w = by_id[r.id]
        assert r.priority == (max(levels[w.tenant], w.asked_priority) if r.within_quota else 7)


def earlier(late: Workload, hours: float) -> Workload:
    return replace(late, submitted_at_s=max(0.0, late.submitted_at_s - hours * HOUR_S))


@quick(400)
@given(some, st.integers(0, 19), st.sampled_from((0.5, 1, 2, 30)))
def test_a_longer_wait_never_worsens_a_workloads_own_priority_or_credit(
    case: Case, which: int, hours: float
) -> None:
    late = case.queue[which % len(case.queue)]
    aged = case.with_(late, earlier(late, hours))
    assert aged.standing(late.id) <= case.standing(late.id)


@quick(300)
@given(flat, st.integers(0, 19), st.sampled_from((0.5, 2, 30)))
def test_without_parents_and_demotion_a_longer_wait_never_costs_a_place(
    case: Case, which: int, hours: float
) -> None:
    late = case.queue[which % len(case.queue)]
    aged = case.with_(late, earlier(late, hours))
    assert aged.order().index(late.id) <= case.order().index(late.id)


@quick(200)
@given(cases, st.sampled_from(NAMES), st.integers(1, 500))
def test_more_usage_never_raises_a_tenants_credit(case: Case, greedy: str, more: int) -> None:
    before = {r.id: r for r in case.ranking()}
    using = replace(case, used=case.used | {greedy: case.used.get(greedy, 0) + more})
    after = {r.id: r for r in using.ranking()}
    for w in (w for w in case.queue if w.tenant == greedy):
        assert after[w.id].credit <= before[w.id].credit


@quick(300)
@given(some, st.integers(0, 19), st.integers(0, 6), st.integers(0, 500), st.booleans())
def test_nice_asked_priority_and_not_to_be_evicted_only_lower_the_workload_that_asks_for_it(
    case: Case, which: int, lower: int, nicer: int, no_requeue: bool
) -> None:
    plain = case.queue[which % len(case.queue)]
    asked = min(7, plain.asked_priority + lower)
    modest = replace(plain, asked_priority=asked, nice=plain.nice + nicer, requeue=not no_requeue)
    assert case.with_(plain, modest).standing(plain.id) >= case.standing(plain.id)


# ---- a ranking after every step of a history ----


@dataclass
class World:
    """A queue and holdings that change, and the plain lists that say what they should be."""

    tenants: list[Tenant]
    weighed: CreditWeights
    usage: UsageAverage
    waiting: dict[WorkloadId, Workload] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    away: list[Workload] = field(default_factory=list)
    now_s: float = NOW_S
    born: int = 0

    def __post_init__(self) -> None:
        self.tenancy = Tenancy(self.tenants)
        self.backlog = Backlog(self.tenancy)
        self.holdings = Holdings(self.tenancy, self.usage)

    def ranking(self) -> CreditRanking:
        return CreditRanking(self.backlog, self.holdings, self.weighed, self.now_s)

    def naive(self) -> list[Ranked]:
        averages = self.holdings.averages(self.now_s)
        used = {t.name: float(a) for t, a in zip(self.tenancy.tenants, averages, strict=True)}
        queue = list(self.waiting.values())
        return naive_rank(self.tenants, queue, self.held, used, self.weighed, self.now_s)

    def add(self, wanted: Drawn, x: int) -> None:
        """A new one, or one that comes back to its old place."""
        if self.away and x % 3 == 0:
            found = self.away.pop(x % len(self.away))
        else:
            found = wanted.numbered(self.born)
            self.born += 1
        self.waiting[found.id] = found
        self.backlog.add(found)

    def remove(self, x: int) -> None:
        if self.waiting:
            self.take(sorted(self.waiting)[x % len(self.waiting)])

    def take(self, id_: WorkloadId) -> None:
        found = self.waiting.pop(id_)
        self.backlog.remove(found)
        self.away.append(found)

    def charge(self, wanted: Drawn, x: int) -> None:
        held = Held(
            tenant=wanted.tenant,
            gpus=x % 9,
            cpus=x % 7,
            gpu_types={"h100": x % 3},
            within_quota=bool(x % 2),
        )
        charge = charge_of(self.tenancy, held)
        self.holdings.add(charge, held.within_quota, self.now_s)
        self.backlog.touch(charge.row)
        self.held.append(held)

    def release(self, x: int) -> None:
        if self.held:
            held = self.held.pop(x % len(self.held))
            charge = charge_of(self.tenancy, held)
            self.holdings.release(charge, held.within_quota, self.now_s)
            self.backlog.touch(charge.row)

    def step(self, name: str, wanted: Drawn, x: int) -> None:
        match name:
            case "add":
                self.add(wanted, x)
            case "remove":
                self.remove(x)
            case "charge":
                self.charge(wanted, x)
            case "release":
                self.release(x)
            case _:
                self.now_s += (x % 11) * 0.25 * HOUR_S


steps = st.tuples(
    st.sampled_from(("add", "add", "add", "remove", "charge", "release", "wait", "wait")),
    drawn(),
    st.integers(0, 1000),
)
KIN = [
    Tenant(name=TenantName("ant"), priority=2, quota=Allowance(gpus=16)),
    Tenant(name=TenantName("bee"), priority=2, parent=TenantName("ant")),
    Tenant(name=TenantName("cat"), priority=4, parent=TenantName("ant"), quota=Allowance(gpus=8)),
]
"""Three who share one quota, so that credits decide, and time may change who is within it."""

worlds = st.builds(
    World,
    st.one_of(tenancies(), st.just(KIN)),
    weights,
    st.sampled_from((6, 50)).map(lambda h: WindowAverage(h * HOUR_S)),
)


@quick(250)
@given(worlds, st.lists(steps, min_size=1, max_size=30))
def test_after_any_change_the_ranking_is_that_made_from_scratch(
    world: World, history: list[tuple[str, Drawn, int]]
) -> None:
    for step in history:
        world.step(*step)
        ranking, naive = world.ranking(), world.naive()
        assert list(ranking) == naive
        assert list(ranking.listed()) == naive


@quick(150)
@given(worlds, st.lists(steps, min_size=1, max_size=40))
def test_several_changes_between_two_rankings_are_all_seen(
    world: World, history: list[tuple[str, Drawn, int]]
) -> None:
    for k, step in enumerate(history):
        world.step(*step)
        if k % 5 == 4:
            assert list(world.ranking()) == world.naive()
    assert list(world.ranking()) == world.naive()


@quick(400)
@given(worlds, st.lists(drawn(), min_size=1, max_size=20), st.lists(steps, max_size=25))
def test_while_the_queue_changes_nobody_is_given_twice_and_who_waits_on_is_not_skipped(
    world: World, queue: list[Drawn], history: list[tuple[str, Drawn, int]]
) -> None:
    for wanted in queue:
        world.add(wanted, 1)
    stayed = set(world.waiting)
    given_ids: list[WorkloadId] = []
    changes = iter(history)
    for k, ranked in enumerate(world.ranking()):
        given_ids.append(ranked.id)
        if k % 2 and ranked.id in world.waiting:  # it was awarded: the usual change
            world.take(ranked.id)
        step = next(changes, None)
        if step is not None and step[0] != "wait":  # a ranking is of one instant
            world.step(*step)
        stayed &= set(world.waiting) | set(given_ids)
    assert len(set(given_ids)) == len(given_ids)
    assert stayed <= set(given_ids)


changes_only = steps.filter(lambda step: step[0] != "wait")


@quick(150)
@given(
    tenancies(),
    weights,
    st.lists(drawn(), min_size=1, max_size=20),
    st.lists(changes_only, max_size=12),
)
def test_a_report_in_the_middle_of_a_pass_does_not_change_what_the_pass_gives(
    tenants: list[Tenant],
    weighed: CreditWeights,
    queue: list[Drawn],
    history: list[tuple[str, Drawn, int]],
) -> None:
    found = []
    for reports in (False, True):
        world = World(tenants, weighed, WindowAverage(50 * HOUR_S))
        for wanted in queue:
            world.add(wanted, 1)
        ranked: list[Ranked] = []
        changes = iter(history)
        for one in world.ranking():
            ranked.append(one)
            step = next(changes, None)
            if step is not None:
                world.step(*step)
            if reports:
                with world.backlog.unchanged():
                    assert list(world.ranking()) == world.naive()
        found.append(ranked)
    assert found[0] == found[1]


# ---- usage ----

uses_in_time = st.lists(
    st.tuples(
        st.integers(0, 3),  # row
        st.integers(-8, 16),  # GPUs
        st.sampled_from((0.0, 0.0, 1.0, 60.0, 600.0, 3600.0, 5000.0, 100_000.0, 1_000_000.0)),
    ),
    max_size=25,
)


@dataclass
class Steps:
    """Usage as it was, step by step: the brute force behind every average."""

    changes: list[tuple[int, float, float]] = field(default_factory=list)  # row, by, at_s
    now_s: float = 0.0

    @classmethod
    def of(cls, history: Iterable[tuple[int, int, float]], start_s: float, unit_s: float) -> Steps:
        """Never below nothing; time in whole ``unit_s``."""
        steps, rates = cls(now_s=start_s), dict.fromkeys(range(4), 0)
        for row, by, passed_s in history:
            steps.now_s += passed_s // unit_s * unit_s
            change = max(by, -rates[row])
            rates[row] += change
            steps.changes.append((row, float(change), steps.now_s))
        return steps

    def told(self, average: UsageAverage) -> UsageAverage:
        for change in self.changes:
            average.change(*change)
        return average

    def rates(self, row: int, until_s: float) -> list[tuple[float, float, float]]:
        """(from, to, GPUs) of one tenant."""
        mine = [(at_s, by) for r, by, at_s in self.changes if r == row]
        ends = [at_s for at_s, _ in mine[1:]] + [until_s] * bool(mine)
        found, rate = [], 0.0
        for (at_s, by), end_s in zip(mine, ends, strict=True):
            rate += by
            found.append((at_s, end_s, rate))
        return found

    def window_average(self, row: int, now_s: float, window_s: float) -> float:
        start_s = now_s - window_s
        used = sum(
            max(0.0, min(end_s, now_s) - max(begin_s, start_s)) * rate
            for begin_s, end_s, rate in self.rates(row, now_s)
        )
        return used / window_s

    def decayed_average(self, row: int, now_s: float, half_life_s: float) -> float:
        def weight(at_s: float) -> float:
            return float(2.0 ** ((at_s - now_s) / half_life_s))

        return sum((weight(e) - weight(b)) * rate for b, e, rate in self.rates(row, now_s))

    def most(self) -> float:
        return max((rate for row in range(4) for _, _, rate in self.rates(row, inf)), default=0.0)


START_S = 1_700_000_000.0
later = st.sampled_from((0.0, 600.0, 3600.0, 86_400.0, 604_800.0, 1_300_000.0))


@quick(300)
@given(uses_in_time, later, st.sampled_from((BUCKETS * 600.0, BUCKETS * 3600.0)))
def test_the_window_average_is_exact_when_changes_fall_between_buckets(
    history: list[tuple[int, int, float]], wait_s: float, window_s: float
) -> None:
    width_s = window_s / BUCKETS
    start_s = START_S // width_s * width_s
    steps = Steps.of(history, start_s, width_s)
    now_s = steps.now_s + wait_s
    found = steps.told(WindowAverage(window_s)).averages(4, now_s)
    expected = [steps.window_average(row, now_s, window_s) for row in range(4)]
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert (found >= 0).all()


@quick(300)
@given(uses_in_time, later, st.sampled_from((3600.0, 50_000.0, 604_800.0)))
def test_the_window_average_errs_by_at_most_a_quarter_of_one_bucket_at_full_use(
    history: list[tuple[int, int, float]], wait_s: float, window_s: float
) -> None:
    steps = Steps.of(history, START_S, 1.0)
    now_s = steps.now_s + wait_s
    found = steps.told(WindowAverage(window_s)).averages(4, now_s)
    expected = np.array([steps.window_average(row, now_s, window_s) for row in range(4)])
    assert (found >= 0).all()
    assert np.abs(found - expected).max() <= steps.most() / BUCKETS / 4 + 1e-6


@quick(200)
@given(uses_in_time, later, st.sampled_from((600.0, 50_000.0, 604_800.0)))
def test_the_decayed_average_is_the_integral_in_closed_form(
    history: list[tuple[int, int, float]], wait_s: float, half_life_s: float
) -> None:
    steps = Steps.of(history, START_S, 1.0)
    now_s = steps.now_s + wait_s
    found = steps.told(DecayedAverage(half_life_s)).averages(4, now_s)
    expected = [steps.decayed_average(row, now_s, half_life_s) for row in range(4)]
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert (found >= 0).all()


@quick(200)
@given(st.booleans(), uses_in_time, later, st.data())
def test_asking_for_averages_changes_no_later_answer_by_a_single_bit(
    decays: bool, history: list[tuple[int, int, float]], wait_s: float, data: st.DataObject
) -> None:
    def new() -> UsageAverage:
        return DecayedAverage(50_000.0) if decays else WindowAverage(50_000.0)

    steps = Steps.of(history, START_S, 1.0)
    asked, untouched = new(), new()
    for row, by, at_s in steps.changes:
        asked.averages(data.draw(st.integers(0, 6)), at_s)
        for average in (asked, untouched):
            average.change(row, by, at_s)
        asked.averages(3, at_s + wait_s)
    now_s = steps.now_s + wait_s
    assert asked.averages(4, now_s).tobytes() == untouched.averages(4, now_s).tobytes()


@quick(200)
@given(st.lists(st.floats(0, 1e12), max_size=12))
def test_shares_of_usage_are_fractions_that_add_up_to_one(used: list[float]) -> None:
    shares = usage_shares(np.array(used, dtype=np.float64))
    assert ((shares >= 0) & (shares <= 1)).all()
    assert shares.sum() == 0 if sum(used) == 0 else abs(shares.sum() - 1) < 1e-9


@quick(200)
@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e5)), min_size=1, max_size=20))
def test_charges_that_are_all_released_leave_no_usage_behind(
    charges: list[tuple[float, float]],
) -> None:
    for average in (WindowAverage(1000.0), DecayedAverage(1000.0)):
        now_s = 0.0
        for gpus, passed_s in charges:
            now_s += passed_s
            average.change(0, gpus, now_s)
        for gpus, passed_s in charges:
            now_s += passed_s
            average.change(0, -gpus, now_s)
        assert (average.averages(1, now_s) >= 0).all()
        assert average.averages(1, now_s + 1e6) < 1e-200


# ---- the whole federation ----

TENANTS = (
    Tenant(name=TenantName("lab"), priority=2, quota=Allowance(gpus=24), limit=Allowance(gpus=40)),
    Tenant(
        name=TenantName("vision"),
        priority=2,
        quota=Allowance(gpus=16, gpu_types={"a100": 8}),
        parent=TenantName("lab"),
    ),
    Tenant(
        name=TenantName("speech"),
        priority=3,
        quota=Allowance(gpus=16, cpus=12),
        limit=Allowance(gpus=20, cpus=16),
        parent=TenantName("lab"),
    ),
    Tenant(name=TenantName("guests"), limit=Allowance(gpus=8)),
)
WHO = ("vision", "speech", "guests", "lab", "stranger")
SITES = ("alpine", "baker")
Act = tuple[str, int, int]


class Watched(Loopback):
    """A federation whose holdings are counted again after every event."""

    def check_invariants(self) -> None:
        super().check_invariants()
        check_holdings(self.federation.ledger)


def counted(ledger: Ledger, name: TenantName, *, within: bool = False) -> dict[str, float]:
    """What a tenant and those below it hold, from the plans alone."""
    by_name = {t.name: t for t in ledger.tenancy.tenants}
    total: dict[str, float] = dict.fromkeys(ledger.tenancy.resources.names, 0)
    for entry in ledger.in_state(*AT_SITE):
        if name not in ancestry(by_name, entry.workload.tenant):
            continue
        assert entry.award is not None
        if within and not entry.award.within_quota:
            continue
        for plan in entry.plan:
            for share in plan.nodes.values():
                total["gpus"] += share.gpus
                total["cpus"] += share.cpus
            for type_, number in plan.gpu_types.items():
                if type_ in total:
                    total[type_] += number
    return total


def check_holdings(ledger: Ledger) -> None:
    tenancy = ledger.tenancy
    for row, tenant in enumerate(tenancy.tenants):
        used, within = counted(ledger, tenant.name), counted(ledger, tenant.name, within=True)
        assert list(ledger.holdings.used(row)) == list(used.values()), tenant.name
        assert list(ledger.holdings.within(row)) == list(within.values()), tenant.name
        for bound, amount in ((tenant.limit, used), (tenant.quota, within)):
            for resource, most in bounds(bound).items() if bound is not None else ():
                assert amount[resource.removeprefix("type ")] <= most, (tenant.name, resource)
    for entry in ledger.entries.values():
        assert (entry.charge is not None) == (entry.state in AT_SITE)


def federation(window: int = 500) -> Watched:
    sites = {"alpine": rack("a", 3), "baker": rack("b", 2, gpu_type="h100")}
    rules = Rules(launch_lease_s=20.0, pass_interval_s=60.0, window=window)
    return Watched(sites, rules, 25.0, Mast(), TENANTS)


def play(f: Loopback, history: Iterable[Act]) -> None:
    for name, x, y in history:
        ACTS[name](f, x, y)
        f.check_invariants()


def _submit(f: Loopback, x: int, y: int) -> None:
    job = replace(
        gang(1 + x % 2, 1 + y % 8),
        exclusive=x % 7 == 0,
        gpu_types=((), ("a100",), ("a100", "h100"))[x % 3],
    )
    more = (replace(job, nodes=1, name="serve"),) if x % 5 == 0 else ()
    indices = tuple(range(y % 4)) if x % 4 == 1 else ()
    wanted = draft(
        job,
        *more,
        tenant=WHO[y % 5],
        asked_priority=1 + (x // 7) % 7,
        nice=y % 3,
        requeue=y % 5 > 0,
        array_indices=indices,
        array_max_running=x % 3,
    )
    f.ask(wanted)


def _cancel(f: Loopback, x: int, y: int) -> None:
    live = [i for i, e in f.federation.ledger.entries.items() if e.state in AT_SITE]
    f.cancel(*live[:1])


def _requeue(f: Loopback, x: int, y: int) -> None:
    slurm = f.slurm(SITES[x % 2])
    for job in slurm.running()[:1]:
        slurm.requeue(job.attempt)


def _fail_node(f: Loopback, x: int, y: int) -> None:
    f.shared_nodes = True
    slurm = f.slurm(SITES[x % 2])
    slurm.fail_node(slurm.nodes()[0].name)


def _repair(f: Loopback, x: int, y: int) -> None:
    slurm = f.slurm(SITES[x % 2])
    slurm.repair_node(slurm.nodes()[0].name)


ACTS: dict[str, Callable[[Loopback, int, int], None]] = {
    "submit": _submit,
    "wait": lambda f, x, y: f.run_for(x % 10 * LATENCY_S / 2 if y % 2 else float(x)),
    "cancel": _cancel,
    "down": lambda f, x, _: f.site_down(SITES[x % 2]),
    "up": lambda f, x, _: f.site_up(SITES[x % 2]),
    "refuse": lambda f, x, y: f.refuse_launches(SITES[x % 2], y % 2 > 0),
    "requeue": _requeue,
    "fail node": _fail_node,
    "repair node": _repair,
    "restart": lambda f, _, __: f.restart(),
}
CALM = ("submit", "submit", "submit", "submit", "wait", "wait", "cancel")
FAULTS = ("down", "up", "refuse", "requeue", "fail node", "repair node", "restart")


def acts(names: Sequence[str]) -> st.SearchStrategy[list[Act]]:
    act = st.tuples(st.sampled_from(names), st.integers(0, 200), st.integers(0, 60))
    return st.lists(act, max_size=20)


@quick(120)
@given(acts(CALM + FAULTS))
def test_whatever_happens_quotas_and_limits_hold_and_all_is_released_exactly_once(
    history: list[Act],
) -> None:
    f = federation()
    play(f, history)  # ``Watched`` looks after every event
    for event in f.log:
        assert not isinstance(event, Awarded) or event.within_quota or event.priority == 7
    f.cancel(*[e.workload.id for e in f.federation.ledger.in_state(WorkloadState.PENDING)])
    for k, site in enumerate(SITES):
        _repair(f, k, 0)
        f.refuse_launches(site, False)
        f.site_up(site)
    f.run_until_all_end()
    ledger = f.federation.ledger
    assert all(not any(ledger.holdings.used(row)) for row in range(len(ledger.tenancy)))


@quick(80)
@given(acts(CALM + FAULTS))
def test_a_restarted_federation_holds_ranks_and_judges_as_the_one_before(
    history: list[Act],
) -> None:
    f = federation()
    play(f, history)
    old, new, now_s = f.federation, f.new_federation(), f.clock.now_s + 100.0
    new.replay(f.log)
    check_holdings(new.ledger)
    assert list(new.ranked(now_s)) == list(old.ranked(now_s))
    assert quota_statuses(new.ledger) == quota_statuses(old.ledger)
    known, told = old.ledger.tenancy, new.ledger.tenancy
    for tenant in told.tenants:
        was, now = known.row(tenant.name), told.row(tenant.name)
        assert old.ledger.holdings.used(was) == new.ledger.holdings.used(now)
        assert old.ledger.holdings.within(was) == new.ledger.holdings.within(now)


@quick(80)
@given(acts(tuple(a for a in CALM + FAULTS if a != "restart")), st.integers(1, 3))
def test_the_same_history_gives_the_same_awards_whoever_asks_for_a_ranking_in_between(
    history: list[Act], window: int
) -> None:
    f = federation(window)
    play(f, history)
    twin = f.new_federation()
    commands: list[Command] = []
    for observation, now_s in f.history:
        if observation is None:
            commands += twin.begin_epoch(now_s)
        else:
            commands += twin.handle(observation, now_s)
        with twin.ledger.backlog.unchanged():
            twin.ranked(now_s)
    assert [c.event for c in commands if isinstance(c, Record)] == f.log
