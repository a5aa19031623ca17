"""Sites are not asked what they have refused already; that decides nothing.

Each fleet is simulated twice: as it is, and with every waiting workload asked about at every site
in every pass. The mix of requests that sites note (``fragmentation.RequestMix``) is left out on
both sides, since it counts who has asked. So is, where there are several sites, that only a few of
one lane are asked about in a round: in the next round sites know more of what was awarded. What
takes hundreds of jobs to show is also had with few, by making windows and other numbers small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federator.policies import POLICIES
from federator.sched.bid import bids, fragmentation, refusal_details
from federator.sched.passes import asking_limit, candidates
from federator.sched.state import learned_durations
from federator.sched.state.credit import CreditWeights
from federator.sched.state.rules import Rules
from federator.sim.federation_replay import FederationReplay
from federator.sim.fleet import Fleet
from federator.sim.importers.trace_csv import TraceBuilder
from federator.sim.physics import Physics
from federator.sim.scenario import JobTrace, Scenario
from federator.sim.settings import Settings, settings_of
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePool
from federator.sim.trace_scenario import scenario_of

AUDITED = ReplayOptions(audit=True)
EVERYBODY = 1_000_000


def quick(examples: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks)


Row = tuple[int, int, int, int]
"""Submission, duration, GPUs, number of its pool."""


def made(pools: Sequence[TracePool], rows: Sequence[Row]) -> Trace:
    builder = TraceBuilder(pools)
    for number, (submit_s, duration_s, gpus, pool) in enumerate(rows):
        builder.add(
            job_id=str(number),
            line=number + 2,
            submit_s=submit_s,
            duration_s=duration_s,
            gpus=gpus,
            num_nodes=None,
            cpus=None,
            pool=pools[pool % len(pools)].name,
            user="",
        )
    return builder.trace


NAMES = ("bee", "ant", "cat9", "cat10")  # not in the order of the alphabet


@st.composite
def traces(
    draw: st.DrawFn,
    most_nodes: int,
    most_jobs: int,
    most_gpus: int,
    most_pools: int = 4,
    most_instants: int = 6,
) -> Trace:
    """Bursts of jobs of all sizes, on pools that have long too little for them."""
    pools = [
        TracePool(
            name=name,
            nodes=draw(st.integers(1, most_nodes)),
            gpus_per_node=draw(st.sampled_from((1, 2, 4, 8))),
        )
        for name in NAMES[: draw(st.integers(1, most_pools))]
    ]
    instants = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=most_instants))
    longest_s = draw(st.sampled_from((5, 50, 900)))
    sizes = st.one_of(
        st.sampled_from((0, 1, 2, 3, 4, 8)), st.integers(0, 20), st.integers(0, most_gpus)
    )
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(instants), st.integers(0, longest_s), sizes, st.integers(0, 3)
            ),
            max_size=most_jobs,
        )
    )
    return made(pools, rows)


@contextmanager
def everybody_is_asked() -> Iterator[None]:
    """Nothing is known of a site but what it answers now, and no workload stands for another."""
    with (
        mock.patch.object(candidates.Candidates, "learn"),
        mock.patch.object(asking_limit, "ASKED_AT_FIRST", EVERYBODY),
    ):
        yield


@contextmanager
def alike(sites: int) -> Iterator[None]:
    """What would make a difference is left out on both sides."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(fragmentation.RequestMix, "note"))
        if sites > 1:
            stack.enter_context(mock.patch.object(asking_limit, "ASKED_AT_FIRST", EVERYBODY))
        yield


def assert_same(
    trace: Trace, window: int = 500, interval_s: float = 300.0, chosen: Settings | None = None
) -> None:
    rules = Rules(window=window, pass_interval_s=interval_s)
    chosen = Settings(rules=rules) if chosen is None else chosen

    def ran() -> Timetable:
        return FederationReplay(settings=chosen).replay(trace, AUDITED)

    with alike(len(trace.pools)):
        found = ran()
        with everybody_is_asked():
            expected = ran()
    assert list(zip(found.start_s, found.end_s, found.site, strict=True)) == list(
        zip(expected.start_s, expected.end_s, expected.site, strict=True)
    )


def lived(scenario: Scenario, rules: Rules, physics: Physics, policy: str) -> list[JobTrace]:
    fleet = Fleet(scenario, POLICIES[policy](CreditWeights()), rules, physics, AUDITED)
    return fleet.run()


