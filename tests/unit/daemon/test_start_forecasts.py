"""The daemon estimates starts beside its turns, and an error there harms nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from federator.daemon import start_forecasts
from federator.daemon.start_forecasts import MOST_TRIALS, PATIENCE_S, Helps, StartForecasts
from federator.model.message import StartsEstimated
from federator.model.start_estimate import NoEstimate, StartEstimate
from federator.model.workload import WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.starts import estimates
from federator.sched.starts.calibration import Wait
from federator.sched.starts.estimates import LEAST_JUDGED, SAME_VIEW_S
from federator.sched.starts.plays import PLAYS, Plays
from federator.sched.starts.queue_view import PlayedQueue, queue_view
from federator.sched.state.rules import Rules, Staging
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


@pytest.mark.parametrize("auto", [True, False])
def test_the_core_is_given_the_starts_where_data_is_when_they_change(
    auto: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Rules(staging=Staging(auto=auto))
    f = Loopback({"alpine": rack("a", 1)}, rules, duration_s=600.0)
    f.submit(draft())
    f.submit(draft())
    f.run_for(60.0)
    seen: list[StartsEstimated] = []
    starts = StartForecasts(f.federation, f.clock, f.clock, observe=seen.append)
    found = {WorkloadId(7): 1000.0}
    monkeypatch.setattr(starts.estimates, "where_data_is", lambda _now_s: dict(found))
    asyncio.run(starts.look())
    asyncio.run(starts.look())
    found[WorkloadId(7)] = 2000.0
    asyncio.run(starts.look())
    likely = [list(each.starts.values()) for each in seen]
    assert likely == ([[1000.0], [2000.0]] if auto else [])


def test_the_hit_rate_is_of_as_many_as_were_shown() -> None:
    _, starts = queue_of_two()
    known, given = starts.estimates.calibration, Wait(0.0, 10.0, 100.0)
    for _ in range(40):
        known.judge(given, (), 50.0, counts=False)
    assert (starts.row().judged, starts.row().latest) == (40, 0)
    known.judge(given, (), 500.0)
    assert (starts.row().latest, starts.row().hit_frac) == (1, 0.0)


def test_hit_rates_are_told_by_size_and_quota_class() -> None:
    _, starts = queue_of_two()
    known, given = starts.estimates.calibration, Wait(0.0, 10.0, 100.0)
    for told in ("size 4, within quota", "size 1, over quota", "size 4, over quota", "no class"):
        known.judge(given, (), 50.0, rated=told)
    rows = [(row.gpus, row.quota, row.latest) for row in starts.row().classes]
    assert rows == [("1", "over", 1), ("5-8", "over", 1), ("5-8", "within", 1)]


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
    told: list[Helps] = []
    for k in range(MOST_TRIALS + 1):
        starts.try_changes(max(f.federation.ledger.entries), f"user{k}", told.append)
    assert told == [None]  # one too many
    asyncio.run(starts.look())
    assert told == [None] + [()] * MOST_TRIALS  # nothing can be told before estimates are


def test_changes_of_one_user_are_tried_one_at_a_time() -> None:
    f, starts = queue_of_two()
    waits, told = max(f.federation.ledger.entries), list[Helps]()
    starts.try_changes(waits, "ada", told.append)
    starts.try_changes(waits, "ada", told.append)
    assert told == [None]
    asyncio.run(starts.look())
    starts.try_changes(waits, "ada", told.append)
    asyncio.run(starts.look())
    assert told == [None, (), ()]


def with_changes(elapsed: Callable[[], float]) -> tuple[StartForecasts, WorkloadId]:
    """One waits of which changes are played."""
    f, _ = queue_of_two()
    waits = max(f.federation.ledger.entries)
    starts = StartForecasts(f.federation, f.clock, elapsed)
    for _ in range(LEAST_JUDGED):
        starts.estimates.calibration.judge(Wait(0.0, 10.0, 100.0), (), 50.0)
    assert len(list(starts.estimates.begin_changes(waits, f.clock()))) > 1
    return starts, waits


def test_changes_have_a_rest_of_their_own_and_say_when_they_were_not_tried() -> None:
    elapsed = Ticking(0.001)
    starts, waits = with_changes(elapsed)
    helps: list[Helps] = []
    told: list[str] = []
    for user in ("ada", "bob"):
        starts.try_changes(waits, user, helps.append)
    asyncio.run(starts.look())
    starts.try_out(workload(999, gang(1)), lambda start: told.append(start.none))
    asyncio.run(starts.look())
    assert told != []
    assert told != [NoEstimate.NOT_YET.value]  # no rest of changes held it up
    assert len(helps) == 1
    assert helps[0] is not None
    elapsed.now_s += PATIENCE_S
    asyncio.run(starts.look())
    assert helps[1] is None  # it came within their rest


def test_a_trial_is_answered_between_two_changes() -> None:
    starts, waits = with_changes(Ticking(0.001))
    told: list[str] = []

    async def ask() -> None:
        starts.try_changes(waits, "ada", lambda _: told.append("changes"))
        task = asyncio.create_task(starts.look())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starts.try_out(workload(999, gang(1)), lambda _: told.append("trial"))
        await task

    asyncio.run(ask())
    assert told == ["trial", "changes"]


def test_a_turn_may_come_before_each_change_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, waits = with_changes(Ticking(0.0))
    gaps, at = 0, list[int]()

    def between_turns() -> bool:
        nonlocal gaps
        gaps += 1
        return True

    made = starts.estimates._plays

    def noted(view: PlayedQueue) -> Plays:
        at.append(gaps)
        return made(view)

    monkeypatch.setattr(starts.estimates, "_plays", noted)
    monkeypatch.setattr(starts, "_between_turns", between_turns)
    starts.try_changes(waits, "ada", lambda _: None)
    asyncio.run(starts.look())
    assert len(at) > 1
    assert all(later > sooner for sooner, later in pairwise(at))


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
