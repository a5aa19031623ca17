"""The key ``prices`` of federation.yaml, and what of usage a user sees."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from federator.config import FederationConfig
from federator.config_prices import PricesConfig
from federator.config_tenants import gpu_quotas
from federator.model.prices import Rates
from federator.model.viewer import Viewer
from federator.usage.report import Quota, day_word


def config(**more: Any) -> FederationConfig:
    values: dict[str, Any] = {
        "federation": "demo",
        "store": "memory:",
        "regions": {"north": {"shared": "/shared"}},
        "sites": {"alpine": {"region": "north", "command": ["x"], "partitions": ["gpu"]}},
        "tenants": {
            "lab": {"quota": {"gpus": 64}},
            "vision": {"users": ["ada", "bob"], "parent": "lab", "quota": {"gpus": 16}},
            "nlp": {"users": ["eve"], "parent": "lab"},
            "guest": {"users": ["ada"]},
            "cpus": {"users": ["ada"], "quota": {"cpus": 100}},
        },
    }
    return FederationConfig.model_validate(values | more)


def test_by_default_nothing_has_a_price() -> None:
    assert config().prices.price_list().rates("alpine", "gpu", "a100") == Rates()


def test_a_rule_by_weights_is_one_by_prices() -> None:
    rule = {"site": "alpine", "weights": "CPU=1,GRES/gpu=10,GRES/gpu:h100=20", "unit_h": 0.1}
    prices = PricesConfig.model_validate({"currency": "EUR", "rules": [rule]}).price_list()
    assert prices.currency == "EUR"
    assert prices.rates("alpine", "gpu", "a100") == Rates(gpu_h=1.0, cpu_h=0.1)
    assert prices.rates("alpine", "gpu", "h100") == Rates(gpu_h=2.0, cpu_h=0.1)
    assert prices.rates("birch", "gpu", "h100") == Rates()


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"site": "alpine"},
        {"gpu_h": -1},
        {"gpu_h": 1, "weights": "CPU=1"},
        {"weights": "node=1"},
        {"gpu_h": 1, "colour": "red"},
    ],
)
def test_a_rule_that_makes_no_sense_is_an_error(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PricesConfig.model_validate({"rules": [rule]})


def test_the_highest_quota_stands_for_all_who_share_it() -> None:
    found = gpu_quotas(config().tenants)
    assert found == [Quota("lab", 64.0, frozenset({"lab", "vision", "nlp"}))]


@pytest.mark.parametrize(
    ("privacy", "user", "sees"),
    [
        ("open", "bob", {"vision"}),
        ("tenant", "ada", {"vision", "guest", "cpus"}),
        ("own", "ada", set()),
        ("open", "zed", set()),
    ],
)
def test_of_usage_a_member_sees_their_tenants_however_open_the_queue_is(
    privacy: str, user: str, sees: set[str]
) -> None:
    named = config(privacy=privacy)
    assert named.usage_viewer(user, sees_all=False) == Viewer(user=user, tenants=frozenset(sees))
    administers = named.usage_viewer(user, sees_all=False, administers=["nlp"])  # type: ignore[list-item]
    assert administers is not None
    assert administers.tenants == sees | {"nlp"}
    assert named.usage_viewer(user, sees_all=True) is None


def test_a_rule_may_hold_for_some_days_and_say_the_tier() -> None:
    rules = [
        {"gpu_type": "h100", "gpu_h": 0.7, "since": "2026-10-05", "until": "2026-10-07"},
        {"partition": "burst", "tier": "spot"},
        {"gpu_h": 2.0, "tier": "on-demand"},
    ]
    prices = PricesConfig.model_validate({"rules": rules}).price_list()
    first = next(day for day in range(25_000) if day_word(day) == "2026-10-05")
    rates = [prices.rates("alpine", "gpu", "h100", first + k).gpu_h for k in (-1, 0, 1, 2)]
    assert rates == [2.0, 0.7, 0.7, 2.0]
    tiers = [prices.tier("alpine", each, "h100", first) for each in ("gpu", "long,burst")]
    assert tiers == ["on-demand", "spot"]
    assert prices.periods(first - 7, first + 7) == (first - 7, first, first + 2)
    assert prices.periods(first, first + 2) == (), "one price all the time"
    assert prices.periods(first + 1, first + 3) == (first + 1, first + 2)
    same = PricesConfig.model_validate({"rules": rules[1:]}).price_list()
    assert same.periods(0, 25_000) == ()


@pytest.mark.parametrize(
    "rule",
    [
        {"gpu_h": 1.0, "tier": "cheap"},
        {"gpu_h": 1.0, "since": "2026-10-05", "until": "2026-10-05"},
        {"gpu_h": 1.0, "since": "soon"},
        {"site": "alpine"},
        {"gpu_h": 1.0, "weights": "CPU=1.0", "tier": "spot"},
    ],
)
def test_a_tier_or_a_time_that_cannot_be_is_refused(rule: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PricesConfig.model_validate({"rules": [rule]})
