"""No timetable waits less than the oracle's: beside brute force, and beside every policy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import permutations
from random import Random

import pytest

from federator.errors import InvalidRequest
from federator.sim.baselines.hived import HivedReplay
from federator.sim.baselines.sia import Knowledge, SiaReplay
from federator.sim.baselines.themis import ThemisReplay
from federator.sim.experiments.base import seeded
from federator.sim.oracle import OracleAnswer, best_timetable, wait_s
from federator.sim.registry import TRACE_POLICIES
from federator.sim.trace import Timetable, Trace, TracePolicy
from tests.fakes.traces import pool, replay, trace

pytestmark = pytest.mark.slow

ENOUGH_S = 60.0
PREEMPTS = ("tiresias", "themis", "hived")
CAREFUL: tuple[TracePolicy | str, ...] = (
    "pool-fifo-count",
    "sia-vc",
    SiaReplay(knowledge=Knowledge.PERFECT),
)


def drawn(draw: Random, most_jobs: int, step_s: int = 1) -> Trace:
    """Two pools of 4 GPUs, and jobs that come close together."""
    lines = [
        f"{k} {draw.randrange(6) * step_s} {draw.randint(1, 8) * step_s} {draw.randint(1, 4)} "
        + draw.choice(("ant", "bee"))
        for k in range(draw.randint(1, most_jobs))
    ]
    return trace("\n".join(lines), pool("ant", 1, 4), pool("bee", 1, 4))


def alone(jobs: Trace) -> Timetable:
    return replay(jobs, "pool-fifo-count")


def best(jobs: Trace, latest_s: Sequence[int] | None = None) -> OracleAnswer:
    """From the worst timetable that slows no job."""
    found = best_timetable(jobs, alone(jobs), latest_s=latest_s, limit_s=ENOUGH_S)
    check(jobs, found.timetable)
    return found


def check(jobs: Trace, table: Timetable) -> None:
    """No GPU is used twice, and each job runs after it came, as long as it lasts."""
    for row, start_s in enumerate(table.start_s):
        assert start_s >= jobs.submit_s[row]
        assert table.end_s[row] == start_s + jobs.duration_s[row]
        used = [
            jobs.gpus[other]
            for other in range(len(jobs))
            if table.start_s[other] <= start_s < table.end_s[other]
        ]
        assert sum(used) <= jobs.capacity


def brute_force_s(jobs: Trace, latest_s: Sequence[int] | None = None) -> int:
    """The least waiting, of each order in which jobs are put where they fit first."""
    found = []
    for order in permutations(range(len(jobs))):
        start_s: dict[int, int] = {}
        for row in order:
            start_s[row] = _first_fit(jobs, row, start_s)
        if latest_s is None or all(start_s[row] <= latest_s[row] for row in order):
            found.append(sum(start_s.values()) - sum(jobs.submit_s))
    return min(found)


def _first_fit(jobs: Trace, row: int, start_s: dict[int, int]) -> int:
    at_s = jobs.submit_s[row]
    while not _fits(jobs, row, at_s, start_s):
        at_s += 1
    return at_s


def _fits(jobs: Trace, row: int, at_s: int, start_s: dict[int, int]) -> bool:
    for now_s in range(at_s, at_s + jobs.duration_s[row]):
        used = sum(
            jobs.gpus[other]
            for other, begin_s in start_s.items()
            if begin_s <= now_s < begin_s + jobs.duration_s[other]
        )
        if used + jobs.gpus[row] > jobs.capacity:
            return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_brute_force_finds_no_less_waiting(seed: int) -> None:
    jobs = drawn(seeded(f"brute force {seed}"), most_jobs=5)
    latest_s = alone(jobs).start_s
    any_order, careful = best(jobs), best(jobs, latest_s)
    assert (any_order.wait_s, any_order.proven) == (brute_force_s(jobs), True)
    assert (careful.wait_s, careful.proven) == (brute_force_s(jobs, latest_s), True)


@pytest.mark.parametrize("seed", range(50))
def test_no_policy_waits_less(seed: int) -> None:
    jobs = drawn(seeded(f"policies {seed}"), most_jobs=8, step_s=60)
    latest_s = alone(jobs).start_s
    any_order, careful = best(jobs), best(jobs, latest_s)
    assert any_order.proven
    assert careful.proven
    assert any_order.wait_s <= careful.wait_s
    held, kept = ThemisReplay(lease_s=None), HivedReplay(preempts=False)
    for policy in (*TRACE_POLICIES, held, kept, *CAREFUL):
        if policy not in PREEMPTS:
            assert any_order.wait_s <= wait_s(jobs, replay(jobs, policy)), policy
    for policy in CAREFUL:
        assert careful.wait_s <= wait_s(jobs, replay(jobs, policy)), policy
    starts = zip(careful.timetable.start_s, latest_s, strict=True)
    assert all(start_s <= most_s for start_s, most_s in starts)


def test_idle_gpus_are_kept_for_a_smaller_job_that_is_about_to_come() -> None:
    """SIA sec. 4.1 names this as what only an oracle does."""
    jobs = trace("wide 0 100 4\nsmall 1 1 1", pool("ant", 1, 4))
    assert best(jobs).timetable.start_s == [2, 1]
    assert best(jobs).wait_s == 2
    assert best(jobs, alone(jobs).start_s).timetable.start_s == [0, 100]
    assert wait_s(jobs, replay(jobs, "gssf")) == 99


def test_steps_are_as_long_as_the_times_allow() -> None:
    jobs = trace("a 600 12000 3\nb 600 24000 3\nc 1200 600 1", pool("ant", 1, 4))
    assert best(jobs).wait_s == 12000  # 20 steps of 10 min; in seconds it would be too large


def test_without_time_the_known_timetable_is_the_answer_and_is_not_proven() -> None:
    jobs = trace("wide 0 100 4\nsmall 1 1 1", pool("ant", 1, 4))
    found = best_timetable(jobs, alone(jobs), limit_s=0.0)
    assert (found.wait_s, found.timetable.start_s) == (99, [0, 100])
    assert not found.proven
    assert 0 <= found.bound_s < 99


def test_where_nobody_waits_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    jobs = trace("a 0 9 2\nb 0 9 2", pool("ant", 1, 4))
    assert best(jobs).proven
    with pytest.raises(InvalidRequest, match=r"highspy.*federator\[planner\]"):
        best(trace("a 0 9 4\nb 0 9 2", pool("ant", 1, 4)))


def test_a_case_that_is_too_large_is_refused() -> None:
    jobs = trace("a 0 50000 1\nb 0 50001 1\nc 1 9 1", pool("ant", 1))
    with pytest.raises(
        InvalidRequest, match=r"small cases: 3 jobs may start at \d+ instants of 1 "
    ):
        best(jobs)
