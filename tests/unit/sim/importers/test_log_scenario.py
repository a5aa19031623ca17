"""A daemon's log, lived through once more in the simulator: the same awards."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from federator.errors import InvalidRequest
from federator.model.event import Awarded, Changed
from federator.model.site import Node
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import Job, SiteName, TenantName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sim.fleet import Fleet
from federator.sim.importers.log_scenario import Placement, scenario_of_log
from federator.sim.scenario import SimulatedSite
from federator.sim.trace import ReplayOptions
from federator.slurm.options.dependency_option import dependency
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

pytestmark = pytest.mark.slow

NODES: dict[str, tuple[Node, ...]] = {
    "alpine": (*rack("a", 3), *rack("b", 2)),
    "baker": (*rack("c", 2, gpu_type="h100"), *rack("d", 2)),
}
SITES = tuple(SimulatedSite(name=SiteName(name), nodes=nodes) for name, nodes in NODES.items())
VISION = Tenant(name=TenantName("vision"), priority=3, quota=Allowance(gpus=24))
JOBS = (gang(1, 1), gang(1, 3), gang(2, 8), gang(3, 8), Job(name="train", gpus=20))


def lived_by_a_daemon(picks: list[tuple[int, int]], run_s: float) -> Loopback:
    """Submissions some seconds apart, to a daemon and agents with delays of their own."""
    f = Loopback(NODES, Rules(), run_s, Mast(), (VISION,))
    for job, pause_s in picks:
        f.submit(draft(JOBS[job]))
        f.run_for(float(pause_s))
    f.run_until_all_end()
    return f


def knew_what_had_ended(f: Loopback) -> bool:
    """Whether at each award the daemon had heard of every end: a simulated site hears at once."""
    awarded = [e.at_s for e in f.log if isinstance(e, Awarded)]
    unheard = [(e.ended_at_s, e.at_s) for e in f.log if isinstance(e, Changed) and e.ended_at_s]
    return not any(ended <= at <= heard for ended, heard in unheard for at in awarded)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(JOBS) - 1), st.integers(5, 40)), min_size=1, max_size=20),
    st.sampled_from([15.5, 33.5, 73.5]),
)
def test_the_simulator_awards_as_the_daemon_did_while_nothing_waits(
    picks: list[tuple[int, int]], run_s: float
) -> None:
    f = lived_by_a_daemon(picks, run_s)
    lived = scenario_of_log(f.log, SITES, (VISION,))
    assume(lived.prompt and knew_what_had_ended(f))
    fleet = Fleet(lived.scenario, Mast(), Rules(), options=ReplayOptions(keep_awards=True))
    fleet.run()
    awards = sorted(fleet.awards, key=lambda award: award.attempt.workload)
    assert tuple(map(Placement.of, awards)) == lived.placements


def test_tasks_of_an_array_are_arrivals_of_their_own() -> None:
    f = Loopback(NODES, Rules(), 10.0)
    f.submit(draft(gang(1, 4), array_indices=(0, 1, 2)))
    f.run_until_all_end()
    lived = scenario_of_log(f.log, SITES, ())
    assert [arrival.at_s for arrival in lived.scenario.arrivals] == [0.0] * 3
    assert len(lived.placements) == 3


def test_a_log_that_is_not_the_whole_story_is_refused() -> None:
    f = Loopback(NODES, Rules(), None)
    id_ = f.submit(draft(gang(1, 4)))
    f.run_for(5.0)
    with pytest.raises(InvalidRequest, match=f"workload {id_}: expected one award and an end"):
        scenario_of_log(f.log, SITES, ())


def test_a_dependent_comes_when_it_could_start() -> None:
    f = Loopback(NODES, Rules(), 10.0)
    first = f.submit(draft(gang(1, 4)))
    f.submit(draft(gang(1, 4), waits_for=dependency(f"afterok:{first}")))
    f.run_until_all_end()
    lived = scenario_of_log(f.log, SITES, ())
    one, two = lived.scenario.arrivals
    assert two.at_s - one.at_s >= 10.0
    assert lived.prompt
    assert not two.draft.waits_for
    assert len(Fleet(lived.scenario, Mast(), Rules()).run()) == 2
