"""The predicted ends of what runs: made anew when they must be, and not more often."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.reason import Refusal
from federator.model.site_message import Ask
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.predicted_ends import AGAIN_S, PredictedEnds
from federator.sched.state.learned_durations import LEAST_KNOWN
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback, sent
from tests.unit.sched.state.test_learned_durations import HOUR_S, History

ALPINE = SiteName("alpine")


def known(hours: float = 2.0) -> History:
    history = History()
    for _ in range(LEAST_KNOWN):
        history.run(hours)
    return history


def test_what_runs_has_an_end_from_its_start_to_its_end() -> None:
    history = known()
    ends = PredictedEnds(history.ledger)
    ends.renew(history.now_s)
    assert ends.at(ALPINE) == {}
    entry = history.start(history.submit())
    ends.renew(history.now_s)
    (end_s,) = ends.at(ALPINE).values()
    assert history.now_s + HOUR_S < end_s < history.now_s + 4 * HOUR_S
    history.now_s += 60.0
    history.end(entry, WorkloadEvent.COMPLETED)
    ends.renew(history.now_s)
    assert ends.at(ALPINE) == {}


def test_the_same_object_comes_as_long_as_nothing_changes() -> None:
    history = known()
    ends = PredictedEnds(history.ledger)
    history.start(history.submit())
    ends.renew(history.now_s)
    found = ends.at(ALPINE)
    ends.renew(history.now_s + AGAIN_S - 1.0)
    assert ends.at(ALPINE) is found
    ends.renew(history.now_s + AGAIN_S)
    assert ends.at(ALPINE) is not found


def test_a_run_that_outlives_its_prediction_gets_another() -> None:
    history = known()
    for hours in (1000.0, *[2.0] * 30, 1000.0):
        history.run(hours)
    entry = history.start(history.submit())
    ends = PredictedEnds(history.ledger)
    ends.renew(history.now_s)
    before_s = ends.at(ALPINE)[entry.workload.id]
    assert before_s < history.now_s + 4 * HOUR_S
    history.now_s = before_s
    ends.renew(history.now_s)
    assert ends.at(ALPINE)[entry.workload.id] > history.now_s + 100 * HOUR_S


def test_who_ends_by_its_limit_before_is_left_out() -> None:
    history = known()
    history.start(history.submit(limit_s=HOUR_S))
    ends = PredictedEnds(history.ledger)
    ends.renew(history.now_s)
    assert ends.at(ALPINE) == {}


# ---- in a federation ----


def learned(*, predicts: bool) -> tuple[Loopback, WorkloadId]:
    """A site of two nodes, one of which is held by a job without a limit that runs for an hour."""
    f = Loopback({"alpine": rack("a", 2)}, rules=Rules(forecast_ends=predicts), duration_s=600.0)
    for _ in range(LEAST_KNOWN):
        f.submit(replace(draft(gang(1)), time_limit_s=inf))
    f.run_until_all_end()
    f.duration_s = None
    holder = f.submit(replace(draft(gang(1)), time_limit_s=inf))
    f.run_for(21.0)
    return f, holder


def refusal_at(f: Loopback, id_: WorkloadId) -> Refusal:
    return f.refusals(id_)[ALPINE]


def test_a_blocked_gang_is_shown_a_predicted_start_and_backfilled_by_predictions() -> None:
    f, holder = learned(predicts=True)
    assert f.state(holder) is WorkloadState.RUNNING
    blocked = f.submit(replace(draft(gang(2), name="wide"), time_limit_s=inf))
    f.run_for(21.0)
    assert f.state(blocked) is WorkloadState.PENDING
    assert refusal_at(f, blocked).predicted
    asks = [ask for _, ask in sent(f.commands, Ask)]
    assert set(asks[-1].predicted_ends) == {holder}


def test_sites_are_given_no_predictions_where_these_are_off() -> None:
    f, _ = learned(predicts=False)
    blocked = f.submit(replace(draft(gang(2)), time_limit_s=inf))
    f.run_for(21.0)
    assert refusal_at(f, blocked).no_end_in_sight
    assert not any(ask.predicted_ends for _, ask in sent(f.commands, Ask))