@contextmanager
def small(weighed_after: int, tried: int) -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, number in (
            (fragmentation, "WEIGHED_AFTER", weighed_after),
            (bids, "RETRIED", tried),
            (refusal_details, "EXPLAINED", tried),
        ):
            stack.enter_context(mock.patch.object(module, name, number))
        yield


@quick(60)
@given(trace=traces(most_nodes=6, most_jobs=40, most_gpus=48))
def test_every_job_runs_when_and_where_it_would_if_everybody_were_asked(trace: Trace) -> None:
    assert_same(trace)


@quick(60)
@given(trace=traces(most_nodes=6, most_jobs=80, most_gpus=24, most_pools=1))
def test_a_few_of_each_lane_are_enough(trace: Trace) -> None:
    """With one site, nobody's bid is lost to another's."""
    with mock.patch.object(asking_limit, "ASKED_AT_FIRST", 1):
        assert_same(trace)


@quick(40)
@given(trace=traces(most_nodes=40, most_jobs=25, most_gpus=160))
def test_gangs_on_several_racks_get_the_same_nodes(trace: Trace) -> None:
    assert_same(trace)


@quick(60)
@given(
    trace=traces(most_nodes=6, most_jobs=40, most_gpus=48),
    window=st.integers(1, 12),
    weighed_after=st.sampled_from((2, 20)),
    tried=st.integers(0, 3),
    interval_s=st.sampled_from((11.0, 300.0)),
)
def test_small_windows_change_nothing(
    trace: Trace, window: int, weighed_after: int, tried: int, interval_s: float
) -> None:
    with small(weighed_after, tried):
        assert_same(trace, window, interval_s)


@quick(40)
@given(
    trace=traces(most_nodes=6, most_jobs=40, most_gpus=48),
    per_hour_waited=st.sampled_from((0.0, 1.0, 50.0)),
    age_cap_h=st.sampled_from((0.01, 168.0)),
    fair_share=st.sampled_from((0.0, 24.0, 1000.0)),
    usage=st.sampled_from(({"usage_window_h": 0.05}, {"usage_half_life_h": 0.1}, {})),
)
def test_the_settings_of_the_policy_change_both_alike(
    trace: Trace,
    per_hour_waited: float,
    age_cap_h: float,
    fair_share: float,
    usage: dict[str, float],
) -> None:
    weights = {"per_hour_waited": per_hour_waited, "age_cap_h": age_cap_h, "fair_share": fair_share}
    assert_same(trace, chosen=settings_of(weights | usage, "mast"))


def test_more_wait_than_are_asked_about_in_one_message() -> None:
    """Of 700 at one instant 24 run at a time; each wave ends at one instant, too."""
    pools = [
        TracePool(name=name, nodes=nodes, gpus_per_node=8) for name, nodes in (("a", 2), ("b", 1))
    ]
    sizes = (1, 1, 2, 1, 3, 1, 8, 1, 1, 12)
    rows = [(5 * (n >= 640), 100, sizes[n % 10], n % 3 == 0) for n in range(700)]
    assert_same(made(pools, rows))


def test_those_within_quota_go_first_whatever_came_before() -> None:
    """Three tenants, of which one has asked for everything long before the others come."""
    pools = [TracePool(name=name, nodes=2, gpus_per_node=4) for name in NAMES[:3]]
    greedy = [(0, 60 + n % 7, 1 + n % 4, 0) for n in range(40)]
    others = [(30 + n, 50, 2 + n % 3, 1 + n % 2) for n in range(12)]
    trace = made(pools, greedy + others)
    assert_same(trace)
    start_s = FederationReplay().replay(trace, AUDITED).start_s
    late = [row for row in range(40) if start_s[row] > 60]
    assert late, "the first tenant must have borrowed and waited"
    assert min(start_s[40:]) < max(start_s[row] for row in late)


def test_jobs_without_gpus_use_up_the_cpus() -> None:
    """Two for each GPU: then GPUs are free that nobody can use."""
    pools = [TracePool(name=name, nodes=2, gpus_per_node=2) for name in NAMES[:2]]
    thin = [(0, 40 + n, 0, n % 2) for n in range(14)]
    rest = [(n, 20, n % 5, n % 2) for n in range(12)]
    assert_same(made(pools, thin + rest))


