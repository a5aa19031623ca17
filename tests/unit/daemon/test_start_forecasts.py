"""The daemon estimates starts beside its turns, and an error there harms nothing."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from federator.daemon import start_forecasts
from federator.daemon.start_forecasts import MOST_TRIALS, StartForecasts
from federator.model.start_estimate import NoEstimate, StartEstimate
from federator.sched.starts.calibration import Wait
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


def test_a_trial_is_answered_also_when_its_plays_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    _, starts = queue_of_two()
    monkeypatch.setattr(starts.estimates, "begin_trial", lambda *_: 1 / 0)
    told: list[StartEstimate] = []
    starts.try_out(workload(999, gang(1)), told.append)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(starts.look())
    assert [start.none for start in told] == [NoEstimate.NOT_YET.value]


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
