"""The terms of the credit, by hand."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from federator.sched.state.credit import CreditWeights, age_terms, fair_share_terms, usage_shares

WEIGHTS = CreditWeights(per_hour_waited=2.0, age_cap_h=10.0, fair_share=24.0, per_nice=0.01)


def test_an_hour_of_waiting_is_worth_its_weight_until_the_cap() -> None:
    hours = np.array([0.0, 0.5, 1.0, 10.0, 11.0, 1000.0])
    assert age_terms(hours * 3600.0, WEIGHTS).tolist() == [0.0, 1.0, 2.0, 20.0, 20.0, 20.0]


def test_one_workloads_terms_equal_those_of_the_array_to_the_last_bit() -> None:
    ages = np.random.default_rng(1).uniform(0, 72_000, 1000)
    assert [WEIGHTS.age_term(age) for age in ages.tolist()] == age_terms(ages, WEIGHTS).tolist()


def test_a_share_is_a_part_of_the_sum_over_all_tenants() -> None:
    assert usage_shares(np.array([30.0, 10.0, 0.0])).tolist() == [0.75, 0.25, 0.0]


def test_who_used_nothing_is_ahead_by_the_whole_weight_of_who_used_all() -> None:
    assert fair_share_terms(np.array([8.0, 0.0]), WEIGHTS).tolist() == [0.0, 24.0]
    assert fair_share_terms(np.array([30.0, 10.0]), WEIGHTS).tolist() == [6.0, 18.0]


def test_while_nobody_has_used_anything_all_are_alike() -> None:
    assert fair_share_terms(np.zeros(3), WEIGHTS).tolist() == [24.0, 24.0, 24.0]
    assert fair_share_terms(np.zeros(0), WEIGHTS).tolist() == []


def test_a_nice_of_a_hundred_costs_what_half_an_hour_of_waiting_brings() -> None:
    assert WEIGHTS.nice_term(100) == WEIGHTS.age_term(1800.0) == 1.0
    assert WEIGHTS.nice_term(0) == 0.0


def test_not_to_be_evicted_costs_what_two_hours_of_waiting_bring() -> None:
    weights = CreditWeights()
    assert weights.non_preemptible_term(preemptible=False) == weights.age_term(7200.0) == 2.0
    assert weights.non_preemptible_term(preemptible=True) == 0.0


def test_every_weight_may_be_nothing() -> None:
    none = CreditWeights(
        per_hour_waited=0, age_cap_h=0, fair_share=0, per_nice=0, non_preemptible=0
    )
    assert (none.age_term(1e9), none.nice_term(9)) == (0.0, 0.0)
    assert none.non_preemptible_term(preemptible=False) == 0.0
    assert fair_share_terms(np.array([1.0, 2.0]), none).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "name", ["per_hour_waited", "age_cap_h", "fair_share", "per_nice", "non_preemptible"]
)
@pytest.mark.parametrize("weight", [-1.0, nan, inf])
def test_a_weight_that_is_negative_or_no_number_is_refused(name: str, weight: float) -> None:
    with pytest.raises(ValueError, match="credit weights must be non-negative numbers"):
        CreditWeights(**{name: weight})


@pytest.mark.parametrize("used", [-1.0, nan, inf])
def test_usage_that_is_negative_infinite_or_no_number_is_refused(used: float) -> None:
    with pytest.raises(ValueError, match="usage must consist of finite non-negative numbers"):
        usage_shares(np.array([1.0, used]))
