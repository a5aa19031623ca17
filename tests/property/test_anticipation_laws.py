"""Plans and histories say what plain loops over all that happened would say."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.planner.anticipation import PoolQueue, length_class, plan_starts
from federator.planner.history import FEATURES, PoolHistory
from federator.planner.resource_plan import ResourcePlan

STEP_S = 10
WINDOWS_S = (10, 30, 120)
BEGIN_S = 1000
DAY_S = 86_400

intervals = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 9))


@settings(max_examples=200, deadline=None)
@given(
    first=st.lists(intervals.filter(lambda one: one[0] < one[1]), max_size=8),
    made=st.lists(st.tuples(intervals, st.booleans()), max_size=30),
    asked=st.lists(
        st.tuples(st.integers(0, 70), st.integers(0, 70), st.integers(0, 30)),
        min_size=1,
        max_size=10,
    ),
)
def test_a_plan_is_the_sum_of_its_reservations_at_every_second(
    first: list[tuple[int, int, int]],
    made: list[tuple[tuple[int, int, int], bool]],
    asked: list[tuple[int, int, int]],
) -> None:
    plan, seconds = ResourcePlan(first), [0] * 80
    for some, released in made:
        plan.reserve(*some)
        if released:
            plan.release(*some)
    for start_s, end_s, gpus in [*first, *(some for some, released in made if not released)]:
        for at_s in range(start_s, end_s):
            seconds[at_s] += gpus
    for start_s, until_s, gpus in asked:
        above = (at_s for at_s in range(start_s, until_s) if seconds[at_s] > gpus)
        assert plan.first_above(start_s, until_s, gpus) == next(above, until_s)


@settings(max_examples=5, deadline=None)
@given(begin_s=st.integers(0, 9))
def test_a_plan_that_forgets_the_past_keeps_the_future(begin_s: int) -> None:
    plan = ResourcePlan()
    for at_s in range(20_000):
        plan.reserve(begin_s + at_s, begin_s + at_s + 3, 1)
        plan.forget(begin_s + at_s)
        assert plan.first_above(begin_s + at_s, begin_s + at_s + 9, 3) == begin_s + at_s + 9
    assert plan.first_above(begin_s + 19_999, begin_s + 20_100, 2) == begin_s + 19_999


happenings = st.lists(
    st.tuples(st.integers(1, 3000), st.integers(0, 1), st.integers(0, 8), st.integers(1, 900)),
    max_size=40,
)
"""Arrival after the begin, pool, GPUs, duration; each starts as it comes."""


def told(jobs: list[tuple[int, int, int, int]], until_s: int) -> PoolHistory:
    """A history that was told of all until then, in order; a job is expected to run 2 x as long."""
    history = PoolHistory(2, WINDOWS_S, BEGIN_S, STEP_S)
    events = [(at_s, 1, k) for k, (at_s, *_) in enumerate(jobs)]
    events += [(at_s + lasts_s, 0, k) for k, (at_s, _, _, lasts_s) in enumerate(jobs)]
    for at_s, comes, k in sorted(events):
        if at_s > until_s:
            break
        history.close(BEGIN_S + at_s - 1)
        if comes:
            history.arrived(jobs[k][1], jobs[k][2])
            history.started(k, jobs[k][1], BEGIN_S + at_s + 2 * jobs[k][3])
        else:
            history.ended(k)
    history.close(BEGIN_S + until_s)
    return history


@settings(max_examples=100, deadline=None)
@given(jobs=happenings, now=st.integers(0, 300), window=st.integers(0, 2))
def test_features_are_counts_of_what_happened(
    jobs: list[tuple[int, int, int, int]], now: int, window: int
) -> None:
    now_s, k_s = now * STEP_S, WINDOWS_S[window]
    history = told(jobs, now_s)
    assert history.steps == now + 1
    found = history.features(window, history.steps, history.steps)
    assert found.shape == (1, 2, FEATURES)

    def came(pool: int, since_s: int, until_s: int) -> int:
        return sum(p == pool and since_s < at_s <= until_s for at_s, p, _, _ in jobs)

    def ended(pool: int, since_s: int) -> int:
        return sum(p == pool and since_s < at_s + d <= now_s for at_s, p, _, d in jobs)

    for pool in (0, 1):
        periodic = [
            came(pool, now_s - x * p_s, min(now_s, now_s - x * p_s + k_s))
            for p_s in (3600, DAY_S)
            for x in (1, 2, 3)
        ]
        recent = [came(pool, now_s - x * k_s, now_s) for x in (1, 10, 100)]
        completions = [ended(pool, now_s - x * k_s) for x in (1, 10, 100)]
        left_s = [
            at_s + 2 * d - now_s for at_s, p, _, d in jobs if p == pool and at_s <= now_s < at_s + d
        ]
        future = [sum(s <= k_s for s in left_s), sum(s > k_s for s in left_s)]
        assert found[0, pool].tolist() == [*periodic, *recent, *completions, *future]
    lately = [came(pool, now_s - k_s, now_s) > 0 for pool in (0, 1)]
    assert history.came_lately(window).tolist() == lately


@settings(max_examples=100, deadline=None)
@given(jobs=happenings, now=st.integers(0, 300), window=st.integers(0, 2), quanta=st.integers(1, 4))
def test_the_load_estimate_is_the_most_of_any_recent_stretch(
    jobs: list[tuple[int, int, int, int]], now: int, window: int, quanta: int
) -> None:
    now_s, k_s = now * STEP_S, WINDOWS_S[window]
    found = told(jobs, now_s).most_load(window, quanta)
    for pool in (0, 1):
        loads = [
            sum(g for at_s, p, g, _ in jobs if p == pool and until_s - k_s < at_s <= until_s)
            for until_s in range(max(0, now_s - (quanta - 1) * k_s), now_s + 1, STEP_S)
        ]
        assert found[pool] == max(loads)


@settings(max_examples=60, deadline=None)
@given(jobs=happenings, now=st.integers(0, 200), later=st.integers(0, 100))
def test_what_was_known_does_not_change_with_what_comes_later(
    jobs: list[tuple[int, int, int, int]], now: int, later: int
) -> None:
    before, after = told(jobs, now * STEP_S), told(jobs, (now + later) * STEP_S)
    for window in range(3):
        rows = before.features(window, 1, now + 1)
        assert np.array_equal(rows, after.features(window, 1, now + 1))


@settings(max_examples=60, deadline=None)
@given(jobs=happenings, window=st.integers(0, 2))
def test_labels_say_whether_anything_came_in_the_window(
    jobs: list[tuple[int, int, int, int]], window: int
) -> None:
    last = 300 - WINDOWS_S[window] // STEP_S
    found = told(jobs, 300 * STEP_S).any_came(window, 1, last + 1)
    for step in range(last + 1):
        for pool in (0, 1):
            after_s = step * STEP_S
            came = any(
                p == pool and after_s < at_s <= after_s + WINDOWS_S[window]
                for at_s, p, _, _ in jobs
            )
            assert found[step, pool] == came


queues = st.lists(
    st.tuples(
        st.integers(1, 8),
        st.lists(st.tuples(st.integers(0, 8), st.integers(0, 15)), max_size=6),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=4,
)
"""Pools: GPUs, waiting jobs (GPUs, duration), and what is forecast to come."""


@settings(max_examples=300, deadline=None)
@given(pools=queues, taken=st.integers(0, 12))
def test_a_plan_starts_no_more_than_is_idle_and_spares_what_owners_will_want(
    pools: list[tuple[int, list[tuple[int, int]], int]], taken: int
) -> None:
    lines = [PoolQueue(gpus) for gpus, _, _ in pools]
    for line, (_, jobs, _) in zip(lines, pools, strict=True):
        for number, (gpus, lasts_s) in enumerate(jobs):
            line.add(number, gpus, length_class(lasts_s, (5, 10)))
    idle = max(0, sum(gpus for gpus, _, _ in pools) - taken)
    load = [new for _, _, new in pools]
    starts = plan_starts(lines, idle, lambda _: load, windows=2)
    left = idle - sum(start.gpus for start in starts)
    assert left >= 0
    for line in lines:
        assert 0 <= line.dedicated_gpus <= line.quota_gpus
    for k in range(len(pools)):
        own = [start.number for start in starts if start.pool == k and start.dedicated]
        assert own == list(range(len(own))), "dedicated jobs start in order"
    if any(not start.dedicated and start.gpus for start in starts):
        wanted = sum(
            min(line.pending_gpus + new, line.unused_gpus)
            for line, new in zip(lines, load, strict=True)
        )
        assert wanted <= left
    # One that began out of order may have let another become the first of its pool, which then may
    # have its own GPUs at the next plan: the stages run once each (Figure 7). Nobody else starts.
    again = plan_starts(lines, left, lambda _: load, windows=2)
    assert all(start.dedicated for start in again)
