"""A blocked gang gets room kept, and others may use it only until then."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from msgspec import structs

from federator.model.lifecycle import WorkloadState
from federator.model.plan import BidRequest
from federator.model.reason import ReasonCode
from federator.model.site import LocalJob, Node, NodeShare, RunningJob
from federator.model.site_message import Ask, SiteAnswer
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.state.rules import Rules
from tests.fakes.build import attempt, bid_request, draft, gang, plan_on, rack
from tests.fakes.loopback import Loopback, sent

NOW_S = 1_000.0
HOUR_S = 3_600.0


def busy(nodes: tuple[Node, ...], gpus: dict[str, int]) -> list[Node]:
    return [
        replace(n, gpus_alloc=gpus.get(n.name, 0), cpus_alloc=gpus.get(n.name, 0)) for n in nodes
    ]


def runs(id_: int, ends_in_s: float, **gpus: int) -> RunningJob:
    return RunningJob(
        id=id_,
        tenant="t",
        priority=4,
        preemptible=True,
        started_at_s=0.0,
        nodes={name: NodeShare(gpus=n, cpus=n) for name, n in gpus.items()},
        ends_by_s=NOW_S + ends_in_s,
    )


def two_of_four_busy(ends_in_s: float = HOUR_S) -> SiteScheduler:
    """a1 and a2 hold a job that ends in an hour; a3 and a4 are free."""
    scheduler = SiteScheduler(("gpu",))
    nodes = busy(rack("a", 4), {"a1": 8, "a2": 8})
    scheduler.update(nodes, (), running=[runs(99, ends_in_s, a1=8, a2=8)])
    return scheduler


def asks(id_: int, job: Job, limit_s: float = inf, preempt_gpus: float = 0.0) -> BidRequest:
    return bid_request(
        id=WorkloadId(id_), jobs=(job,), time_limit_s=limit_s, priority=1, preempt_gpus=preempt_gpus
    )


def told(scheduler: SiteScheduler, *asked: BidRequest, **kept: BidRequest) -> list[SiteAnswer]:
    reserve = kept.get("reserve")
    return list(scheduler.bid(asked, NOW_S, reserve=reserve, reserving=reserve is None))


def why(answer: SiteAnswer) -> ReasonCode:
    assert answer.refusal is not None, answer.bid
    return answer.refusal.reasons[0].code


def test_a_blocked_gang_is_told_when_it_can_start_at_the_latest() -> None:
    (answer,) = told(two_of_four_busy(), asks(1, gang(4)))
    assert answer.refusal is not None
    assert answer.refusal.starts_in_s == HOUR_S
    (reason,) = answer.refusal.reasons
    assert (reason.more, reason.more_in_s) == (16, HOUR_S)


def test_who_ends_in_time_may_use_its_room_and_who_does_not_may_not() -> None:
    gang_answer, short, long = told(
        two_of_four_busy(),
        asks(1, gang(4)),
        asks(2, gang(1), limit_s=HOUR_S),
        asks(3, gang(1), limit_s=HOUR_S + 1),
    )
    assert why(gang_answer) is ReasonCode.RESOURCES
    assert short.bid is not None
    assert why(long) is ReasonCode.RESERVED
    assert long.refusal is not None
    assert long.refusal.reasons[0].detail == "1"
    assert long.refusal.reasons[0].more_in_s == HOUR_S


def test_who_runs_longer_may_have_what_the_gang_leaves_over() -> None:
    _, first, second = told(
        two_of_four_busy(), asks(1, gang(3)), asks(2, gang(1)), asks(3, gang(1))
    )
    assert first.bid is not None  # one of the four nodes is not needed
    assert why(second) is ReasonCode.RESERVED


def test_only_the_first_that_is_blocked_gets_a_reservation() -> None:
    answers = told(two_of_four_busy(), asks(1, gang(4)), asks(2, gang(3)), asks(3, gang(1)))
    assert [why(a) for a in answers] == [
        ReasonCode.RESOURCES,
        ReasonCode.RESOURCES,
        ReasonCode.RESERVED,
    ]
    assert answers[2].refusal is not None
    assert answers[2].refusal.reasons[0].detail == "1"


# ---- by predictions ----


def expecting(ends_in_s: float, limit_s: float = inf) -> SiteScheduler:
    """As ``two_of_four_busy``, of a job that is predicted to be over then."""
    scheduler = two_of_four_busy(limit_s)
    scheduler.expect({WorkloadId(99): NOW_S + ends_in_s})
    return scheduler


def brief(id_: int, run_s: float, limit_s: float = inf) -> BidRequest:
    """A job of one node that is predicted to run for so long."""
    return structs.replace(asks(id_, gang(1), limit_s), predicted_run_s=run_s)


def test_where_nothing_has_a_limit_a_start_is_predicted() -> None:
    (answer,) = told(expecting(HOUR_S), asks(1, gang(4)))
    assert answer.refusal is not None
    assert answer.refusal.predicted
    assert answer.refusal.starts_in_s == HOUR_S


def test_who_is_predicted_to_be_over_may_use_the_room_until_a_predicted_start() -> None:
    _, over, long = told(
        expecting(HOUR_S), asks(1, gang(4)), brief(2, HOUR_S), brief(3, HOUR_S + 1)
    )
    assert over.bid is not None
    assert why(long) is ReasonCode.RESERVED


def test_a_time_limit_counts_where_it_comes_before_the_prediction() -> None:
    _, over = told(expecting(HOUR_S), asks(1, gang(4)), brief(2, 9 * HOUR_S, limit_s=HOUR_S))
    assert over.bid is not None


def test_a_start_that_time_limits_promise_is_not_put_at_risk_by_a_prediction() -> None:
    scheduler = expecting(60.0, limit_s=HOUR_S)
    first, brief_one = told(scheduler, asks(1, gang(4)), brief(2, 60.0))
    assert first.refusal is not None
    assert not first.refusal.predicted
    assert first.refusal.starts_in_s == HOUR_S
    assert first.refusal.sooner_in_s == 60.0  # which is said, and nothing follows from it
    assert why(brief_one) is ReasonCode.RESERVED  # it has no limit, so it may run for ever


def test_without_a_prediction_for_all_in_the_way_no_room_is_kept() -> None:
    scheduler = two_of_four_busy(inf)
    scheduler.expect({WorkloadId(98): NOW_S + 60.0})
    first, second = told(scheduler, asks(1, gang(4)), asks(2, gang(1)))
    assert first.refusal is not None
    assert first.refusal.starts_in_s is None
    assert first.refusal.no_end_in_sight
    assert second.bid is not None


def test_a_start_is_not_remembered_for_others_that_are_predicted_to_run_longer() -> None:
    """What is bid for first is in the way of the gang, for as long as that is to run."""
    scheduler = expecting(HOUR_S)
    starts = []
    for run_s in (2 * HOUR_S, 3 * HOUR_S, inf):
        first, second = scheduler.bid([brief(1, run_s), asks(2, gang(4))], NOW_S)
        assert first.bid is not None
        assert second.refusal is not None
        starts.append(second.refusal.starts_in_s)
    assert starts == [2 * HOUR_S, 3 * HOUR_S, None]


def test_another_prediction_gives_another_start() -> None:
    scheduler = expecting(HOUR_S)
    told(scheduler, asks(1, gang(4)))
    scheduler.expect({WorkloadId(99): NOW_S + 2 * HOUR_S})
    (answer,) = told(scheduler, asks(1, gang(4)))
    assert answer.refusal is not None
    assert answer.refusal.starts_in_s == 2 * HOUR_S


def test_room_is_kept_for_whom_the_daemon_names_and_then_for_nobody_else() -> None:
    reserve = asks(7, gang(4))
    long, blocked = told(two_of_four_busy(), asks(2, gang(1)), asks(3, gang(3)), reserve=reserve)
    assert long.refusal is not None
    assert long.refusal.reasons[0].detail == "7"
    assert why(blocked) is ReasonCode.RESOURCES


def test_what_is_evicted_on_reserved_nodes_is_not_the_evictors_for_long() -> None:
    """The victim would have ended in time; who takes its place would not."""
    reserve = asks(7, gang(4))
    evictor = asks(2, gang(2), preempt_gpus=inf)
    late, in_time = told(
        two_of_four_busy(), evictor, structs.replace(evictor, time_limit_s=60.0), reserve=reserve
    )
    assert why(late) is ReasonCode.RESERVED
    assert in_time.bid is not None


def test_without_time_limits_nothing_can_be_promised() -> None:
    scheduler = two_of_four_busy(ends_in_s=inf)
    blocked, long = told(scheduler, asks(1, gang(4)), asks(2, gang(1)))
    assert blocked.refusal is not None
    assert blocked.refusal.starts_in_s is None
    assert blocked.refusal.no_end_in_sight
    assert long.bid is not None


def test_local_jobs_free_their_node_when_the_last_of_them_ends() -> None:
    scheduler = SiteScheduler(("gpu",))
    local = [
        LocalJob(id=1, nodes=("a1",), ends_by_s=NOW_S + 60),
        LocalJob(id=2, nodes=("a1", "a2"), ends_by_s=NOW_S + 600),
    ]
    scheduler.update(busy(rack("a", 3), {"a1": 8, "a2": 3}), (), local=local)
    for nodes in (2, 3):
        (answer,) = told(scheduler, asks(1, gang(nodes)))
        assert answer.refusal is not None
        assert answer.refusal.starts_in_s == 600


def test_a_job_beyond_its_limit_is_expected_to_end_now() -> None:
    (answer,) = told(two_of_four_busy(ends_in_s=-5.0), asks(1, gang(4)))
    assert answer.refusal is not None
    assert answer.refusal.starts_in_s == 0.0


def test_what_is_bid_for_or_launched_before_the_gang_ends_too() -> None:
    """One node is taken by a short job before the gang is tried: by a bid, or by a launch."""
    early = asks(1, gang(1), limit_s=100.0)
    _, blocked, late = told(two_of_four_busy(), early, asks(2, gang(4)), asks(3, gang(1)))
    assert blocked.refusal is not None
    assert blocked.refusal.starts_in_s == HOUR_S
    assert why(late) is ReasonCode.RESERVED

    launched = two_of_four_busy()
    launched.hold(attempt(1), plan_on("a3"), NOW_S + 100.0)
    (late,) = told(launched, asks(3, gang(1)), reserve=asks(2, gang(4)))
    assert why(late) is ReasonCode.RESERVED
    launched.hold(attempt(1), plan_on("a3"))  # without an end nothing can be promised
    (late,) = told(launched, asks(3, gang(1)), reserve=asks(2, gang(4)))
    assert late.bid is not None


def test_a_reservation_keeps_nobody_out_for_whom_it_is() -> None:
    free = SiteScheduler(("gpu",))
    free.update(rack("a", 4), ())
    (answer,) = told(free, asks(7, gang(4)), reserve=asks(7, gang(4)))
    assert answer.bid is not None


def test_what_would_start_instead_respects_the_reservation() -> None:
    """Two nodes are free and both are kept: for long nothing smaller could start either."""
    reserve = asks(7, gang(4))
    (late,) = told(two_of_four_busy(), asks(2, gang(3)), reserve=reserve)
    assert late.refusal is not None
    assert late.refusal.alternatives == ()
    (short,) = told(two_of_four_busy(), asks(2, gang(3), limit_s=60.0), reserve=reserve)
    assert short.refusal is not None
    assert [other.nodes for other in short.refusal.alternatives] == [2]


# ---- between sites ----


def full_site() -> dict[str, tuple[Node, ...]]:
    return {"alpine": rack("a", 2), "baker": rack("b", 2)}


@pytest.mark.parametrize("first_to_end", ["alpine", "baker"])
def test_room_is_kept_only_where_the_gang_can_start_first(first_to_end: str) -> None:
    """Each site has one node taken: at one for 2 hours, at the other for 8."""
    f = Loopback(full_site(), Rules())
    hours = {"alpine": 8.0, "baker": 8.0} | {first_to_end: 2.0}
    for other in ("alpine", "baker"):  # one after the other, so that each goes where it should
        f.site_down("baker" if other == "alpine" else "alpine")
        f.submit(replace(draft(gang(1)), time_limit_s=hours[other] * HOUR_S))
        f.run_for(1.0)
        f.site_up("baker" if other == "alpine" else "alpine")
        f.run_for(11.0)
    blocked = f.submit(replace(draft(gang(2)), time_limit_s=HOUR_S))
    long = f.submit(replace(draft(gang(1)), time_limit_s=24 * HOUR_S))
    f.run_for(1.0)
    assert f.state(blocked) is WorkloadState.PENDING
    assert f.state(long) in (WorkloadState.RUNNING, WorkloadState.LAUNCHING)
    assert f.entry(long).site == ("baker" if first_to_end == "alpine" else "alpine")
    kept = {site for site, ask in sent(f.commands, Ask) if ask.reserve is not None}
    assert kept <= {first_to_end}
    another = f.submit(replace(draft(gang(1)), time_limit_s=24 * HOUR_S))
    f.run_for(1.0)
    assert f.state(another) is WorkloadState.PENDING
    reasons = f.refusals(another)[first_to_end].reasons  # type: ignore[index]
    assert [r.code for r in reasons] == [ReasonCode.RESERVED]


def test_predictions_come_and_go_and_only_what_depends_on_them_is_worked_out_anew() -> None:
    scheduler = two_of_four_busy(inf)
    asked = (asks(1, gang(1)), asks(2, gang(3)))
    bids, starts = [], []
    for ends in ({}, {WorkloadId(99): NOW_S + 60.0}, {}, {WorkloadId(99): NOW_S + 90.0}):
        scheduler.expect(ends)
        first, second = scheduler.bid(asked, NOW_S)
        assert second.refusal is not None
        bids.append(first.bid)
        starts.append(second.refusal.starts_in_s)
    assert all(bid is bids[0] for bid in bids)
    assert starts == [None, 60.0, None, 90.0]
