"""The settings of a policy: one flat name each, and where federation.yaml has it under ``policy:``.

The daemon reads its rules from the file by this table; ``federator simulate --set`` takes the same
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

RULE_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pass_interval_s": "pass_interval_s",
        "launch_lease_s": "launch_lease_s",
        "bid_timeout_s": "bid_timeout_s",
        "preempt_frac": "preemption.budget_frac",
        "beyond_budget_frac": "preemption.beyond_budget_frac",
        "preempt_window_s": "preemption.budget_window_s",
        "preempt_lost_gpu_s": "preemption.budget_lost_gpu_s",
        "max_saves_per_region": "preemption.max_saves_per_region",
        "grace_s": "preemption.grace_s",
        "cooldown_s": "preemption.cooldown_s",
        "min_run_s": "preemption.min_run_s",
        "defragment": "defragment.mode",
        "defragment_moves": "defragment.max_moves",
        "defragment_margin": "defragment.margin",
        "forecast_ends": "forecast_ends",
        "cells": "cells",
        "lending": "lending",
        "price_weight": "price_weight",
        "spot_interruptions": "spot_interruptions",
    }
)
"""Attributes of ``sched.state.rules.Rules``."""

WEIGHT_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "per_hour_waited": "credit.per_hour_waited",
        "age_cap_h": "credit.age_cap_h",
        "fair_share": "credit.fair_share",
        "per_nice": "credit.per_nice",
        "non_preemptible": "credit.non_preemptible",
    }
)
"""Attributes of ``sched.state.credit.CreditWeights``."""

USAGE_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "usage_window_h": "credit.usage_window_h",
        "usage_half_life_h": "credit.usage_half_life_h",
    }
)
"""Attributes of ``sched.state.usage.UsageMemory``."""

POLICY_KEYS: Final[Mapping[str, str]] = MappingProxyType({**RULE_KEYS, **WEIGHT_KEYS, **USAGE_KEYS})
"""All of them."""


def at_keys(policy: object, keys: Mapping[str, str]) -> dict[str, Any]:
    """The values of some settings by name.

    Args:
        policy: has an attribute for each part of a key.
        keys: by name.
    """
    found: dict[str, Any] = {}
    for name, key in keys.items():
        value: Any = policy
        for part in key.split("."):
            value = getattr(value, part)
        found[name] = value
    return found
