"""The use of quotas is measured once an hour, where the configuration lends unused ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import structlog

from federator.config import FederationConfig
from federator.daemon.own_config import OwnConfig
from federator.daemon.quota_use import quota_look
from federator.errors import HistoryError
from federator.history.service import JobHistory
from federator.model.message import QuotasMeasured
from federator.model.quota_loan import UnusedQuotaRules
from federator.model.workload import TenantName

NOW_S = 1_764_072_000.0
VISION = TenantName("vision")


class History:
    """Answers, or fails, as it is told; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.fault: Exception | None = None
        self.answer: dict[TenantName, float] | None = {VISION: 0.1}

    async def read(self, read: Callable[..., Any]) -> dict[TenantName, float] | None:
        self.asked.append(read.keywords)  # type: ignore[attr-defined]
        if self.fault is not None:
            raise self.fault
        return self.answer


def look(history: History, tenants: dict[str, object]) -> list[QuotasMeasured]:
    config = FederationConfig.model_validate(
        {
            "federation": "demo",
            "store": "memory:",
            "regions": {"r": {"shared": "/s"}},
            "sites": {"alpine": {"region": "r", "partitions": ["gpu"], "command": ["true"]}},
            "policy": {"unused_quota": {"days": 2, "below_frac": 0.1}},
            "tenants": tenants,
        }
    )

    class Own:
        now = config

    seen: list[QuotasMeasured] = []
    own = cast(OwnConfig, Own())
    asyncio.run(quota_look(cast(JobHistory, history), own, lambda: NOW_S, seen.append).look())
    return seen


def test_quotas_are_measured_whose_tenants_are_to_lend_them() -> None:
    history = History()
    tenants = {
        "org": {"quota": {"gpus": 64}, "unused_quota": True},  # YAML's bare on
        "vision": {"parent": "org", "quota": {"gpus": 32}},
        "speech": {"parent": "org"},
        "nlp": {"quota": {"gpus": 32}},
        "safe": {"parent": "org", "quota": {"gpus": 8}, "unused_quota": "off"},
    }
    assert look(history, tenants) == [QuotasMeasured(unused={VISION: 0.1})]
    (asked,) = history.asked
    assert {name: (q.gpus, sorted(q.tenants)) for name, q in asked["quotas"].items()} == {
        "org": (64.0, ["org", "safe", "speech", "vision"]),
        "vision": (32.0, ["vision"]),
    }
    assert asked["rules"] == UnusedQuotaRules(below_frac=0.1, days=2, notice_s=86_400.0)


def test_without_such_tenants_nothing_is_read() -> None:
    history = History()
    assert look(history, {"vision": {"quota": {"gpus": 32}}}) == []
    assert history.asked == []


def test_what_is_not_known_ends_no_loan() -> None:
    history = History()
    tenants: dict[str, object] = {"vision": {"quota": {"gpus": 32}, "unused_quota": "on"}}
    history.answer = None
    assert look(history, tenants) == []
    history.answer = {}
    assert look(history, tenants) == [QuotasMeasured(unused={})]


@pytest.mark.parametrize("fault", [HistoryError("away"), RuntimeError("ours")])
def test_a_look_that_fails_says_nothing_to_the_core(fault: Exception) -> None:
    history = History()
    history.fault = fault
    with structlog.testing.capture_logs() as logs:
        assert look(history, {"vision": {"quota": {"gpus": 32}, "unused_quota": "on"}}) == []
    assert len(logs) == isinstance(fault, RuntimeError)
