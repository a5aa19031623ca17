"""Nothing starts that would run into a window in which the site keeps nodes for others."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from federator.model.plan import BidRequest
from federator.model.reason import ReasonCode, RefusalKind
from federator.model.site import NodeShare, RunningJob, VictimTerms
from federator.model.site_message import SiteAnswer
from federator.model.window import SiteWindow
from federator.model.workload import WorkloadId
from federator.sched.bid.closed_windows import START_TAKES_S
from federator.sched.bid.site_scheduler import SiteScheduler, summarise
from tests.fakes.build import bid_request, gang, rack

NOW_S = 1_000_000.0
HOUR_S = 3_600.0
DAY_S = 86_400.0


def window(
    *nodes: str,
    begins_in_s: float = HOUR_S,
    lasts_s: float = HOUR_S,
    again_s: float = 0.0,
    name: str = "maint",
    cpus: int = 0,
) -> SiteWindow:
    starts_at_s = NOW_S + begins_in_s
    return SiteWindow(
        name=name,
        starts_at_s=starts_at_s,
        ends_at_s=starts_at_s + lasts_s,
        nodes=nodes,
        again_s=again_s,
        cpus=dict.fromkeys(nodes, cpus) if cpus else {},
    )


def site(
    *windows: SiteWindow, nodes: int = 2, running: tuple[RunningJob, ...] = ()
) -> SiteScheduler:
    scheduler = SiteScheduler(("gpu",))
    used = {name: share for job in running for name, share in job.nodes.items()}
    built = [
        replace(n, gpus_alloc=used[n.name].gpus, cpus_alloc=used[n.name].cpus)
        if n.name in used
        else n
        for n in rack("a", nodes)
    ]
    ordered = tuple(sorted(windows, key=lambda w: w.starts_at_s))
    scheduler.update(built, (), running=running, windows=ordered)
    return scheduler


def asks(limit_s: float, nodes: int = 1, id_: int = 1, preempt_gpus: float = 0.0) -> BidRequest:
    return bid_request(
        id=WorkloadId(id_),
        jobs=(gang(nodes),),
        time_limit_s=limit_s,
        priority=1,
        preempt_gpus=preempt_gpus,
    )


def answers(scheduler: SiteScheduler, *asked: BidRequest, at_s: float = NOW_S) -> list[SiteAnswer]:
    return list(scheduler.bid(asked, at_s))


def places(answer: SiteAnswer) -> set[str]:
    assert answer.bid is not None, answer
    return {name for plan in answer.bid.jobs for name in plan.nodes}


def code(answer: SiteAnswer) -> ReasonCode:
    assert answer.refusal is not None, answer
    return answer.refusal.reasons[0].code


def test_what_is_over_before_starts_there() -> None:
    (answer,) = answers(site(window("a1", "a2")), asks(HOUR_S - 60, nodes=2))
    assert places(answer) == {"a1", "a2"}


def test_what_would_run_into_it_goes_on_other_nodes() -> None:
    (answer,) = answers(site(window("a1")), asks(HOUR_S))
    assert places(answer) == {"a2"}


@pytest.mark.parametrize("limit_s", [HOUR_S, 2 * HOUR_S, inf])
def test_what_would_run_into_it_waits_and_is_told_until_when(limit_s: float) -> None:
    (answer,) = answers(site(window("a1", "a2")), asks(limit_s))
    assert code(answer) is ReasonCode.SITE_RESERVATION
    assert answer.refusal is not None
    assert answer.refusal.kind is RefusalKind.WAIT
    (reason,) = answer.refusal.reasons
    assert (reason.detail, reason.needed, reason.unit) == ("maint", 2, "nodes")
    assert (reason.from_s, reason.until_s) == (NOW_S + HOUR_S, NOW_S + 2 * HOUR_S)


def test_slurm_rounds_a_limit_up_to_minutes_and_a_start_takes_a_while() -> None:
    scheduler = site(window("a1", "a2", begins_in_s=600.0))
    late, in_time = answers(scheduler, asks(541.0), asks(540.0, id_=2))
    assert code(late) is ReasonCode.SITE_RESERVATION
    assert in_time.bid is not None
    scheduler = site(window("a1", "a2", begins_in_s=540.0 + START_TAKES_S - 1))
    assert code(answers(scheduler, asks(540.0))[0]) is ReasonCode.SITE_RESERVATION


def test_a_long_request_that_is_refused_rules_out_no_short_one() -> None:
    scheduler = site(window("a1", "a2"))
    long, short = answers(scheduler, asks(inf), asks(60.0, id_=2))
    assert code(long) is ReasonCode.SITE_RESERVATION
    assert short.bid is not None


def test_jobs_start_there_again_when_it_is_over() -> None:
    scheduler = site(window("a1", "a2"))
    freed = scheduler.freed
    (answer,) = answers(scheduler, asks(inf), at_s=NOW_S + 2 * HOUR_S)
    assert answer.bid is not None
    assert scheduler.freed > freed
    assert scheduler.windows == ()


def test_one_that_is_deleted_meanwhile_stands_in_nobody_s_way() -> None:
    scheduler = site(window("a1", "a2"))
    freed = scheduler.freed
    scheduler.update(rack("a", 2), (), windows=())
    assert scheduler.freed > freed
    assert answers(scheduler, asks(inf))[0].bid is not None


def test_one_that_moves_counts_as_it_is_now() -> None:
    scheduler = site(window("a1", "a2"))
    assert answers(scheduler, asks(30 * 60.0))[0].bid is not None
    scheduler.update(rack("a", 2), (), windows=(window("a1", "a2", begins_in_s=600.0),))
    assert code(answers(scheduler, asks(30 * 60.0))[0]) is ReasonCode.SITE_RESERVATION


def test_overlapping_ones_close_all_their_nodes() -> None:
    both = (window("a1", name="x"), window("a1", "a2", begins_in_s=1.5 * HOUR_S, name="y"))
    scheduler = site(*both, nodes=3)
    two_hours, one_hour = answers(scheduler, asks(2 * HOUR_S), asks(HOUR_S, id_=2))
    assert places(two_hours) == {"a3"}
    assert places(one_hour) == {"a2"}


def test_a_gang_waits_until_the_last_of_them_is_over() -> None:
    other = RunningJob(
        id=9,
        tenant="t",
        priority=1,
        preemptible=False,
        started_at_s=0.0,
        nodes={"a3": NodeShare(gpus=8, cpus=64)},
        ends_by_s=NOW_S + 600.0,
    )
    scheduler = site(window("a1"), window("a2", lasts_s=3 * HOUR_S), nodes=3, running=(other,))
    (answer,) = answers(scheduler, asks(2 * HOUR_S, nodes=3))
    assert answer.refusal is not None
    assert answer.refusal.starts_in_s == 4 * HOUR_S


def test_a_predicted_start_is_not_shortly_before_a_window_that_it_would_run_into() -> None:
    other = RunningJob(
        id=9,
        tenant="t",
        priority=1,
        preemptible=False,
        started_at_s=0.0,
        nodes={"a1": NodeShare(gpus=8, cpus=64)},
        ends_by_s=NOW_S + 1.5 * HOUR_S,
    )
    scheduler = site(window("a2", begins_in_s=2 * HOUR_S), nodes=2, running=(other,))
    (answer,) = answers(scheduler, asks(HOUR_S, nodes=2))
    assert answer.refusal is not None
    assert code(answer) is ReasonCode.RESOURCES
    assert answer.refusal.starts_in_s == 3 * HOUR_S


def test_what_never_ends_between_two_occurrences_has_no_start() -> None:
    busy = RunningJob(
        id=9,
        tenant="t",
        priority=1,
        preemptible=False,
        started_at_s=0.0,
        nodes={"a2": NodeShare(gpus=8, cpus=64)},
        ends_by_s=NOW_S + 600.0,
    )
    daily = window("a1", "a2", again_s=DAY_S)
    (answer,) = answers(site(daily, running=(busy,)), asks(DAY_S - HOUR_S + 60, nodes=2))
    assert answer.refusal is not None
    assert answer.refusal.no_end_in_sight
    (answer,) = answers(site(daily, running=(busy,)), asks(DAY_S - HOUR_S, nodes=2))
    assert answer.refusal is not None
    assert answer.refusal.starts_in_s == 2 * HOUR_S


def test_nobody_is_evicted_on_nodes_that_are_about_to_close() -> None:
    victim = RunningJob(
        id=9,
        tenant="t",
        priority=7,
        preemptible=True,
        started_at_s=0.0,
        nodes={"a1": NodeShare(gpus=8, cpus=64)},
        ends_by_s=NOW_S + 600.0,
    )
    scheduler = site(window("a1"), nodes=1, running=(victim,))
    scheduler.rank({WorkloadId(9): VictimTerms(priority=7)})
    short, long = asks(600.0, preempt_gpus=8.0), asks(2 * HOUR_S, id_=2, preempt_gpus=8.0)
    (answer,) = answers(scheduler, long)
    assert code(answer) is ReasonCode.SITE_RESERVATION
    (answer,) = answers(scheduler, short)
    assert answer.bid is not None
    assert answer.bid.victims == (9,)


def test_of_a_node_that_is_reserved_in_part_the_rest_is_to_be_had() -> None:
    scheduler = site(window("a1", cpus=63), nodes=1)
    assert places(answers(scheduler, asks(inf))[0]) == {"a1"}
    scheduler = site(window("a1", cpus=40), window("a1", cpus=24, name="other"), nodes=1)
    assert code(answers(scheduler, asks(inf))[0]) is ReasonCode.SITE_RESERVATION


def test_nodes_that_are_reserved_now_count_as_out_of_use() -> None:
    nodes = [replace(n, reserved=True) for n in rack("a", 2)]
    (row,) = summarise(nodes, ("gpu",))
    assert (row.nodes_drained, row.nodes_idle, row.gpus_out) == (2, 0, 16)


def test_the_snapshot_shows_them() -> None:
    from federator.cli.bid import answer_of  # noqa: PLC0415
    from federator.model.workload import SiteName  # noqa: PLC0415

    scheduler = site(window("a1", "a2"))
    answer = answer_of(scheduler.snapshot(SiteName("alpine"), NOW_S), asks(inf))
    assert code(answer) is ReasonCode.SITE_RESERVATION


_WINDOWS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(["a1", "a2", "a3"]), min_size=1),
        st.integers(-7_200, 7_200),
        st.integers(60, 7_200),
        st.sampled_from([0, 8, 64]),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(
    _WINDOWS,
    st.lists(st.sampled_from([60.0, 600.0, 3_600.0, 9_000.0, inf]), min_size=1, max_size=6),
)
def test_no_bid_runs_into_a_window_and_the_room_is_as_it_was(
    drawn: list[tuple[set[str], int, int, int]], limits: list[float]
) -> None:
    windows = [
        window(*sorted(names), begins_in_s=at_s, lasts_s=length_s, cpus=cpus, name=f"w{k}")
        for k, (names, at_s, length_s, cpus) in enumerate(drawn)
    ]
    scheduler = site(*windows, nodes=3)
    asked = [asks(limit_s, id_=k + 1) for k, limit_s in enumerate(limits)]
    first = answers(scheduler, *asked)
    for request, answer in zip(asked, first, strict=True):
        if answer.bid is None:
            continue
        for each in windows:
            whole = set(each.nodes) - {n for n, cpus in each.cpus.items() if cpus < 64}
            meets = each.ends_at_s > NOW_S and NOW_S + request.time_limit_s > each.starts_at_s
            assert not (meets and places(answer) & whole)
    assert answers(scheduler, *asked) == first
    (alone,) = answers(site(nodes=3), structs.replace(asked[0], time_limit_s=1.0))
    scheduler.update(rack("a", 3), (), windows=())
    assert answers(scheduler, structs.replace(asked[0], time_limit_s=1.0)) == [alone]
