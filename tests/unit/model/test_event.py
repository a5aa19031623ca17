"""The event log reads back what was written."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from federator.model.data_placement import DataPlacement, MovedSet, PlannedMove
from federator.model.event import (
    Awarded,
    Changed,
    DataPlanned,
    EpochBegan,
    LogRecord,
    Planned,
    QuotaLoan,
    Submitted,
    decode_event,
    encode_event,
)
from federator.model.lending import LendingDecision, LendingPlan, LoadForecast
from federator.model.lifecycle import WorkloadEvent
from federator.model.quota_loan import LoanStep
from federator.model.reason import Reason, ReasonCode
from federator.model.score import Score
from federator.model.submission import pack_submission, unpack_submission
from federator.model.workload import TenantName
from tests.fakes.build import attempt, draft, gang, plan_on, workload

EVENTS: list[LogRecord] = [
    EpochBegan(at_s=1.5, epoch=3),
    Submitted(at_s=2.0, draft=draft(gang(2), gang(1, 4, "serve")), first_id=workload().id, key="k"),
    Awarded(at_s=3.0, attempt=attempt(), site="alpine", jobs=plan_on("a1", "a2")),
    Changed(
        at_s=4.0,
        workload=workload().id,
        happening=WorkloadEvent.DECLINED,
        attempt=1,
        reason=Reason(code=ReasonCode.LAUNCH_REFUSED, detail="taken"),
    ),
    Changed(
        at_s=5.0,
        workload=workload().id,
        happening=WorkloadEvent.LIMIT_NEAR,
        attempt=1,
        reason=Reason(code=ReasonCode.TIME_LIMIT),
    ),
    Planned(
        at_s=6.0,
        plan=LendingPlan(
            made_at_s=5.0,
            expires_at_s=900.0,
            windows_s=(300.0, 3600.0),
            forecasts=(
                LoadForecast(tenant="vision", new_gpus=(0, 8), off=(False, True)),
                LoadForecast(tenant="vision", gpu_type="h100", new_gpus=(0, 4)),
            ),
        ),
    ),
    QuotaLoan(
        at_s=6.5,
        tenant=TenantName("vision"),
        step=LoanStep.NOTICED,
        used_frac=0.04,
        days=3,
        lends_at_s=9.0,
    ),
    DataPlanned(
        at_s=6.6,
        plan=DataPlacement(
            made_at_s=6.5,
            expires_at_s=900.0,
            moves=(PlannedMove(sets=(MovedSet("wiki", "1", 9),), to="east", home=True, why="w"),),
            bound=1.0,
        ),
    ),
    Awarded(
        at_s=7.0,
        attempt=attempt(),
        site="alpine",
        jobs=plan_on("a1"),
        lending=LendingDecision(owners={"vision": 8}, until_s=1800.0, window_s=3600.0),
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_survives_the_log(event: LogRecord) -> None:
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_a_torn_record_is_refused(event: LogRecord) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_event(encode_event(event)[:-1])


def test_a_submission_of_an_older_release_says_nothing_of_evictions_and_time_limits() -> None:
    plain = Submitted(at_s=2.0, draft=draft(requeue=False), first_id=workload().id, key="k")
    fields = msgspec.msgpack.decode(encode_event(plain))
    for name in ("no_preempt", "continues", "signal_lead_s"):
        del fields["draft"][name]
    old = decode_event(msgspec.msgpack.encode(fields))
    assert old == plain
    assert isinstance(old, Submitted)
    assert not old.draft.preemptible  # --no-requeue meant that already


def test_an_award_of_an_older_release_was_lent_by_no_forecast() -> None:
    new = Awarded(at_s=3.0, attempt=attempt(), site="alpine", jobs=plan_on("a1"))
    fields = msgspec.msgpack.decode(encode_event(new))
    del fields["lending"]
    assert decode_event(msgspec.msgpack.encode(fields)) == new


def test_offers_of_an_older_release_are_read_by_the_places_that_their_terms_had() -> None:
    new = Awarded(
        at_s=3.0,
        attempt=attempt(),
        site="alpine",
        jobs=plan_on("a1"),
        offers={"alpine": {"locality_cost": 28.0}, "boreal": {}},
    )
    assert decode_event(encode_event(new)) == new
    assert new.scores == {"alpine": Score(locality_cost=28.0), "boreal": Score()}
    fields = msgspec.msgpack.decode(encode_event(new))
    fields["offers"] = {"alpine": [1, 3, 2, 60.0, 28.0, 8.0, -1.5, 0.0], "boreal": [0, 0, 0]}
    old = decode_event(msgspec.msgpack.encode(fields))
    assert isinstance(old, Awarded)
    assert old.scores == {
        "alpine": Score(
            preempts=1,
            victims_priority=3,
            victims=2,
            lost_work_gpu_s=60.0,
            locality_cost=28.0,
            gpu_worth=8.0,
            fragmentation=-1.5,
        ),
        "boreal": Score(),
    }


def test_a_score_from_the_log_can_be_shown_like_any_other() -> None:
    score = Score(preempts=1, victims_priority=3, victims=2, lost_work_gpu_s=60.0, gpus_unasked=8)
    awarded = Awarded(
        at_s=3.0,
        attempt=attempt(),
        site="alpine",
        jobs=plan_on("a1"),
        offers={"alpine": score.named()},
    )
    read = decode_event(encode_event(awarded))
    assert isinstance(read, Awarded)
    shown = msgspec.msgpack.encode(read.scores)
    assert msgspec.msgpack.decode(shown, type=dict[str, Score]) == {"alpine": score}


def test_terms_that_this_release_does_not_know_are_passed_over() -> None:
    assert Score.of({"locality_cost": 2.0, "of_a_later_release": 1.0}) == Score(locality_cost=2.0)


def test_an_array_costs_the_log_one_script_however_many_tasks_it_has() -> None:
    one = draft(array_indices=tuple(range(10_000)))
    script = "#!/bin/sh\n" + "#" * 6_000
    typed = msgspec.structs.replace(unpack_submission(one.submission), script=script)
    large = replace(one, submission=pack_submission(typed))
    record = encode_event(Submitted(at_s=2.0, draft=large, first_id=workload().id, key="k"))
    assert len(record) < 50_000
