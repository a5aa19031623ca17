"""What a review of quotas finds, by made-up days, and what it leaves alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from federator.usage.days import DAY_MS, MEASURES
from federator.usage.diagnosis import OF_QUOTAS, Diagnosis
from federator.usage.quota_review import (
    DailyUse,
    PoweredTime,
    QueuedWorkload,
    daily_use,
    interval,
    review,
    with_power,
)
from federator.usage.report import Quota, UsageFound
from federator.usage.supply import CellKey, Supplied
from tests.fakes.quota_series import SORTS, fleet, scores

DAY_S = 86_400.0


def days_of(*amounts: float, busy: float = 0.5, supply: float = 0.0) -> DailyUse:
    """What tenant ``a`` held on these days."""
    return DailyUse(
        days=range(100, 100 + len(amounts)),
        held={"a": amounts},
        busy={"a": [amount * busy for amount in amounts]},
        watched={"a": amounts},
        supply=[supply] * len(amounts),
    )


def quota(gpus: float, *tenants: str) -> Quota:
    return Quota("a", gpus, frozenset(tenants or ("a",)))


def found(
    use: DailyUse, *quotas: Quota, queue: Sequence[QueuedWorkload] = ()
) -> dict[str, Diagnosis]:
    return {each.kind: each for each in review(use, quotas, queue)}


def test_a_quota_is_unused_after_three_days_below_a_fifth() -> None:
    made = found(days_of(50, 10, 5, 0), quota(100))["unused-quota"]
    assert made.tenant == "a"
    assert made.evidence["days_below"] == 3
    assert made.evidence["would_do_gpus"] == 63
    assert found(days_of(50, 10, 5, 25), quota(100)) == {}
    assert found(days_of(10, 5), quota(100)) == {}, "two days are known"


def test_a_quota_that_several_tenants_share_is_used_by_any_of_them() -> None:
    both = DailyUse(
        days=range(3),
        held={"a": [0.0] * 3, "b": [80.0] * 3},
        busy={},
        watched={},
        supply=[0.0] * 3,
    )
    assert found(both, quota(100, "a", "b")) == {}
    assert "unused-quota" in found(both, quota(100))


def test_a_quota_is_too_small_if_it_is_used_up_and_work_waits() -> None:
    use = days_of(*[100.0] * 7)
    waits = [QueuedWorkload("a", 8, use.end_s - 7 * DAY_S, 0.0) for _ in range(10)]
    made = found(use, quota(100), queue=waits)["small-quota"]
    assert (made.evidence["waiting_gpus"], made.evidence["demand_low_gpus"]) == (80, 180)
    assert "small-quota" not in found(use, quota(100), queue=waits[:9])
    idle = days_of(*[60.0] * 7)
    assert "small-quota" not in found(idle, quota(100), queue=waits), "others hold what it may use"


def test_a_tenant_hoards_only_what_others_wait_for_and_nodes_have_watched() -> None:
    use = days_of(*[50.0] * 7, busy=0.1)
    waits = [QueuedWorkload("b", 8, use.end_s - 2 * DAY_S, 0.0) for _ in range(10)]
    made = found(use, queue=waits)["hoarding"]
    assert (made.tenant, made.evidence["busy_frac"], made.gpu_h) == ("a", 0.1, 0.9 * 350 * 24)
    assert "hoarding" not in found(use)
    own = [each._replace(tenant="a") for each in waits]
    assert "hoarding" not in found(use, queue=own)
    unwatched = DailyUse(days=use.days, held=use.held, busy={}, watched={}, supply=use.supply)
    assert "hoarding" not in found(unwatched, queue=waits)


def test_a_tenant_hoards_from_itself_if_its_own_work_waits_beside_idle_gpus() -> None:
    use = days_of(*[50.0] * 7, busy=0.1)
    own = [QueuedWorkload("a", 8, use.end_s - 2 * DAY_S, 0.0) for _ in range(10)]
    made = found(use, queue=own)["self-hoarding"]
    assert (made.tenant, made.evidence["own_long_waits"]) == ("a", 10)
    assert "self-hoarding" not in found(use, queue=own[:9])
    others = [each._replace(tenant="b") for each in own]
    assert "self-hoarding" not in found(use, queue=others)
    assert "self-hoarding" not in found(days_of(*[50.0] * 7, busy=0.3), queue=own)


def test_how_much_may_be_promised_is_told_with_an_interval() -> None:
    rng = random.Random(1)
    use = days_of(*[rng.gauss(60, 5) for _ in range(28)], supply=100.0)
    seen = found(use, quota(100))["over-commit"].evidence
    assert 1.2 <= seen["factor_low"] < seen["factor"] < seen["factor_high"]
    assert seen["advised_factor"] == min(1.5, seen["factor_low"])
    busy = days_of(*[rng.gauss(90, 5) for _ in range(28)], supply=100.0)
    assert "over-commit" not in found(busy, quota(100))
    few = days_of(*[60.0] * 13, supply=100.0)
    assert "over-commit" not in found(few, quota(100)), "13 days are too few"


def test_no_more_is_promised_where_the_fleet_bounds_what_is_used() -> None:
    days = [60.0] * 28
    assert "over-commit" in found(days_of(*days, supply=100.0), quota(100))
    assert "over-commit" not in found(days_of(*days, supply=62.0), quota(100)), "it is full"
    assert "over-commit" not in found(days_of(*days), quota(100)), "the supply is not known"
    use = days_of(*days, supply=100.0)
    waits = [QueuedWorkload("b", 8, use.end_s - 2 * DAY_S, 0.0) for _ in range(10)]
    assert "over-commit" not in found(use, quota(100), queue=waits), "work waits"
    twice = found(days_of(*[40.0] * 28, supply=60.0), quota(100))
    assert "over-commit" not in twice, "as much is promised as may be"


def test_a_surge_is_three_times_the_week_before() -> None:
    week = [10.0] * 7
    made = found(days_of(*week, 31.0))["surge"]
    assert (made.evidence["times"], made.gpu_h) == (3.1, 21 * 24)
    assert found(days_of(*week, 30.0)) == {}
    assert found(days_of(*[0.0] * 7, 30.0)) == {}, "a tenant that begins has no norm"
    assert found(days_of(*week[1:], 31.0)) == {}


def test_a_queue_grows_faster_than_it_drains_for_three_days() -> None:
    use = days_of(*[0.0] * 3)

    def jobs(day: int, came: int, left: int) -> list[QueuedWorkload]:
        at_s = (100 + day) * DAY_S
        return [QueuedWorkload("a", 1, at_s, at_s + 1 if k < left else 0.0) for k in range(came)]

    growing = jobs(0, 20, 10) + jobs(1, 20, 10) + jobs(2, 20, 10)
    made = found(use, queue=growing)["backlog"]
    assert made.evidence == {"came": 60, "left": 30, "days": 3, "waiting": 30}
    assert found(use, queue=jobs(0, 20, 20) + jobs(1, 20, 10) + jobs(2, 20, 10)) == {}
    assert found(use, queue=jobs(0, 9, 0) + jobs(1, 20, 0) + jobs(2, 20, 0)) == {}


def test_a_fall_is_less_than_half_of_the_week_before() -> None:
    made = found(days_of(*[80.0] * 7, 30.0, supply=100.0))["fall"]
    assert (made.evidence, made.gpu_h) == ({"held_frac": 0.3, "norm_frac": 0.8}, 1200.0)
    assert found(days_of(*[80.0] * 7, 41.0, supply=100.0)) == {}
    assert found(days_of(*[80.0] * 7, 30.0)) == {}, "the supply is not known"


def parts_of(
    *busy: float | None, power: Sequence[float] = (), held: float = 8.0, watched: float = 1.0
) -> DailyUse:
    """How busy tenant ``a``'s GPUs were on these days, and the part of their power that they drew.

    None: it held none.
    """
    has = [0.0 if frac is None else held for frac in busy]
    seen = [gpus * watched for gpus in has]
    return DailyUse(
        days=range(100, 100 + len(busy)),
        held={"a": has},
        busy={"a": [gpus * (frac or 0.0) for gpus, frac in zip(seen, busy, strict=True)]},
        watched={"a": seen},
        supply=[0.0] * len(busy),
        powered={"a": seen} if power else {},
        power={"a": [g * p for g, p in zip(seen, power, strict=True)]} if power else {},
    )


def test_use_falls_below_half_of_the_week_before() -> None:
    made = found(parts_of(*[0.8] * 7, 0.2))["busy-fall"]
    assert (made.tenant, made.gpu_h) == ("a", 0.75 * 8 * 24)
    assert made.evidence == {"busy_frac": 0.2, "norm_frac": 0.8, "watched_gpus": 8.0}
    assert found(parts_of(*[0.8] * 7, 0.41)) == {}
    assert found(parts_of(*[0.8] * 6, 0.2)) == {}, "a week is wanted before"
    assert found(parts_of(*[0.1] * 7, 0.0)) == {}, "it never did much"
    assert found(parts_of(*[0.2, 0.8] * 3, 0.2, 0.2)) == {}, "it is used to such days"
    assert found(parts_of(*[0.8] * 7, 0.2, held=0.5)) == {}, "it holds next to nothing"
    assert found(parts_of(*[0.8] * 7, 0.2, watched=0.4)) == {}, "most was not watched"


def test_days_without_work_are_no_fall_and_no_norm() -> None:
    assert found(parts_of(*[0.8] * 7, None)) == {}
    week = [0.8, 0.8, 0.8, 0.8, None, None, None]
    assert "busy-fall" in found(parts_of(*week, 0.2))
    assert found(parts_of(*week[:3], None, *week[4:], 0.2)) == {}, "three days are no norm"


def test_power_falls_though_the_gpus_are_as_busy_as_ever() -> None:
    made = found(parts_of(*[0.9] * 8, power=[0.7] * 7 + [0.28]))
    assert list(made) == ["power-fall"]
    evidence = made["power-fall"].evidence
    assert evidence == {
        "power_frac": 0.28,
        "norm_frac": 0.7,
        "watched_gpus": 8.0,
        "busy_frac": 0.9,
    }
    assert found(parts_of(*[0.9] * 8, power=[0.7] * 7 + [0.36])) == {}
    assert found(parts_of(*[0.9] * 8)) == {}, "no power is known"


def test_power_counts_on_the_days_on_which_it_was_drawn() -> None:
    use = parts_of(*[0.9] * 3)
    at_s = 100 * DAY_S
    times = [
        PoweredTime("a", 4, at_s - DAY_S, at_s + 1.5 * DAY_S, 0.5),
        PoweredTime("a", 4, at_s + DAY_S, at_s + 9 * DAY_S, 2.0),
        PoweredTime("b", 1, at_s + DAY_S, at_s + DAY_S, 0.5),
    ]
    made = with_power(use, times)
    assert made.powered == {"a": [4.0, 6.0, 4.0]}
    assert made.power == {"a": [2.0, 5.0, 4.0]}
    assert with_power(days_of(), times).powered == {}


def test_only_whole_days_count_from_the_first_that_has_anything() -> None:
    """Not the days before the federation was there, nor the one that goes on."""
    row = [0] * len(MEASURES)
    row[MEASURES.index("unknown_gpu_ms")] = 8 * DAY_MS
    row[MEASURES.index("watched_gpu_ms")] = 4 * DAY_MS
    use = daily_use(
        UsageFound(
            columns=("day", "tenant", "site", "partition", "gpu_type"),
            sums={(day, "a", "alpine", "gpu", ""): row for day in (101, 103, 104)},
            supply={CellKey(102, "alpine", "a100"): Supplied(gpu_ms=16 * DAY_MS)},
            held={},
            start_s=90 * DAY_S,
            end_s=104.5 * DAY_S,
            at_s=104.5 * DAY_S,
        )
    )
    assert list(use.days) == [101, 102, 103]
    assert use.held == {"a": [8.0, 0.0, 8.0]}
    assert use.watched == {"a": [4.0, 0.0, 4.0]}
    assert use.supply == [0.0, 16.0, 0.0]


def test_without_a_whole_day_nothing_is_found() -> None:
    assert found(days_of(), quota(100)) == {}


def test_an_interval_is_as_wide_as_the_values_differ() -> None:
    assert interval([5.0, 5.0, 5.0]) == (5.0, 5.0)
    low, high = interval([4.0, 6.0])
    assert low < 4.0
    assert high > 6.0
    assert interval([5.0]) == (float("-inf"), float("inf"))


def test_a_wait_counts_as_far_as_it_lies_in_the_time() -> None:
    waited = QueuedWorkload("a", 1, 100.0, 300.0).waited_s
    assert (waited(0, 1000), waited(200, 1000), waited(0, 150), waited(400, 500)) == (
        200,
        100,
        50,
        0,
    )
    assert QueuedWorkload("a", 1, 100.0).waited_s(0, 1000) == 900


@pytest.mark.parametrize("sort", SORTS)
def test_the_same_month_gives_the_same_findings(sort: str) -> None:
    assert review(*fleet(sort, random.Random(2))) == review(*fleet(sort, random.Random(2)))


@pytest.mark.parametrize("seed", [1, 2])
def test_nine_findings_of_ten_are_right_on_labelled_months(seed: int) -> None:
    measured = scores(seed)
    assert set(measured) == set(OF_QUOTAS)
    for kind, score in measured.items():
        assert score.precision >= 0.9, (kind, score)
        assert score.recall >= 0.75, (kind, score)
