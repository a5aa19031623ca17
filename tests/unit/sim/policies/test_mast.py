"""The federation's own code on traces: what its promises come to, by hand."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from federator.sim.policies.mast import MastReplay
from federator.sim.trace import ReplayOptions
from tests.fakes.traces import pool, replay, starts, trace

ANT, BEE = pool("ant", 1, 4), pool("bee", 1, 4)


def test_a_job_runs_wherever_there_is_room_now() -> None:
    jobs = trace("a 0 10 4 ant\nb 1 10 4 ant\nc 2 10 2 ant", ANT, BEE)
    assert starts(jobs, "mast") == {"a": 0, "b": 1, "c": 10}
    assert replay(jobs, "mast").site[:2] == ["ant", "bee"]


def test_who_is_within_its_pools_quota_goes_before_who_borrows() -> None:
    """ant has its four GPUs and waits for four more; bee comes later and has had none."""
    jobs = trace("a 0 10 4 ant\nb 0 10 4 ant\nmore 1 10 4 ant\nown 2 10 4 bee", ANT, BEE)
    at = starts(jobs, "mast")
    assert (at["own"], at["more"]) == (10, 10)
    jobs = trace("a 0 10 4 ant\nb 0 20 4 ant\nmore 1 10 4 ant\nown 2 10 4 bee", ANT, BEE)
    at = starts(jobs, "mast")
    assert (at["own"], at["more"]) == (10, 20)


def test_what_does_not_fit_blocks_nobody() -> None:
    jobs = trace("a 0 10 3 ant\nwide 1 5 4 ant\nthin 2 5 1 ant", ANT)
    assert starts(jobs, "mast") == {"a": 0, "wide": 10, "thin": 2}


def test_a_job_of_several_nodes_takes_as_few_as_hold_it() -> None:
    jobs = trace("a 0 10 6 ant\nb 0 10 2 ant\nc 0 10 1 ant", pool("ant", 2, 4))
    assert starts(jobs, "mast") == {"a": 0, "b": 0, "c": 10}


def test_times_too_long_to_be_exact_are_refused_instead_of_ticked_through() -> None:
    with pytest.raises(InvalidRequest, match="too much for exact times"):
        replay(trace(f"a 0 {2**52} 4 ant", ANT), "mast")


# ---- with settings ----


def test_settings_reach_rules_and_physics() -> None:
    policy = MastReplay.adjusted({"preempt_gpus": 8.0, "save_s": 60.0, "local_gpus": 4.0})
    assert policy.rules.preempt_gpus == 8.0
    assert (policy.physics.save_s, policy.physics.local_gpus) == (60.0, 4)


@pytest.mark.parametrize(
    "settings", [{"colour": 1.0}, {"save_s": -1.0}, {"grace_s": float("nan")}, {"window": 3.0}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match=r"expected"):
        MastReplay.adjusted(settings)


def test_what_was_borrowed_is_given_back_by_eviction_and_saving_takes_its_time() -> None:
    jobs = trace("a 0 5000 4 ant\nb 1 5000 4 ant\nc 2000 100 4 bee", ANT, BEE)
    policy = MastReplay.adjusted({"preempt_gpus": 8.0, "save_s": 60.0, "cooldown_s": 0.0})
    timetable = policy.replay(jobs, ReplayOptions(audit=True))
    assert timetable.start_s == [0, 2160, 2060]
    assert timetable.preemptions == [0, 1, 0]
    assert timetable.end_s[1] == 2160 + 5000 - (2000 - 1)
