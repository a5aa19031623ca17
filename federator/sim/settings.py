"""Parses ``federator simulate --set NAME=VALUE``: settings of the policy, and of the sites.

Those of the policy have the names, meanings and bounds that they have in federation.yaml; those of
the sites are the attributes of ``Physics``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from pydantic import ValidationError

from federator.config_policy import PolicyConfig
from federator.errors import InvalidRequest
from federator.model.defragment import Defragment
from federator.model.lending import Lending
from federator.policies.settings import POLICY_KEYS, RULE_KEYS, USAGE_KEYS, WEIGHT_KEYS, at_keys
from federator.sched.state.credit import CreditWeights
from federator.sched.state.rules import Rules
from federator.sched.state.usage import UsageMemory
from federator.sim.physics import Physics
from federator.sim.setting_names import OF_PHYSICS, check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that may be set; by default as where nothing is."""

    rules: Rules = Rules()
    physics: Physics = Physics()
    weights: CreditWeights = CreditWeights()
    usage: UsageMemory = UsageMemory()
    home: bool = False  # the quota of a pool is guaranteed in the pool itself, see ``Tenant.home``
    known_durations: bool = False  # run times need not be learnt, see ``Scenario``
    start_within_s: float = 0.0  # of every pool's tenant, see ``Tenant.start_within_s``


def settings_of(changes: Mapping[str, float], policy: str) -> Settings:
    """The defaults, with some changes.

    Args:
        changes: values by name.
        policy: its name, for messages; it is one that has settings.

    Raises:
        InvalidRequest: there is none of a name, it does not apply, or the value makes no sense.
    """
    for name in changes:
        check_name(name, policy)
    in_file = {name: v for name, v in changes.items() if name in POLICY_KEYS}
    lends = _flag("lending", in_file.pop("lending", 0.0), "off or on")
    moves = _flag("defragment", in_file.pop("defragment", 0.0), "off or on")
    checked = _checked(in_file)
    rules = {name: v for name, v in checked.items() if name in RULE_KEYS}
    if "preempt_gpus" in changes:
        rules["preempt_gpus"] = _from_0("preempt_gpus", changes["preempt_gpus"])
    of_sites: dict[str, Any] = {name: v for name, v in changes.items() if name in OF_PHYSICS}
    if float(of_sites.get("local_gpus", 0.5)).is_integer():
        of_sites["local_gpus"] = int(of_sites["local_gpus"])
    return Settings(
        rules=replace(
            Rules(),
            **rules,
            lending=Lending.ON if lends else Lending.OFF,
            defragment=Defragment.ON if moves else Defragment.OFF,
        ),
        physics=Physics(**of_sites),
        weights=CreditWeights(**{name: v for name, v in checked.items() if name in WEIGHT_KEYS}),
        usage=UsageMemory(**{name: v for name, v in checked.items() if name in USAGE_KEYS}),
        home=_flag("home", changes.get("home", 0.0)),
        known_durations=_flag("known_durations", changes.get("known_durations", 0.0)),
        start_within_s=_from_0("start_within_s", changes.get("start_within_s", 0.0)),
    )


def without_effect(changes: Collection[str], settings: Settings) -> Iterator[str]:
    """One line for each change that the other settings leave without any effect."""
    rules, physics = settings.rules, settings.physics
    fails, local = physics.node_mtbf_s < inf, physics.local_load > 0
    for needed, because, names in (
        (
            rules.evicts,
            "nobody is evicted; set preempt_frac or preempt_gpus",
            (
                *("preempt_window_s", "grace_s", "cooldown_s", "min_run_s", "save_s"),
                *("start_within_s", "beyond_budget_frac", "max_saves_per_region"),
                *("preempt_lost_gpu_s", "defragment"),
            ),
        ),
        (
            rules.defragment is not Defragment.OFF,
            "nobody moves; set defragment=on",
            ("defragment_moves", "defragment_margin"),
        ),
        (
            rules.evicts or fails,
            "nothing ends a job early; set preempt_frac or node_mtbf_s",
            ("checkpoint_every_s", "restore_s", "launch_lease_s"),
        ),
        (
            settings.start_within_s > 0,
            "there is no start objective; set start_within_s",
            ("beyond_budget_frac",),
        ),
        (fails, "no node fails; set node_mtbf_s", ("node_repair_s",)),
        (local, "there are no local users; set local_load", ("local_duration_s", "local_gpus")),
    ):
        if not needed:
            yield from (f"--set: {n} has no effect: {because}" for n in names if n in changes)


def _checked(changes: Mapping[str, float]) -> dict[str, Any]:
    """The same, if federation.yaml could say so."""
    tree: dict[str, Any] = {}
    for name, value in changes.items():
        *above, leaf = POLICY_KEYS[name].split(".")
        branch = tree
        for key in above:
            branch = branch.setdefault(key, {})
        branch[leaf] = value
    try:
        policy = PolicyConfig.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        name = next((flat for flat in changes if POLICY_KEYS[flat] == key), key)
        problem = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        if first["type"].startswith("bool"):
            problem = "0 or 1"
        raise InvalidRequest(
            f"--set: {name}: expected {problem}, found {first['input']}"
        ) from error
    return at_keys(policy, {name: POLICY_KEYS[name] for name in changes})


def _flag(name: str, value: float, expected: str = "0 or 1") -> bool:
    if value not in (0.0, 1.0):
        raise InvalidRequest(f"--set: {name}: expected {expected}, found {value:g}")
    return bool(value)


def _from_0(name: str, value: float) -> float:
    if not 0 <= value < inf:
        raise InvalidRequest(f"--set: {name}: expected a number from 0 on, found {value}")
    return value
