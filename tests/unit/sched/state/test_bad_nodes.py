"""For how long a workload avoids a node that failed it."""

from __future__ import annotations

from federator.model.workload import SiteName
from federator.sched.state.bad_nodes import AVOID_NODE_MAX_S, AVOID_NODE_S, BadNodes

A, B = SiteName("alpine"), SiteName("baker")


def test_a_node_that_fails_again_is_avoided_for_twice_as_long() -> None:
    bad, now_s, lasted = BadNodes(), 0.0, []
    for _ in range(8):
        bad = bad.blamed(A, ("a1",), now_s)
        (until_s,) = bad.ends_s()
        lasted.append(until_s - now_s)
        now_s = until_s
    assert lasted[:3] == [AVOID_NODE_S, 2 * AVOID_NODE_S, 4 * AVOID_NODE_S]
    assert lasted[-1] == AVOID_NODE_MAX_S


def test_it_is_avoided_at_its_site_alone_and_until_its_time() -> None:
    bad = BadNodes().blamed(A, ("n2", "n1"), 100.0)
    assert bad.avoided(A, 100.0) == ("n1", "n2")
    assert bad.avoided(B, 100.0) == ()
    assert bad.avoided(A, 100.0 + AVOID_NODE_S) == ()


def test_who_ran_well_on_it_forgets_its_failures_but_not_those_of_now() -> None:
    bad = BadNodes().blamed(A, ("n1",), 0.0)
    bad = bad.blamed(A, ("n2",), 1000.0)
    bad = bad.after_run(A, ("n1", "n2", "n3"), 1000.0)
    bad = bad.blamed(A, ("n1",), 2000.0)
    assert bad.avoided(A, 1000.0 + AVOID_NODE_S - 1) == ("n1", "n2")
    assert sorted(bad.ends_s()) == [1000.0 + AVOID_NODE_S, 2000.0 + AVOID_NODE_S]
