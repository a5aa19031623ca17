"""How quotas fit, and how many times the fleet they may promise, by whole weeks."""

from __future__ import annotations

import random

import pytest

from federator.usage.quota_fit import Demand, fits, interval, over_commitment, quantile
from federator.usage.quota_review import DailyUse, QueuedWorkload
from federator.usage.report import Quota

DAY_S = 86_400.0
FIRST_DAY = 20_000
T0_S = FIRST_DAY * DAY_S
VISION = Quota("vision", 100.0, frozenset({"vision", "vision-batch"}))
NLP = Quota("nlp", 100.0, frozenset({"nlp"}))


def use_of(days: int, supply: float = 160.0, **held: list[float]) -> DailyUse:
    return DailyUse(
        days=range(FIRST_DAY, FIRST_DAY + days),
        held=held,
        busy={},
        watched={},
        supply=[supply] * days,
    )


def verdicts(use: DailyUse, queue: list[QueuedWorkload] | None = None) -> dict[str, str]:
    return {fit.tenant: fit.verdict for fit in fits(use, [VISION, NLP], queue or [])}


def test_who_uses_more_than_the_quota_or_much_less_is_found() -> None:
    use = use_of(28, vision=[130.0, 120.0] * 14, nlp=[10.0, 30.0] * 14)
    nlp, vision = fits(use, [VISION, NLP], [])
    assert (vision.verdict, vision.held_gpus) == ("more", 125.0)
    assert vision.demand_low_gpus <= 125.0 <= vision.demand_high_gpus
    assert vision.would_do_gpus <= 126
    assert (nlp.verdict, nlp.busiest_day_gpus, nlp.would_do_gpus) == ("less", 30.0, 38.0)


def test_waiting_work_is_demand_and_tenants_below_share_a_quota() -> None:
    waits = [QueuedWorkload("vision-batch", 60, T0_S + k * DAY_S, 0.0) for k in (0,)]
    use = use_of(28, vision=[50.0] * 28, nlp=[80.0] * 28)
    assert verdicts(use) == {"nlp": "fits", "vision": "less"}
    assert verdicts(use, waits) == {"nlp": "fits", "vision": "more"}


def test_one_busy_week_of_four_is_no_evidence_of_more() -> None:
    use = use_of(28, vision=[50.0] * 21 + [260.0] * 7, nlp=[80.0] * 28)
    (fit,) = fits(use, [VISION], [])
    assert fit.demand_gpus > 100
    assert fit.demand_low_gpus < 100
    assert fit.verdict == "fits"


def test_fewer_than_three_whole_weeks_say_nothing() -> None:
    use = use_of(20, vision=[500.0] * 20)
    assert verdicts(use) == {"nlp": "unknown", "vision": "unknown"}
    assert over_commitment(use, [VISION], [Demand("vision", 8, T0_S, 0.0)], 0.01) is None


def test_the_interval_holds_the_mean_in_19_of_20_cases() -> None:
    rng = random.Random(5)
    held = 0
    for _ in range(2000):
        low, high = interval([rng.gauss(50, 10) for _ in range(8)])
        held += low <= 50 <= high
    assert 0.93 <= held / 2000 <= 0.97


def test_a_quantile_is_weighted() -> None:
    assert quantile([(2.0, 1.0), (1.0, 98.0), (3.0, 1.0)], 0.98) == 1.0
    assert quantile([(2.0, 1.0), (1.0, 98.0), (3.0, 1.0)], 0.99) == 2.0
    assert quantile([], 0.99) == 0.0


def day_and_night(days: int, gpus: int) -> list[Demand]:
    """Vision wants so many by day, nlp by night."""
    half = DAY_S / 2
    by_day = [
        Demand("vision", gpus, T0_S + k * DAY_S, T0_S + k * DAY_S + half) for k in range(days)
    ]
    return by_day + [
        Demand("nlp", gpus, T0_S + k * DAY_S + half, T0_S + (k + 1) * DAY_S) for k in range(days)
    ]


def test_tenants_that_take_turns_may_be_promised_more() -> None:
    found = over_commitment(use_of(28), [VISION, NLP], day_and_night(28, 100), 0.01)
    assert found is not None
    assert (found.promised_gpus, found.supply_gpus, found.exceeded_frac) == (200.0, 160.0, 0.0)
    # Of 200 that are promised 100 are wanted at a time: 2 promised for each that is there.
    assert found.factor == pytest.approx(2.0)
    assert found.advised_factor == 1.5  # never more


def test_demand_at_the_same_time_leaves_no_room() -> None:
    together = [Demand(name, 100, T0_S, 0.0) for name in ("vision", "nlp")]
    found = over_commitment(use_of(28), [VISION, NLP], together, 0.01)
    assert found is not None
    assert found.factor == pytest.approx(1.0)
    assert found.exceeded_frac == 1.0
    assert found.advised_factor == 1.0


def test_demand_beyond_a_quota_is_not_promised_and_does_not_count() -> None:
    beyond = [Demand("vision", 70, T0_S, 0.0), Demand("vision-batch", 70, T0_S, 0.0)]
    stranger = Demand("guest", 500, T0_S, 0.0)
    found = over_commitment(use_of(28), [VISION, NLP], [*beyond, stranger], 0.01)
    assert found is not None
    assert found.factor == pytest.approx(2.0)


def test_the_worst_week_bounds_the_advice() -> None:
    quiet = day_and_night(28, 50)
    busy = [Demand("nlp", 50, T0_S + 21 * DAY_S, T0_S + 21 * DAY_S + 7200)]  # 1.2 % of that week
    found = over_commitment(use_of(28), [VISION, NLP], quiet + busy, 0.01)
    assert found is not None
    assert found.factor == pytest.approx(4.0)
    assert found.worst_week_factor == pytest.approx(2.0)


def test_a_higher_risk_allows_no_less() -> None:
    rng = random.Random(7)
    demands = []
    for _ in range(2000):
        from_s = T0_S + rng.uniform(0, 27) * DAY_S
        to_s = from_s + rng.uniform(0, 1) * DAY_S
        demands.append(Demand(rng.choice(["vision", "nlp"]), rng.randrange(1, 9), from_s, to_s))
    found = [
        over_commitment(use_of(28), [VISION, NLP], demands, risk) for risk in (0.001, 0.01, 0.1)
    ]
    factors = [each.factor for each in found if each is not None]
    assert len(factors) == 3
    assert factors == sorted(factors)
    again = over_commitment(use_of(28), [NLP, VISION], demands[::-1], 0.01)
    assert again is not None
    assert again.factor == pytest.approx(factors[1])
