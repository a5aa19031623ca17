"""Keys of federation.yaml below ``policy``: the order of the queue, credit and evictions."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, field_validator, model_validator

from federator.config_mistakes import one_of, one_word_of, refuse
from federator.config_services import Hours, Strict
from federator.model.defragment import Defragment, QuietHours
from federator.model.lending import Lending
from federator.model.quota_loan import UnusedQuotaRules
from federator.policies import ONCE_NAMED, POLICIES
from federator.policies.settings import USAGE_KEYS, WEIGHT_KEYS
from federator.sched.queue.policy import Policy
from federator.sched.state.credit import CreditWeights
from federator.sched.state.requeue import MOST_INTERRUPTIONS
from federator.sched.state.rules import SlowNodeRules
from federator.sched.state.usage import UsageMemory

Seconds = Annotated[float, Field(gt=0, le=30 * 86_400)]
_Credit = Annotated[float, Field(ge=0, le=1e9)]  # bounded, so that no sum overflows


class CreditConfig(Strict):
    """The terms of a workload's credit, and the time over which a tenant's usage counts.

    Usage is the average over ``usage_window_h``; with ``usage_half_life_h`` it decays instead.
    """

    per_hour_waited: _Credit = 1.0
    age_cap_h: Hours = 168.0
    fair_share: _Credit = 24.0
    usage_window_h: Hours = 168.0
    usage_half_life_h: Hours | None = None
    per_nice: _Credit = 0.01  # credit lost by each unit of --nice
    non_preemptible: _Credit = 2.0  # credit lost by who may not be evicted
    cpu_weight: _Credit = 0.0  # GPUs that a CPU counts as in usage, where that is more
    mem_gib_weight: _Credit = 0.0  # that a GiB of memory does

    @model_validator(mode="after")
    def _one_average(self) -> CreditConfig:
        if self.usage_half_life_h is not None and "usage_window_h" in self.model_fields_set:
            refuse([(("usage_half_life_h",), "give this or 'usage_window_h', not both")])
        return self

    @property
    def weights(self) -> CreditWeights:
        return CreditWeights(**{name: getattr(self, name) for name in WEIGHT_KEYS})

    @property
    def usage(self) -> UsageMemory:
        return UsageMemory(**{name: getattr(self, name) for name in USAGE_KEYS})


class PreemptionConfig(Strict):
    """Limits of preemption: how long victims have, and how many there may be.

    At most ``budget_frac`` of all GPUs are taken from others in any ``budget_window_s``; 0: none.
    For tenants with ``start_within_s``, ``beyond_budget_frac`` more.
    """

    grace_s: Seconds = 120.0
    cooldown_s: Seconds = 3600.0
    budget_frac: Annotated[float, Field(ge=0, le=1)] = 0.05
    beyond_budget_frac: Annotated[float, Field(ge=0, le=1)] = 0.5
    budget_window_s: Seconds = 600.0
    budget_lost_gpu_s: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    max_saves_per_region: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    min_run_s: Annotated[float, Field(ge=0, le=30 * 86_400)] = 0.0  # spared after its start


_HOURS: Final = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$"


def _checked_hours(value: object) -> object:
    if not isinstance(value, str) or re.match(_HOURS, value) is None:
        raise ValueError("expected two times of day in quotes, such as '20:00-06:00'")
    return value


_Clock = Annotated[str, Field(pattern=_HOURS), BeforeValidator(_checked_hours)]


class DefragmentConfig(Strict):
    """When small jobs move to other nodes of their site so that a gang fits.

    At most ``max_moves`` do in any ``preemption.budget_window_s``, within its budget. ``margin``:
    the waiting that they save is so many times the work that they lose. ``quiet_hours``, in UTC.
    """

    mode: Annotated[Defragment, BeforeValidator(partial(one_word_of, Defragment))] = Defragment.OFF
    max_moves: Annotated[int, Field(ge=1, le=1_000)] = 4
    margin: Annotated[float, Field(ge=0, le=1_000)] = 2.0
    quiet_hours: _Clock | None = None  # HH:MM-HH:MM; None: at any time

    @property
    def quiet(self) -> QuietHours | None:
        if self.quiet_hours is None:
            return None
        from_s, until_s = map(_seconds_of, self.quiet_hours.split("-"))
        return QuietHours(from_s=from_s, until_s=until_s)


def _seconds_of(clock: str) -> float:
    hours, minutes = clock.split(":")
    return int(hours) * 3600.0 + int(minutes) * 60.0


class InteractiveConfig(Strict):
    """Limits of fsalloc and fsrun.

    ``max_s``: no longer time limit is taken. ``silence_s``: a session whose command has not been
    heard for so long is cancelled.
    """

    max_s: Seconds = 8 * 3600.0
    silence_s: Annotated[float, Field(ge=5, le=86_400)] = 120.0


_LendingMode = Annotated[Lending, BeforeValidator(partial(one_word_of, Lending))]


class UnusedQuotaConfig(Strict):
    """When a quota that is hardly used is lent fully: see docs/ranking.md.

    On each of the last ``days`` less than ``below_frac`` of it was in use, and its tenant has known
    for ``notice_h``.
    """

    mode: _LendingMode = Lending.OFF
    below_frac: Annotated[float, Field(gt=0, le=1)] = 0.2
    days: Annotated[int, Field(ge=1, le=28)] = 3
    notice_h: Annotated[float, Field(ge=0, le=30 * 24)] = 24.0

    @property
    def rules(self) -> UnusedQuotaRules:
        return UnusedQuotaRules(
            below_frac=self.below_frac, days=self.days, notice_s=self.notice_h * 3600.0
        )


class SlowNodesConfig(Strict):
    """Nodes on which trainings are slow, by their steps: see docs/failures.md.

    Gangs are kept off at most ``budget_frac`` of a site's nodes, each for ``quarantine_s`` the
    first time. ``restart_s``: what a gang that moves loses until its next first step.
    """

    budget_frac: Annotated[float, Field(ge=0, le=1)] = 0.1
    quarantine_s: Seconds = 4 * 3600.0
    restart_s: Annotated[float, Field(ge=0, le=86_400)] = 600.0

    @property
    def rules(self) -> SlowNodeRules:
        return SlowNodeRules(
            budget_frac=self.budget_frac,
            quarantine_s=self.quarantine_s,
            restart_s=self.restart_s,
        )


class PolicyConfig(Strict):
    """The order of the queue, and the federation's patience."""

    name: str = "mast"
    credit: CreditConfig = CreditConfig()
    preemption: PreemptionConfig = PreemptionConfig()
    defragment: DefragmentConfig = DefragmentConfig()
    pass_interval_s: Seconds = 300.0
    launch_lease_s: Seconds = 60.0
    bid_timeout_s: Seconds = 5.0
    forecast_ends: bool = False
    cells: bool = False
    price_weight: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    spot_interruptions: Annotated[int, Field(ge=0, le=MOST_INTERRUPTIONS)] = 0
    lending: _LendingMode = Lending.OFF
    unused_quota: UnusedQuotaConfig = UnusedQuotaConfig()
    slow_nodes: SlowNodesConfig = SlowNodesConfig()
    enable_user_top: Annotated[bool, Field(strict=True)] = False
    max_data_sets: Annotated[int, Field(ge=0, le=10_000_000)] = 100_000
    max_data_sets_per_user: Annotated[int, Field(ge=0, le=10_000_000)] = 1_000
    interactive: InteractiveConfig = InteractiveConfig()

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        name = ONCE_NAMED.get(name, name)
        if name not in POLICIES:
            raise ValueError(f"unknown policy; {one_of(name, POLICIES)}")
        return name

    @property
    def order(self) -> Policy:
        """The policy that ranks the queue."""
        return POLICIES[self.name](self.credit.weights)
