"""Policies that bind early or look ahead, on traces that were worked by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from federator.errors import InvalidRequest
from federator.planner.boosted import FIRST_S
from federator.sim.baselines.sia import Foresight, Knowledge, PerfectForesight, SiaReplay
from federator.sim.generate.sia import SiaWorkload
from federator.sim.trace import ReplayOptions, Trace
from tests.fakes.traces import pool, replay, starts, trace

pytestmark = pytest.mark.slow

TWO = pool("ant", 2), pool("bee", 2)
PERFECT = SiaReplay(knowledge=Knowledge.PERFECT, windows_s=(5, 10))


def bound(jobs: Trace) -> dict[str, str]:
    return dict(zip(jobs.job_id, replay(jobs, "federated").site, strict=True))


def test_federated_binds_to_the_least_demand_relative_to_supply() -> None:
    # a: 0 of both, the first named. b: ant 1/2, bee 0. c: ant 1/2, bee 2/8. d: ant 1/2, bee 4/8.
    jobs = trace("a 0 9 1\nb 0 9 2\nc 0 9 2\nd 0 9 1", pool("ant", 2), pool("bee", 2, 4))
    assert bound(jobs) == {"a": "ant", "b": "bee", "c": "bee", "d": "ant"}


def test_federated_counts_who_waits_and_no_longer_who_has_ended() -> None:
    # At 1 ant has a (2) and c waiting (2), bee has b (2): d goes to bee. At 5 b has ended, d runs.
    jobs = trace("a 0 9 2\nb 0 5 2\nc 0 9 2\nd 1 1 2\ne 5 1 1", *TWO)
    assert bound(jobs) == {"a": "ant", "b": "bee", "c": "ant", "d": "bee", "e": "bee"}
    assert starts(jobs, "federated") == {"a": 0, "b": 0, "c": 9, "d": 5, "e": 6}


def test_federated_stays_where_it_was_bound() -> None:
    # d came when both had as much demand; bee is idle from 1 on, and d waits for ant until 9.
    jobs = trace("a 0 9 2\nb 0 1 2\nd 0 3 2", *TWO)
    assert (bound(jobs)["d"], starts(jobs, "federated")["d"]) == ("ant", 9)


def test_federated_does_not_bind_a_job_to_a_pool_that_is_too_small() -> None:
    jobs = trace("a 0 9 3 bee\nb 0 9 3 bee", pool("ant", 2), pool("bee", 4))
    assert bound(jobs) == {"a": "bee", "b": "bee"}


def test_federated_places_by_the_nodes_of_the_pool_it_is_bound_to() -> None:
    # c (2 GPUs) needs one of bee's nodes of 2 to itself; on ant's nodes of 1 it would take two.
    # b and b2 share a node, d has the other one until 5; from 2 on both have one GPU free.
    jobs = trace("a 0 99 2\nb 0 2 1\nb2 0 9 1\nd 0 5 1\nc 3 3 2", pool("ant", 2), pool("bee", 2, 2))
    assert bound(jobs) == {"a": "ant", "b": "bee", "b2": "bee", "d": "bee", "c": "bee"}
    assert starts(jobs, "federated")["c"] == 5


def test_virtual_clocks_lend_what_the_owner_does_not_need_yet() -> None:
    # bee's job comes at 6. ant's b would end before, c would not, and waits for its own turn.
    jobs = trace("a 0 9 2\nc 0 7 2\nb 0 6 2\nx 6 1 2 bee", *TWO)
    assert starts(jobs, "sia-vc") == {"a": 0, "c": 7, "b": 0, "x": 6}
    assert starts(jobs, "pool-fifo-count") == {"a": 0, "c": 9, "b": 16, "x": 6}


def test_virtual_clocks_let_a_job_run_into_its_own_reservation() -> None:
    # b would run from 2 to 12 alone; from 0 on bee's GPUs until 2, then its own count.
    jobs = trace("a 0 2 2\nb 0 10 2\nx 2 9 2 bee", *TWO)
    assert starts(jobs, "sia-vc") == {"a": 0, "b": 0, "x": 2}


def test_perfect_forecasts_lend_for_a_whole_window_or_not_at_all() -> None:
    # bee's job comes at 6: nothing within 5 s, so b, of at most 5 s, may have bee's GPUs; c, of at
    # most 10 s, may not, though it would end at 6.
    jobs = trace("a 0 9 2\nc 0 6 2\nb 0 5 2\nx 6 1 2 bee", *TWO)
    assert starts(jobs, PERFECT) == {"a": 0, "b": 0, "x": 6, "c": 7}


def test_a_window_holds_who_comes_in_its_last_second_and_not_who_comes_at_its_end() -> None:
    # b may run on bee's GPUs from 0 to 5 if nobody comes there before 5.
    late = trace("a 0 9 2\nb 0 5 2\nx 5 1 2 bee", *TWO)
    assert starts(late, PERFECT) == {"a": 0, "b": 0, "x": 5}
    in_time = trace("a 0 9 2\nb 0 5 2\nx 4 1 2 bee", *TWO)
    assert starts(in_time, PERFECT) == {"a": 0, "x": 4, "b": 5}


def test_jobs_longer_than_all_windows_wait_for_their_own_gpus() -> None:
    jobs = trace("a 0 20 2\nb 0 11 2", *TWO)
    assert starts(jobs, PERFECT) == {"a": 0, "b": 20}
    assert starts(jobs, "sia-vc") == {"a": 0, "b": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSia(SiaReplay):
    """Durations are known; these loads are forecast: by time (the last that is past), by pool."""

    loads: tuple[tuple[int, tuple[int, ...]], ...]

    def foresight(self, trace: Trace, seed: int) -> Foresight:  # noqa: ARG002
        return FixedForesight(trace, self)


class FixedForesight(PerfectForesight):
    def __init__(self, trace: Trace, policy: FixedSia) -> None:
        super().__init__(trace, policy.windows_s)
        self.loads = policy.loads

    def new_load(self, now_s: int, window: int) -> Sequence[int]:  # noqa: ARG002
        return [load for since_s, load in self.loads if since_s <= now_s][-1]


def test_forecasts_are_looked_at_again_every_five_minutes_while_jobs_wait() -> None:
    # Nothing happens between 7 and 1007, but from 400 on nobody is expected at bee any more: b
    # starts at the next step, 600 s after the first submission.
    policy = FixedSia(windows_s=(300,), loads=((0, (0, 2)), (400, (0, 0))))
    jobs = trace("a 7 1000 2\nb 7 50 2", *TWO)
    assert starts(jobs, policy) == {"a": 7, "b": 607}


def test_what_is_forecast_is_kept_up_to_what_the_owner_has_left() -> None:
    # bee runs a dedicated job of 1, so it can want 1 more at most, however much is forecast.
    policy = FixedSia(windows_s=(300,), loads=((0, (9, 9)),))
    jobs = trace("x 0 9 1 bee\na 0 9 4\nb 0 5 2\nc 0 5 1", pool("ant", 4), pool("bee", 4))
    assert starts(jobs, policy) == {"x": 0, "a": 0, "b": 9, "c": 9}
    policy = FixedSia(windows_s=(300,), loads=((0, (9, 1)),))
    assert starts(jobs, policy) == {"x": 0, "a": 0, "b": 0, "c": 5}


def test_an_owner_waits_if_the_forecast_was_wrong() -> None:
    policy = FixedSia(windows_s=(300,), loads=((0, (0, 0)),))
    jobs = trace("a 0 9 2\nb 0 5 2\nx 1 5 1 bee", *TWO)
    assert starts(jobs, policy) == {"a": 0, "b": 0, "x": 5}


def test_the_pool_that_uses_less_of_its_own_borrows_first() -> None:
    # At 0 cat's GPU is idle. ant holds 2 of 2, bee 1 of 2 and b2 does not fit there.
    policy = FixedSia(windows_s=(300,), loads=((0, (0, 0, 0)),))
    jobs = trace("a 0 9 2\na1 0 5 1\nb 0 9 1 bee\nb2 0 9 2 bee\nb3 0 5 1 bee", *TWO, pool("cat", 1))
    assert starts(jobs, policy) == {"a": 0, "b": 0, "b3": 0, "a1": 5, "b2": 9}


def test_the_learnt_forecasts_are_those_of_the_command() -> None:
    # Nothing was ever seen, so the waiting jobs count as long and wait for their own GPUs.
    jobs = trace("a 0 9 2\nb 0 5 2", *TWO)
    assert starts(jobs, "sia") == {"a": 0, "b": 9}
    # Once five like it have ended, b's length is known and nobody comes to bee.
    many = "\n".join(f"s{k} {k} 1 2" for k in range(5))
    jobs = trace(f"{many}\na 400 99 2\nb 400 5 2", *TWO)
    assert starts(jobs, "sia")["b"] == 400


def test_random_forecasts_follow_the_seed() -> None:
    jobs = trace(
        "\n".join(
            f"j{k} {k * 37 % 900} {1 + k * 53 % 700} {1 + k % 2} {'ab'[k % 2]}" for k in range(120)
        ),
        pool("a", 3),
        pool("b", 3),
    )
    for knowledge in (Knowledge.RANDOM, Knowledge.RANDOM_ARRIVALS):
        policy = SiaReplay(knowledge=knowledge)
        one, same, other = (policy.replay(jobs, ReplayOptions(seed=k)).start_s for k in (1, 1, 2))
        assert one == same
        assert one != other


def test_a_replay_in_which_the_trees_learn_is_the_same_each_time() -> None:
    jobs = SiaWorkload(span_s=5 * 86_400, queues=2).generate(seed=1)
    learnt, again = (replay(jobs, "sia") for _ in range(2))
    assert learnt == again
    assert jobs.submit_s[-1] > FIRST_S


def test_without_the_library_there_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(InvalidRequest, match=r"need xgboost.* install federator\[forecast\]"):
        starts(trace("a 0 9 2", *TWO), "sia")


@pytest.mark.parametrize("jobs", ["a 0 158112001 1", "a 0 9 1\nb 158112000 9 1"])
def test_sia_refuses_a_trace_of_more_than_five_years(jobs: str) -> None:
    with pytest.raises(InvalidRequest, match="lasts more than 1830 days"):
        replay(trace(jobs, *TWO), "sia")


def test_sia_refuses_a_queue_that_lasts_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federator.sim.baselines.sia.MAX_SPAN_S", 2 * 86_400)
    jobs = trace("\n".join(f"{name} 0 100000 1" for name in "abc"), pool("ant", 1))
    with pytest.raises(InvalidRequest, match="lasts more than 2 days"):
        SiaReplay(knowledge=Knowledge.PERFECT).replay(jobs, ReplayOptions())
