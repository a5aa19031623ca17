"""The daemon estimates starts beside its turns, and an error there harms nothing."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from federator.daemon import start_forecasts
from federator.daemon.start_forecasts import MOST_TRIALS, PATIENCE_S, StartForecasts
from federator.model.start_estimate import NoEstimate, StartEstimate, StartHelp
from federator.sched.passes.federation import Federation
from federator.sched.starts import estimates
from federator.sched.starts.calibration import Wait
from federator.sched.starts.estimates import SAME_VIEW_S
from federator.sched.starts.plays import PLAYS
from federator.sched.starts.queue_view import PlayedQueue, queue_view
from tests.fakes.build import draft, gang, rack, workload
from tests.fakes.loopback import Loopback


def queue_of_two() -> tuple[Loopback, StartForecasts]:
    """One runs on the only node, one waits; one before them has ended, so lengths are known."""
    f = Loopback({"alpine": rack("a", 1)}, duration_s=600.0)
    f.submit(draft())
    f.run_until_all_end()
    f.submit(draft())
    f.submit(draft())
    f.run_for(60.0)
    return f, StartForecasts(f.federation, f.clock, f.clock)


def test_a_look_plays_the_queue_for_those_that_wait() -> None:
    f, starts = queue_of_two()
    waits = max(f.federation.ledger.entries)
    assert starts.of(waits).none == NoEstimate.NOT_YET.value
    asyncio.run(starts.look())
    assert starts.of(waits).none == NoEstimate.UNTRIED.value  # it was played


def test_the_hit_rate_is_of_as_many_as_were_shown() -> None:
    _, starts = queue_of_two()
    known, given = starts.estimates.calibration, Wait(0.0, 10.0, 100.0)
    for _ in range(40):
        known.judge(given, (), 50.0, counts=False)
    assert (starts.row().judged, starts.row().latest) == (40, 0)
    known.judge(given, (), 500.0)
    assert (starts.row().latest, starts.row().hit_frac) == (1, 0.0)


def test_a_trial_is_told_its_estimate_by_the_next_look() -> None:
    _, starts = queue_of_two()
    told: list[StartEstimate] = []
    starts.try_out(workload(999, gang(1)), told.append)
    assert told == []
    asyncio.run(starts.look())
    assert [start.none for start in told] == [NoEstimate.UNTRIED.value]


def test_too_many_trials_are_told_at_once_that_there_is_none() -> None:
    _, starts = queue_of_two()
    told: list[StartEstimate] = []
    for _ in range(MOST_TRIALS + 1):
        starts.try_out(workload(999, gang(1)), told.append)
    assert [start.none for start in told] == [NoEstimate.NOT_YET.value]


def test_changes_are_tried_as_trials_are() -> None:
    f, starts = queue_of_two()
    told: list[tuple[StartHelp, ...]] = []
    for _ in range(MOST_TRIALS + 1):
        starts.try_changes(max(f.federation.ledger.entries), told.append)
    assert told == [()]  # one too many
    asyncio.run(starts.look())
    assert told == [()] * (MOST_TRIALS + 1)  # nothing can be told before estimates are


def test_a_trial_is_answered_also_when_its_plays_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    _, starts = queue_of_two()
    monkeypatch.setattr(starts.estimates, "begin_trial", lambda *_: 1 / 0)
    told: list[StartEstimate] = []
    starts.try_out(workload(999, gang(1)), told.append)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(starts.look())
    assert [start.none for start in told] == [NoEstimate.NOT_YET.value]


class Ticking:
    """A clock of which each look takes so long."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def test_a_trial_whose_plays_take_too_long_is_told_that_there_is_none_yet() -> None:
    f, _ = queue_of_two()
    starts = StartForecasts(f.federation, f.clock, Ticking(1.0))
    told: list[StartEstimate] = []
    starts.try_out(workload(999, gang(1)), told.append)
    asyncio.run(starts.look())
    assert [start.none for start in told] == [NoEstimate.NOT_YET.value]


def test_trials_rest_as_long_as_looks_do() -> None:
    f, _ = queue_of_two()
    elapsed = Ticking(0.001)
    starts = StartForecasts(f.federation, f.clock, elapsed)
    told: list[str] = []
    for _ in range(2):
        starts.try_out(workload(999, gang(1)), lambda start: told.append(start.none))
    asyncio.run(starts.look())
    assert told == [NoEstimate.UNTRIED.value]  # the second waits for the end of the rest
    elapsed.now_s += PATIENCE_S
    asyncio.run(starts.look())
    assert told == [NoEstimate.UNTRIED.value, NoEstimate.NOT_YET.value]


def test_trials_are_answered_while_nothing_else_is_due() -> None:
    f, _ = queue_of_two()
    told: list[str] = []

    async def ask() -> None:
        starts = StartForecasts(f.federation, f.clock, asyncio.get_running_loop().time)
        task, done = asyncio.create_task(starts.run()), asyncio.Event()

        def tell(start: StartEstimate) -> None:
            told.append(start.none)
            if len(told) == 3:
                done.set()

        await asyncio.sleep(0)
        for _ in range(3):
            starts.try_out(workload(999, gang(1)), tell)
        await asyncio.wait_for(done.wait(), 2 * PATIENCE_S)
        task.cancel()

    asyncio.run(ask())
    assert told[0] == NoEstimate.UNTRIED.value


def test_trials_of_some_seconds_share_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    f, starts = queue_of_two()
    views: list[float] = []
    look_at = queue_view

    def seen(federation: Federation, now_s: float) -> PlayedQueue:
        views.append(now_s)
        return look_at(federation, now_s)

    monkeypatch.setattr(estimates, "queue_view", seen)
    for after_s in (0.0, 1.0, SAME_VIEW_S):
        f.run_for(after_s)
        starts.estimates.begin_trial(workload(999, gang(1)), f.clock())
    assert len(views) == 2


def test_no_play_begins_within_a_turn() -> None:
    f, _ = queue_of_two()
    looks = 0

    def between_turns() -> bool:
        nonlocal looks
        looks += 1
        return looks % 3 == 0

    starts = StartForecasts(f.federation, f.clock, f.clock, between_turns)
    asyncio.run(starts.look())
    assert looks == 3 * (PLAYS + 2)  # with the look before the plays, and what comes of them


def test_a_trial_is_answered_in_time_also_while_turns_leave_no_gap() -> None:
    f, _ = queue_of_two()
    starts = StartForecasts(f.federation, f.clock, Ticking(0.1), lambda: False)
    told: list[str] = []

    async def ask() -> None:
        task = asyncio.create_task(starts.run())
        for _ in range(2):
            starts.try_out(workload(999, gang(1)), lambda start: told.append(start.none))
        async with asyncio.timeout(PATIENCE_S):
            while len(told) < 2:
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(ask())
    assert told == [NoEstimate.NOT_YET.value] * 2


def test_an_error_is_logged_and_the_next_look_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    _, starts = queue_of_two()
    looks: list[float] = []

    def fails(now_s: float) -> bool:
        looks.append(now_s)
        raise RuntimeError("no")

    monkeypatch.setattr(start_forecasts, "EVERY_S", 0.0)
    monkeypatch.setattr(starts.estimates, "look", fails)

    async def two_looks() -> None:
        task = asyncio.create_task(starts.run())
        while len(looks) < 2:
            await asyncio.sleep(0)
        task.cancel()

    with capture_logs() as logs:
        asyncio.run(two_looks())
    assert {line["event"] for line in logs} == {"start_estimates_fault"}
