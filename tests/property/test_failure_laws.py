"""What holds of failure rates, and of how often a job is advised to save."""

from __future__ import annotations

from math import inf, isclose, sqrt

from hypothesis import given
from hypothesis import strategies as st

from federator.model.workload import SiteName
from federator.sched.state.failures import (
    DAY_S,
    PRIOR_FAILURES_PER_NODE_DAY,
    PRIOR_NODE_DAYS,
    NodeFailures,
    checkpoint_interval_s,
    mtbf_s,
)

A, B = SiteName("alpine"), SiteName("baker")
RUNS = st.lists(st.tuples(st.integers(0, 5000), st.floats(-1e3, 1e8), st.booleans()), max_size=20)
SAVES = st.floats(1e-3, 1e5)
MEANS = st.floats(1.0, 1e9)


@given(RUNS)
def test_a_rate_is_that_of_the_closed_form_and_above_0(runs: list[tuple[int, float, bool]]) -> None:
    failures = NodeFailures()
    for nodes, run_s, failed in runs:
        failures.ran(A, nodes, run_s, failed=failed)
    node_days = sum(nodes * max(0.0, run_s) for nodes, run_s, _ in runs) / DAY_S
    count = PRIOR_FAILURES_PER_NODE_DAY * PRIOR_NODE_DAYS + sum(failed for *_, failed in runs)
    expected = count / (PRIOR_NODE_DAYS + node_days) / DAY_S
    assert failures.per_node_s(A) > 0
    assert isclose(failures.per_node_s(A), expected, rel_tol=1e-9)
    assert failures.per_node_s(B) == NodeFailures().per_node_s(B)  # of each site its own


@given(SAVES, SAVES, MEANS, MEANS)
def test_the_interval_grows_with_what_a_save_takes_and_with_the_time_between_failures(
    save_s: float, longer_s: float, mean_s: float, rarer_s: float
) -> None:
    save_s, longer_s = sorted((save_s, longer_s))
    mean_s, rarer_s = sorted((mean_s, rarer_s))
    interval_s = checkpoint_interval_s(save_s, mean_s)
    assert interval_s <= checkpoint_interval_s(longer_s, mean_s)
    assert interval_s <= checkpoint_interval_s(save_s, rarer_s)


@given(SAVES, st.integers(1, 10_000), st.floats(1e-12, 1e-3))
def test_the_interval_is_that_of_young(save_s: float, nodes: int, per_node_s: float) -> None:
    found_s = checkpoint_interval_s(save_s, mtbf_s(nodes, per_node_s))
    assert isclose(found_s, sqrt(2 * save_s / (nodes * per_node_s)), rel_tol=1e-9)


def test_nothing_is_advised_where_nothing_is_known() -> None:
    assert checkpoint_interval_s(0.0, 100.0) == 0.0
    assert checkpoint_interval_s(inf, 100.0) == 0.0
    assert checkpoint_interval_s(10.0, mtbf_s(0, 1.0)) == 0.0
