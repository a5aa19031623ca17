"""Tiers are measured once an hour, where prices count in bids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import structlog

from federator.config import FederationConfig
from federator.daemon.own_config import OwnConfig
from federator.daemon.tier_use import tier_look
from federator.errors import HistoryError
from federator.history.service import JobHistory
from federator.model.message import TiersMeasured
from federator.model.workload import SiteName

NOW_S = 1_764_072_000.0
PRICES = {"rules": [{"site": "alpine", "gpu_h": 0.7, "tier": "spot"}]}


class History:
    """Answers, or fails, as it is told; keeps what it was asked."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.fault = fault

    async def read(self, read: Callable[..., Any]) -> dict[tuple[str, str], float]:
        self.asked.append(read.keywords)  # type: ignore[attr-defined]
        if self.fault is not None:
            raise self.fault
        return {("alpine", "spot"): 1.5}


def look(
    history: History, weight: float = 10.0, prices: dict[str, Any] | None = None
) -> list[TiersMeasured]:
    config = FederationConfig.model_validate(
        {
            "federation": "demo",
            "store": "memory:",
            "regions": {"r": {"shared": "/s"}},
            "sites": {"alpine": {"region": "r", "partitions": ["gpu"], "command": ["true"]}},
            "policy": {"price_weight": weight},
            "prices": PRICES if prices is None else prices,
        }
    )

    class Own:
        now = config

    seen: list[TiersMeasured] = []
    own = cast(OwnConfig, Own())
    asyncio.run(tier_look(cast(JobHistory, history), own, lambda: NOW_S, seen.append).look())
    return seen


def test_the_core_is_told_what_was_measured_of_the_prices_tiers() -> None:
    history = History()
    assert look(history) == [TiersMeasured(factors={(SiteName("alpine"), "spot"): 1.5})]
    (asked,) = history.asked
    assert asked["now_s"] == NOW_S
    assert asked["prices"].tier("alpine", "gpu", "a100") == "spot"


def test_nothing_is_read_where_prices_do_not_count_or_are_not_known() -> None:
    history = History()
    assert look(history, weight=0.0) == look(history, prices={}) == []
    assert history.asked == []


@pytest.mark.parametrize("fault", [HistoryError("away"), RuntimeError("ours")])
def test_a_look_that_fails_says_nothing_to_the_core(fault: Exception) -> None:
    with structlog.testing.capture_logs() as logs:
        assert look(History(fault)) == []
    assert len(logs) == isinstance(fault, RuntimeError)
