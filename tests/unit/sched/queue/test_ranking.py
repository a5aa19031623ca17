"""The order of the queue, by hand: weights of 1 an hour, 24 for fair share, 0.01 a nice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from federator.model.tenant import LOWEST_PRIORITY, Tenancy, Tenant
from federator.model.workload import FIRST_WORKLOAD_ID, Workload
from federator.sched.queue.ranked import Ranked
from federator.sched.queue.ranking import CreditRanking, rank_order
from federator.sched.state.backlog import Backlog
from federator.sched.state.credit import CreditWeights
from federator.sched.state.holdings import Charge, Holdings
from federator.sched.state.usage import WindowAverage
from tests.fakes.build import gang, tenant, workload

HOUR_S = 3600.0
NOW_S = 10 * HOUR_S
TWO = (tenant("vision", 16, priority=3), tenant("speech", 16, priority=3))


def asking(number: int, hour: float = 0.0, **fields: str | int) -> Workload:
    return workload(number, gang(1), submitted_at_s=hour * HOUR_S, **fields)  # type: ignore[arg-type]


def backlog_of(tenants: Sequence[Tenant], *queue: Workload) -> Backlog:
    backlog = Backlog(Tenancy(tenants))
    for waiting in queue:
        backlog.add(waiting)
    return backlog


def ranking_of(
    backlog: Backlog, used: Sequence[float] = (), weights: CreditWeights | None = None
) -> CreditRanking:
    holdings = Holdings(backlog.tenancy, WindowAverage(HOUR_S))
    averages = np.array(used or [0.0] * len(backlog.tenancy))
    return CreditRanking(backlog, holdings, weights or CreditWeights(), NOW_S, averages)


def numbers(ranked: Sequence[Ranked]) -> list[int]:
    return [r.id - FIRST_WORKLOAD_ID for r in ranked]


def order(tenants: Sequence[Tenant], *queue: Workload, used: Sequence[float] = ()) -> list[int]:
    """Both ways, which must agree."""
    ranking = ranking_of(backlog_of(tenants, *queue), used)
    assert list(ranking) == list(ranking.listed())
    return numbers(list(ranking))


def test_an_empty_queue_has_an_empty_ranking() -> None:
    ranking = ranking_of(backlog_of(TWO))
    assert list(ranking) == list(ranking.listed()) == []
    assert ranking.columns().id.size == 0


def test_the_credit_is_the_sum_of_its_terms_and_each_is_told() -> None:
    backlog = backlog_of(TWO, asking(0, 4.0, nice=150))
    (found,) = ranking_of(backlog, used=(30.0, 10.0))
    assert found == Ranked(asking(0).id, 3, True, 6.0 + 6.0 - 1.5, 6.0, 6.0, 1.5)


def test_who_waited_longer_goes_first_among_equals() -> None:
    assert order(TWO, asking(0, 2), asking(1, 1), asking(2, 3)) == [1, 0, 2]


def test_a_higher_priority_goes_before_any_credit() -> None:
    levels = (tenant("vision", 16, priority=4), tenant("speech", 16, priority=3))
    assert order(levels, asking(0, 0), asking(1, 9, tenant="speech")) == [1, 0]


def test_who_used_less_goes_first_across_tenants() -> None:
    queue = (asking(0, 5), asking(1, 6, tenant="speech"))
    assert order(TWO, *queue) == [0, 1]
    assert order(TWO, *queue, used=(10.0, 0.0)) == [1, 0]  # 5 + 0 against 4 + 24


def test_fair_share_is_worth_no_more_than_its_weight_in_hours() -> None:
    queue = (asking(0, 0), asking(1, 9, tenant="speech"))
    used = (11.0, 9.0)  # shares 0.55 and 0.45: 2.4 hours apart
    assert order(TWO, *queue, used=used) == [0, 1]


def test_who_is_over_quota_goes_behind_all_within_quota_by_credit_alone() -> None:
    tight = (tenant("vision", 8, priority=1), tenant("speech", 16, priority=6))
    queue = (asking(0, 1), asking(1, 2), asking(2, 8, tenant="speech"), asking(3, 0))
    ranked = list(ranking_of(backlog_of(tight, *queue)))
    assert [
        (n, r.priority, r.within_quota) for n, r in zip(numbers(ranked), ranked, strict=True)
    ] == [(3, 1, True), (2, 6, True), (0, 7, False), (1, 7, False)]


def test_a_tenant_of_the_lowest_priority_competes_with_those_over_quota() -> None:
    lowest = (tenant("vision", 8, priority=7), tenant("speech", priority=1))
    queue = (asking(0, 5), asking(1, 4, tenant="speech"), asking(2, 6))
    ranked = list(ranking_of(backlog_of(lowest, *queue)))
    assert numbers(ranked) == [1, 0, 2]
    assert [r.within_quota for r in ranked] == [False, True, False]


def test_at_the_age_cap_credits_tie_and_the_earlier_submission_goes_first() -> None:
    capped = CreditWeights(age_cap_h=1.0)
    backlog = backlog_of(TWO, asking(0, 3), asking(1, 2, tenant="speech"), asking(2, 9.5))
    ranked = list(ranking_of(backlog, weights=capped))
    assert numbers(ranked) == [1, 0, 2]
    assert [r.age_term for r in ranked] == [1.0, 1.0, 0.5]


def test_submitted_at_once_the_smaller_id_goes_first_across_tenants() -> None:
    queue = (asking(3), asking(2, tenant="speech"), asking(1), asking(0, tenant="speech"))
    assert order(TWO, *queue) == [0, 1, 2, 3]


def test_weights_of_nothing_leave_first_come_first_served() -> None:
    none = CreditWeights(per_hour_waited=0, age_cap_h=0, fair_share=0, per_nice=0)
    backlog = backlog_of(TWO, asking(0, 2, nice=9), asking(1, 1, tenant="speech"), asking(2, 3))
    assert numbers(list(ranking_of(backlog, (9.0, 1.0), none))) == [1, 0, 2]


def test_nice_costs_places_and_no_priority() -> None:
    queue = (asking(0, 0, nice=100), asking(1, 0.5))
    assert order(TWO, *queue) == [1, 0]
    assert [r.priority for r in ranking_of(backlog_of(TWO, *queue))] == [3, 3]


def test_who_asked_for_a_lower_priority_goes_at_that_level() -> None:
    queue = (asking(0, 0, asked_priority=5), asking(1, 9))
    ranked = list(ranking_of(backlog_of(TWO, *queue)))
    assert [(r.priority, r.within_quota) for r in ranked] == [(3, True), (5, True)]
    assert numbers(ranked) == [1, 0]


def test_the_columns_say_the_same_as_the_list() -> None:
    ranking = ranking_of(backlog_of(TWO, asking(0, 2, nice=9), asking(1, 1, tenant="speech")))
    columns, listed = ranking.columns(), ranking.listed()
    assert columns.id.tolist() == [r.id for r in listed]
    assert columns.credit.tolist() == [r.credit for r in listed]
    assert columns.within_quota.tolist() == [r.within_quota for r in listed]


def test_who_leaves_the_queue_meanwhile_holds_up_nobody_behind_it() -> None:
    queue = [asking(k, k) for k in range(5)]
    backlog = backlog_of((tenant("vision", 24),), *queue)
    ranked = iter(ranking_of(backlog))
    given = [next(ranked)]
    for gone in (queue[0], queue[1], queue[3]):
        backlog.remove(gone)
    given += ranked
    assert [n for n in numbers(given) if n not in (1, 3)] == [0, 2, 4]


def test_who_comes_back_meanwhile_is_not_tried_twice_in_one_pass() -> None:
    queue = [asking(k, k) for k in range(4)]
    backlog = backlog_of((tenant("vision", 16),), *queue)
    ranked = iter(ranking_of(backlog))
    given = [next(ranked), next(ranked)]
    backlog.remove(queue[0])
    backlog.add(queue[0])
    assert numbers([*given, *ranked]) == [0, 1, 2, 3]


def test_a_whole_tenant_may_vanish_before_its_turn() -> None:
    backlog = backlog_of(TWO, asking(0, 1), asking(1, 2, tenant="speech"))
    ranked = iter(ranking_of(backlog))
    assert numbers([next(ranked)]) == [0]
    backlog.remove(asking(1, 2, tenant="speech"))
    assert list(ranked) == []


def test_quota_that_a_sibling_frees_lifts_the_tenant_at_the_next_ranking() -> None:
    lab = (tenant("lab", 8), tenant("vision", parent="lab"), tenant("speech", parent="lab"))
    backlog = backlog_of(lab, asking(0, 5))
    holdings = Holdings(backlog.tenancy, WindowAverage(HOUR_S))
    held = Charge(row=2, amounts=(8, 1), weighted_gpus=0.0)
    holdings.add(held, within_quota=True, at_s=0.0)
    before = CreditRanking(backlog, holdings, CreditWeights(), NOW_S)
    assert [(r.priority, r.within_quota) for r in before] == [(7, False)]
    holdings.release(held, within_quota=True, at_s=0.0)
    backlog.touch(held.row)
    too_large = workload(1, gang(2), tenant="speech")
    backlog.add(too_large)  # older, and over quota
    after = list(CreditRanking(backlog, holdings, CreditWeights(), NOW_S))
    assert [(n, r.priority) for n, r in zip(numbers(after), after, strict=True)] == [(0, 3), (1, 7)]


def test_usage_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="usage must consist of finite non-negative numbers"):
        ranking_of(backlog_of(TWO, asking(0)), (float("nan"), 1.0))


@pytest.mark.parametrize("ids_apart", [1, 2**40])
@pytest.mark.parametrize("in_order", [True, False])
def test_the_order_of_columns_is_that_of_sorting_by_all_four(
    in_order: bool, ids_apart: int
) -> None:
    rng = np.random.default_rng(5)
    number = 500
    ids = rng.permutation(number) * ids_apart + 2**32
    submitted = (ids if in_order else rng.integers(0, 20, number)).astype(np.float64)
    credit = rng.integers(0, 8, number).astype(np.float64)  # most are equal to some other
    priority = rng.integers(1, LOWEST_PRIORITY + 1, number)
    expected = np.lexsort((ids, submitted, -credit, priority))
    assert rank_order(priority, credit, submitted, ids).tolist() == expected.tolist()
    apart = credit + np.arange(number)
    expected = np.lexsort((ids, submitted, -apart, priority))
    assert rank_order(priority, apart, submitted, ids).tolist() == expected.tolist()


def test_the_order_of_nothing_is_empty() -> None:
    none, no_times = np.array([], dtype=np.int64), np.array([], dtype=np.float64)
    assert rank_order(none, no_times, no_times, none).tolist() == []
