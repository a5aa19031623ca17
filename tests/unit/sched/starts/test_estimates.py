"""Estimates of a federation's queue: made for those that wait, judged by when they start."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from federator.model.lifecycle import WorkloadState
from federator.model.start_estimate import NoEstimate, StartEstimate
from federator.model.workload import Job, WorkloadId
from federator.sched.starts import queue_view
from federator.sched.starts.calibration import COVERAGE, SavedCalibration, Wait
from federator.sched.starts.estimates import LEAST_JUDGED, TRIAL, StartEstimates
from federator.sched.starts.plays import Plays
from tests.fakes.build import draft, gang, rack, workload
from tests.fakes.loopback import Loopback

RUN_S = 600.0
LOOK_S = 60.0


class Watched(Loopback):
    """One node whose jobs all run for ten minutes; estimates are made as by a daemon."""

    SITES: ClassVar = {"alpine": rack("a", 1)}

    def __init__(self) -> None:
        super().__init__(self.SITES, duration_s=RUN_S)
        self.estimates = StartEstimates(self.federation)

    def look(self) -> None:
        self.estimates.look(self.clock.now_s)
        self.play(self.estimates.begin(self.clock.now_s))

    def play(self, plays: Plays) -> None:
        while not plays.over:
            plays.play()
        self.estimates.finish(plays)

    def watch(self, seconds: float) -> None:
        for _ in range(int(seconds / LOOK_S)):
            self.run_for(LOOK_S)
            self.look()

    def pass_days(self, pairs: int) -> None:
        """Two jobs come together again and again: the second waits for the end of the first."""
        for _ in range(pairs):
            self.submit(draft())
            self.submit(draft())
            self.watch(2 * RUN_S + 200.0)

    def none(self, id_: WorkloadId) -> str:
        return self.estimates.of(id_, self.clock.now_s).none


@pytest.fixture(scope="module")
def practised() -> Watched:
    f = Watched()
    f.pass_days(LEAST_JUDGED + 5)  # the first know of no run that has ended
    return f


def test_nothing_is_shown_before_enough_estimates_have_been_judged() -> None:
    f = Watched()
    f.pass_days(3)
    f.submit(draft())
    second = f.submit(draft())
    f.watch(60.0)
    assert f.none(second) == NoEstimate.UNTRIED.value


def test_one_that_waits_for_another_is_estimated_to_start_when_that_ends(
    practised: Watched,
) -> None:
    f = practised
    f.submit(draft())
    second = f.submit(draft())
    f.watch(60.0)
    now_s = f.clock.now_s
    found = f.estimates.of(second, now_s)
    assert found.none == ""
    assert found.frac == COVERAGE
    assert now_s <= found.earliest_s <= found.likely_s <= found.latest_s
    assert abs(found.likely_s - (now_s + RUN_S - 60.0)) < 120.0
    assert found.judged >= LEAST_JUDGED
    f.run_until_all_end()


def test_the_intervals_of_a_steady_queue_hold(practised: Watched) -> None:
    assert practised.estimates.calibration.hit_frac >= 0.8


def test_an_estimate_has_the_hit_rate_of_its_class(practised: Watched) -> None:
    f = practised
    f.submit(draft())
    second = f.submit(draft())
    f.watch(60.0)
    found = f.estimates.of(second, f.clock.now_s)
    rates = f.estimates.calibration.rates()
    assert (found.hit_frac_alike, found.latest_alike) in [(r.hit_frac, r.latest) for r in rates]
    f.run_until_all_end()


def test_one_that_is_not_queued_is_estimated_behind_those_that_are(practised: Watched) -> None:
    f = practised
    f.submit(draft())
    f.submit(draft())
    f.watch(60.0)
    now_s = f.clock.now_s
    trial = workload(999, gang(1))
    plays = f.estimates.begin_trial(trial, now_s)
    assert isinstance(plays, Plays)
    while not plays.over:
        plays.play()
    found = f.estimates.of_trial(plays, now_s)
    assert found.none or abs(found.likely_s - (now_s + 2 * RUN_S - 60.0)) < 600.0
    assert trial.id not in f.federation.ledger.entries
    f.run_until_all_end()


def test_a_trial_is_not_mistaken_for_a_job_that_has_its_id_by_now(practised: Watched) -> None:
    f = practised
    f.submit(draft())
    waits = f.submit(draft())
    f.watch(60.0)
    plays = f.estimates.begin_trial(workload(waits, gang(1)), f.clock.now_s)
    assert isinstance(plays, Plays)
    assert [queued.id for queued in plays.view.queued] == [waits, TRIAL]
    f.run_until_all_end()


def test_only_the_first_by_rank_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_view, "MOST_WAITING", 2)
    f = Watched()
    f.submit(draft())
    waiting = [f.submit(draft()) for _ in range(4)]
    f.watch(60.0)
    f.run_for(1.0)
    later = f.submit(draft())
    assert [f.none(id_) for id_ in waiting] == [NoEstimate.UNTRIED.value] * 2 + [
        NoEstimate.TOO_DEEP.value
    ] * 2
    assert f.none(later) == NoEstimate.NOT_YET.value
    assert f.estimates.look(f.clock.now_s)  # it alone lacks a promise
    f.look()
    assert not f.estimates.look(f.clock.now_s)
    trial = f.estimates.begin_trial(workload(999, gang(1)), f.clock.now_s)
    assert trial == StartEstimate(none=NoEstimate.TOO_DEEP.value)


def test_what_its_own_classes_make_too_wide_is_kept_back_and_judged() -> None:
    f = Watched()
    known, played = f.estimates.calibration, Wait(300.0, 400.0, 600.0)
    known.restore(SavedCalibration(parts=(("shown", 0.0, 2.0, 2.0, 100),)))
    given, classes, none = f.estimates._corrected(played, ("size 1",))
    assert none is NoEstimate.TOO_WIDE
    assert given == known.corrected(played, classes)
    assert "shown" in classes


def test_what_runs_or_is_over_is_not_estimated(practised: Watched) -> None:
    f = practised
    running = f.submit(draft())
    f.watch(60.0)
    assert f.none(running) == NoEstimate.NOT_WAITING.value
    assert f.none(WorkloadId(1)) == NoEstimate.NOT_WAITING.value
    f.run_until_all_end()
    assert f.none(running) == NoEstimate.NOT_WAITING.value


def test_what_asks_for_no_gpus_has_no_estimate(practised: Watched) -> None:
    f = practised
    f.submit(draft(Job(name="fill", nodes=1, cpus_per_node=64)))
    waits = f.submit(draft(Job(name="cpu", nodes=1, cpus_per_node=64)))
    f.watch(60.0)
    assert f.federation.ledger.entries[waits].state is WorkloadState.PENDING
    assert f.none(waits) == NoEstimate.NO_GPUS.value
    f.run_until_all_end()


MATLAB = replace(gang(1), gpus_per_node=4, fleet_licenses=(("matlab", 2),))


def test_who_asks_for_more_licences_than_there_are_has_no_estimate() -> None:
    f = Watched()
    f.reload(replace(f.federation.rules, licenses={"matlab": 2}))
    f.submit(draft(MATLAB))
    f.watch(60.0)
    waits = f.submit(draft(MATLAB))
    f.reload(replace(f.federation.rules, licenses={"matlab": 1}))
    f.watch(60.0)
    assert f.none(waits) == NoEstimate.MAY_NOT_START.value


def test_one_that_leaves_the_queue_is_not_judged(practised: Watched) -> None:
    f = practised
    f.submit(draft())
    second = f.submit(draft())
    f.watch(60.0)
    judged = f.estimates.calibration.judged
    f.cancel(second)
    f.watch(3 * RUN_S)
    assert f.estimates.calibration.judged == judged


def test_one_that_waits_beyond_its_interval_is_judged_then(practised: Watched) -> None:
    f = practised
    f.submit(draft())
    second = f.submit(draft())
    f.watch(60.0)
    f.site_down("alpine")
    judged, parts = f.estimates.calibration.judged, f.estimates.of(second, f.clock.now_s)
    f.run_for(parts.latest_s - f.clock.now_s + 4000.0)
    f.look()
    assert f.estimates.calibration.judged > judged
    f.site_up("alpine")
    f.run_until_all_end()


def test_looking_changes_nothing_in_the_federation() -> None:
    f = Watched()
    f.submit(draft())
    f.submit(draft())
    f.run_for(30.0)
    records, commands = len(f.log), len(f.commands)
    f.look()
    assert (len(f.log), len(f.commands)) == (records, commands)
