"""Laws of jobs that move for a gang, over whole simulations: budget, places, and nobody is lost."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from federator.model.defragment import Defragment
from federator.model.event import Awarded, Changed
from federator.model.lifecycle import WorkloadEvent
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.sched.state.rules import Rules
from federator.sim.scenario import Arrival, Scenario, SimulatedSite
from tests.fakes.build import draft, gang, rack
from tests.property.test_claim_laws import GRACE_S, MANY, WINDOW_S, Lived

MOST = 3
OWNER = Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=64))


@st.composite
def scattered(draw: st.DrawFn) -> Scenario:
    """Small jobs of all lengths fill a site and leave holes; then gangs of whole nodes come."""
    nodes = draw(st.integers(3, 6))
    arrivals = []
    for at_s, count, sizes in (
        (0, draw(st.integers(nodes, 4 * nodes)), [(1, 1), (1, 2), (1, 3), (1, 4), (1, 6)]),
        (4_000, draw(st.integers(1, 3)), [(1, 8), (2, 8), (3, 8)]),
    ):
        for _ in range(count):
            duration_s = float(draw(st.sampled_from([500, 3_000, 20_000, 60_000])))
            wanted = draft(gang(*draw(st.sampled_from(sizes))), tenant="owner")
            wanted = replace(wanted, time_limit_s=1.5 * duration_s)
            later_s = draw(st.integers(0, 80))
            arrivals.append(
                Arrival(at_s=float(at_s + later_s), draft=wanted, duration_s=duration_s)
            )
    arrivals.sort(key=lambda each: each.at_s)
    site = SimulatedSite(name=SiteName("alpine"), nodes=tuple(rack("a", nodes)))
    return Scenario(sites=(site,), tenants=(OWNER,), arrivals=tuple(arrivals))


def rules(budget_gpus: float) -> Rules:
    return Rules(
        preempt_gpus=budget_gpus,
        preempt_window_s=WINDOW_S,
        grace_s=GRACE_S,
        cooldown_s=600.0,
        defragment=Defragment.ON,
        defragment_moves=MOST,
        defragment_margin=1.0,
    )


@settings(MANY, max_examples=30)
@given(scattered(), st.sampled_from([4.0, 8.0, 24.0]))
def test_who_moves_goes_on_at_once_and_no_window_moves_more_than_it_may(
    scenario: Scenario, budget_gpus: float
) -> None:
    """That every job ends, and that no node is used twice, the simulation itself looks after."""
    lived = Lived(scenario, rules(budget_gpus))
    left_at_s: dict[WorkloadId, float] = {}
    moved_at_s: list[float] = []
    for e in lived.log:
        id_ = e.attempt.workload if isinstance(e, Awarded) else None
        if isinstance(e, Awarded) and id_ in left_at_s:
            assert e.at_s == left_at_s.pop(id_)  # at its place, or where it fits tighter by now
        if isinstance(e, Awarded):
            moved_at_s += [e.at_s] * len(e.moves)
        elif isinstance(e, Changed) and e.happening is WorkloadEvent.PREEMPTED:
            left_at_s[e.workload] = e.at_s
    assert not left_at_s
    for first_s in moved_at_s:
        assert sum(first_s <= at_s < first_s + WINDOW_S for at_s in moved_at_s) <= MOST
    for k, last in enumerate(lived.told):
        charged = [
            min(t.gpus, budget_gpus)
            for t in lived.told[: k + 1]
            if t.at_s + max(1.0, t.gpus / budget_gpus) * WINDOW_S > last.at_s + 1e-6
        ]
        assert sum(charged) <= budget_gpus + 1e-6
    event(f"moved {min(3, len(moved_at_s))}")