def test_who_was_held_back_by_a_bid_that_lost_is_asked_again() -> None:
    """A gang bids for two racks, since a bid that then loses holds room in one."""
    pools = [
        TracePool(name=name, nodes=nodes, gpus_per_node=each)
        for name, nodes, each in (("bee", 20, 2), ("ant", 2, 8), ("cat9", 15, 2), ("cat10", 2, 2))
    ]
    early = [
        (0, 807, 27, 2),
        (0, 807, 6, 1),
        (0, 1, 1, 1),
        (0, 557, 3, 2),
        (0, 22, 8, 1),
        (0, 557, 27, 0),
    ]
    middle = [
        (9, 1, 3, 3),
        (9, 3, 3, 3),
        (9, 5, 6, 0),
        (9, 1, 30, 0),
        (9, 151, 13, 1),
        (9, 5, 2, 3),
        (9, 807, 16, 0),
    ]
    late = [(79, 22, 3, 1), (79, 807, 36, 0), (79, 22, 3, 3)]
    trace = made(pools, early + middle + late)
    assert_same(trace)


def with_limits(trace: Trace, factors: Sequence[float]) -> Scenario:
    """The same jobs with time limits, so that room is kept for those that wait."""
    scenario = scenario_of(trace)
    arrivals = []
    for k, arrival in enumerate(scenario.arrivals):
        limit_s = max(1.0, arrival.duration_s) * factors[k % len(factors)]
        draft = replace(arrival.draft, time_limit_s=limit_s)
        arrivals.append(replace(arrival, draft=draft))
    return replace(scenario, arrivals=tuple(arrivals))


@quick(150)
@given(
    trace=st.one_of(
        traces(most_nodes=6, most_jobs=40, most_gpus=48, most_instants=40),
        traces(most_nodes=6, most_jobs=60, most_gpus=48, most_pools=1, most_instants=60),
    ),
    factors=st.lists(st.sampled_from((0.5, 1.0, 1.5, 4.0, inf)), min_size=1, max_size=5),
    window=st.sampled_from((3, 500)),
    policy=st.sampled_from(("mast", "global-fifo")),
    forecast=st.booleans(),
)
def test_room_is_kept_for_the_same(
    trace: Trace, factors: list[float], window: int, policy: str, forecast: bool
) -> None:
    scenario = with_limits(trace, factors)
    rules = Rules(window=window, forecast_ends=forecast)
    with alike(len(trace.pools)), mock.patch.object(learned_durations, "LEAST_KNOWN", 1):
        found = lived(scenario, rules, Physics(), policy)
        with everybody_is_asked():
            expected = lived(scenario, rules, Physics(), policy)
    assert found == expected


@quick(80)
@given(
    trace=st.one_of(
        traces(most_nodes=6, most_jobs=40, most_gpus=48),
        traces(most_nodes=6, most_jobs=60, most_gpus=48, most_pools=1),
    ),
    evicted=st.sampled_from((0.0, 4.0, 16.0)),
    window=st.sampled_from((3, 500)),
    policy=st.sampled_from(("mast", "global-fifo")),
)
def test_evictions_strike_the_same(trace: Trace, evicted: float, window: int, policy: str) -> None:
    rules = Rules(
        window=window, preempt_gpus=evicted, preempt_window_s=60.0, min_run_s=0.0, cooldown_s=30.0
    )
    scenario, physics = scenario_of(trace), Physics(save_s=10.0)
    with alike(len(trace.pools)):
        found = lived(scenario, rules, physics, policy)
        with everybody_is_asked():
            expected = lived(scenario, rules, physics, policy)
    assert found == expected


def test_a_prediction_that_an_award_outdated_is_made_again() -> None:
    """The gang waits for the first job's end; behind it one would delay it, and others do not."""
    pools = [TracePool(name="bee", nodes=8, gpus_per_node=8)]
    gang, delaying, short = (1, 60, 64, 0), (2, 1800, 8, 0), (3, 50, 1, 0)
    later = [(4 + n, 40, 1, 0) for n in range(5)]
    scenario = with_limits(made(pools, [(0, 600, 8, 0), gang, delaying, short, *later]), (1.0,))
    lives = lived(scenario, Rules(), Physics(), "global-fifo")
    assert [life.start_s for life in lives[:4]] == [0.0, 600.0, 660.0, 3.0]
