"""The fast engine for ``mast`` against the federation's own code: the same for every job.

What takes hundreds of jobs to show (windows, what the mix of requests forgets, what a message may
explain and try again) is also had with few, by making those numbers small on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federator.sched.bid import bids, fragmentation
from federator.sched.state.rules import Rules
from federator.sim.fast import flat_pass, flat_site, shared_mix
from federator.sim.federation_replay import FederationReplay
from federator.sim.importers.trace_csv import TraceBuilder
from federator.sim.settings import Settings, settings_of
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePool

AUDITED = ReplayOptions(audit=True)


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
def traces(draw: st.DrawFn, most_nodes: int, most_jobs: int, most_gpus: int) -> Trace:
    """Bursts of jobs of all sizes, on pools that have long too little for them."""
    pools = [
        TracePool(
            name=name,
            nodes=draw(st.integers(1, most_nodes)),
            gpus_per_node=draw(st.sampled_from((1, 2, 4, 8))),
        )
        for name in NAMES[: draw(st.integers(1, 4))]
    ]
    instants = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=6))
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


def assert_same(
    trace: Trace, window: int = 500, interval_s: float = 300.0, chosen: Settings | None = None
) -> None:
    rules = Rules(window=window, pass_interval_s=interval_s)
    chosen = Settings(rules=rules) if chosen is None else chosen

    def ran(exact: bool) -> Timetable:
        replay = FederationReplay(exact=exact, settings=chosen)
        return replay.replay(trace, AUDITED)

    fast, slow = ran(exact=False), ran(exact=True)
    assert list(zip(fast.start_s, fast.end_s, fast.site, strict=True)) == list(
        zip(slow.start_s, slow.end_s, slow.site, strict=True)
    )


@contextmanager
def small(remembered: int, weighed_after: int, tried: int) -> Iterator[None]:
    """The same constants on both sides."""
    with ExitStack() as stack:
        for module, name, number in (
            (fragmentation, "REMEMBERED", remembered),
            (shared_mix, "REMEMBERED", remembered),
            (fragmentation, "WEIGHED_AFTER", weighed_after),
            (shared_mix, "WEIGHED_AFTER", weighed_after),
            (bids, "RETRIED", tried),
            (flat_site, "RETRIED", tried),
            (bids, "EXPLAINED", tried),
            (flat_pass, "EXPLAINED", tried),
        ):
            stack.enter_context(mock.patch.object(module, name, number))
        yield


@quick(60)
@given(trace=traces(most_nodes=6, most_jobs=40, most_gpus=48))
def test_every_job_runs_when_and_where_the_federation_says(trace: Trace) -> None:
    assert_same(trace)


@quick(40)
@given(trace=traces(most_nodes=40, most_jobs=25, most_gpus=160))
def test_gangs_on_several_racks_get_the_same_nodes(trace: Trace) -> None:
    assert_same(trace)


@quick(60)
@given(
    trace=traces(most_nodes=6, most_jobs=40, most_gpus=48),
    window=st.integers(1, 12),
    remembered=st.integers(1, 20),
    weighed_after=st.sampled_from((2, 20)),
    tried=st.integers(0, 3),
    interval_s=st.sampled_from((11.0, 300.0)),
)
def test_small_windows_and_short_memories_change_both_alike(
    trace: Trace, window: int, remembered: int, weighed_after: int, tried: int, interval_s: float
) -> None:
    with small(remembered, weighed_after, tried):
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
    with mock.patch.object(flat_site.FlatSite, "is_held_back", return_value=False):
        unlike = FederationReplay().replay(trace, AUDITED)
    assert unlike != FederationReplay().replay(trace, AUDITED), "the trace no longer shows it"
