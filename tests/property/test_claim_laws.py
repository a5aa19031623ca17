"""Laws of evictions over whole simulations: budget, saves, promises, and who uses what came free.

Guests of all sizes fill small sites, and owners come for their quotas; the federation's own code
decides, in virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from unittest import mock

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from federator.model.event import Awarded, Changed, Claimed, LogRecord
from federator.model.lifecycle import WorkloadEvent
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sim.fleet import Fleet
from federator.sim.job_records import JobRecords
from federator.sim.physics import Physics
from federator.sim.scenario import Arrival, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import ReplayOptions
from tests.fakes.build import draft, gang, rack

WINDOW_S = 300.0
GRACE_S = 60.0
SAVE_S = 20.0
TENANTS = (
    Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=48)),
    Tenant(name=TenantName("other"), priority=3, quota=Allowance(gpus=32)),
    Tenant(name=TenantName("guest")),
)
MANY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Guests from the first minute on, of one GPU to four nodes; then owners, likewise."""
    sites = tuple(
        SimulatedSite(name=SiteName(name), nodes=tuple(rack(name[0], draw(st.integers(2, 4)))))
        for name in ("alpine", "cedar")
    )
    sizes = st.sampled_from([(1, 1), (1, 4), (1, 8), (2, 8), (3, 8), (4, 8)])
    arrivals = []
    for at_s, least, most, tenants in (
        (0, 8, 20, ("guest",)),
        (100, 3, 8, ("owner", "owner", "other", "guest")),
    ):
        for _ in range(draw(st.integers(least, most))):
            wanted = replace(
                draft(gang(*draw(sizes))), tenant=TenantName(draw(st.sampled_from(tenants)))
            )
            wanted = replace(wanted, time_limit_s=float("inf"))
            arrivals.append(
                Arrival(
                    at_s=float(at_s + draw(st.integers(0, 80))),
                    draft=wanted,
                    duration_s=float(draw(st.sampled_from([900, 4_000, 40_000, 40_000]))),
                )
            )
    arrivals.sort(key=lambda each: each.at_s)
    return Scenario(sites=sites, tenants=TENANTS, arrivals=tuple(arrivals))


@dataclass(frozen=True, kw_only=True)
class Told:
    """One who was told to leave; ``gpus``: as the budget counts them."""

    at_s: float
    gpus: int
    id: WorkloadId
    winner: WorkloadId
    site: SiteName
    nodes: frozenset[str]


class Lived:
    """A scenario under some rules, with the log of it."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self.log: list[LogRecord] = []
        take = JobRecords.take

        def heard(records: JobRecords, event: LogRecord, now_s: float) -> None:
            self.log.append(event)
            take(records, event, now_s)

        physics = Physics(save_s=SAVE_S)
        options = ReplayOptions(audit=True)
        with mock.patch.object(JobRecords, "take", heard):
            fleet = Fleet(scenario, Mast(), rules, physics, options)
            self.lives: Sequence[JobTrace] = fleet.run()
        self.awards: list[Awarded] = [e for e in self.log if isinstance(e, Awarded)]
        self.told = list(self._told())

    def _told(self) -> list[Told]:
        last: dict[WorkloadId, Awarded] = {}
        promised: dict[WorkloadId, WorkloadId] = {}
        found = []
        for e in self.log:
            if isinstance(e, Awarded):
                last[e.attempt.workload] = e
                promised.update(dict.fromkeys(e.victims, e.attempt.workload))
            elif isinstance(e, Changed) and e.happening is WorkloadEvent.EVICTED:
                jobs = last[e.workload].jobs
                shares = [share for plan in jobs for share in plan.nodes.values()]
                found.append(
                    Told(
                        at_s=e.at_s,
                        gpus=max(sum(share.gpus for share in shares), e.counts_gpus),
                        id=e.workload,
                        winner=e.winner or promised[e.workload],
                        site=SiteName(last[e.workload].site),
                        nodes=frozenset(name for plan in jobs for name in plan.nodes),
                    )
                )
        return found


def rules(budget_gpus: float, most_saves: int = 0, lost_gpu_s: float = 0.0) -> Rules:
    return Rules(
        preempt_lost_gpu_s=lost_gpu_s,
        preempt_gpus=budget_gpus,
        preempt_window_s=WINDOW_S,
        grace_s=GRACE_S,
        cooldown_s=600.0,
        max_saves_per_region=most_saves,
    )


budgets = st.sampled_from([1.0, 4.0, 8.0, 16.0, 40.0])


@MANY
@given(scenarios(), budgets, st.sampled_from([0.0, 5_000.0, 50_000.0]))
def test_a_window_evicts_its_budget_or_one_victim_that_is_paid_for_in_those_that_follow(
    scenario: Scenario, budget_gpus: float, lost_gpu_s: float
) -> None:
    told = Lived(scenario, rules(budget_gpus, lost_gpu_s=lost_gpu_s)).told
    for k, last in enumerate(told):
        charged = 0.0
        for each in told[: k + 1]:
            windows = max(1.0, each.gpus / budget_gpus)
            if each.at_s + windows * WINDOW_S > last.at_s + 1e-6:
                charged += min(each.gpus, budget_gpus)
        assert charged <= budget_gpus + 1e-6
    event(f"evicted {min(3, len(told))}, large {any(t.gpus > budget_gpus for t in told)}")


@MANY
@given(scenarios(), budgets, st.integers(1, 3))
def test_no_more_save_at_a_time_than_may(scenario: Scenario, budget_gpus: float, most: int) -> None:
    lived = Lived(scenario, rules(budget_gpus, most))
    saving: set[WorkloadId] = set()
    largest = 0
    for e in lived.log:
        if isinstance(e, Changed) and e.happening is WorkloadEvent.EVICTED:
            saving.add(e.workload)
        elif isinstance(e, Changed):
            saving.discard(e.workload)
        largest = max(largest, len(saving))
    assert largest <= most
    event(f"saved at once {largest} of {most}")


@MANY
@given(scenarios(), budgets, st.sampled_from([0, 0, 1, 2]), st.sampled_from([0.0, 0.0, 5e4]))
def test_every_claimant_starts_by_the_time_that_it_was_told_at_first(
    scenario: Scenario, budget_gpus: float, most: int, lost_gpu_s: float
) -> None:
    lived = Lived(scenario, rules(budget_gpus, most, lost_gpu_s))
    kept = sum(life.claims_kept for life in lived.lives)
    assert sum(life.claims_broken for life in lived.lives) == 0
    event(f"claims kept {min(kept, 3)}")


def test_claims_of_one_moment_are_served_in_the_order_in_which_they_were_made() -> None:
    """The gang's claim comes first, the lower number was in its way: it had not been told of it."""

    def one(at_s: int, tenant: str, nodes: int, gpus: int, duration_s: float) -> Arrival:
        wanted = replace(draft(gang(nodes, gpus)), tenant=TenantName(tenant))
        wanted = replace(wanted, time_limit_s=float("inf"))
        return Arrival(at_s=float(at_s), draft=wanted, duration_s=duration_s)

    scenario = Scenario(
        sites=tuple(
            SimulatedSite(name=SiteName(name), nodes=tuple(rack(name[0], size)))
            for name, size in (("alpine", 2), ("cedar", 4))
        ),
        tenants=TENANTS,
        arrivals=(
            one(0, "guest", 3, 8, 9e3),  # 24 windows of the budget
            one(0, "guest", 1, 8, 4e4),
            one(0, "guest", 1, 8, 4e4),
            one(1, "guest", 1, 1, 9e2),
            one(100, "owner", 1, 8, 4e4),
            one(101, "owner", 1, 1, 9e2),
            one(101, "other", 4, 8, 9e2),
        ),
    )
    lived = Lived(scenario, rules(1.0))
    small, large = [e for e in lived.log if isinstance(e, Claimed)][::-1][:2]
    assert (small.since_s, small.workload < large.workload) == (large.since_s, True)
    assert sum(life.claims_broken for life in lived.lives) == 0


@MANY
@given(scenarios(), budgets)
def test_whoever_made_others_leave_starts_where_they_were_or_has_found_room_sooner(
    scenario: Scenario, budget_gpus: float
) -> None:
    """Only those who leave for a claim, before there is an award, may leave in vain."""
    lived = Lived(scenario, rules(budget_gpus))
    promised = {e.workload: e.promised_by_s for e in lived.log if isinstance(e, Claimed)}
    for each in lived.told:
        award = next(
            award
            for award in lived.awards
            if award.attempt.workload == each.winner and award.at_s >= each.at_s - GRACE_S
        )
        used = award.site == each.site and each.nodes & {n for p in award.jobs for n in p.nodes}
        assert used or award.at_s <= promised[each.winner]
        event(f"used {bool(used)}")
