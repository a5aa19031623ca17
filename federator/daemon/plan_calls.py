"""Reads the planner's calls: a lending plan comes from another process, and is not believed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import Final

from federator.errors import InvalidRequest
from federator.model.lending import MOST_FORECASTS, MOST_WINDOWS, LendingPlan, LoadForecast
from federator.model.message import PlanAsked
from federator.model.tenant import Tenancy
from federator.model.workload import MAX_AMOUNT, TenantName
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import PlanCall

LONGEST_WINDOW_S: Final = 30 * 86_400.0
LASTS_AT_MOST_S: Final = 3600.0
MOST_SKEW_S: Final = 60.0  # of the clocks of two processes
_MOST_CHARS: Final = 64  # of a name


def plan_asked(call: PlanCall, client: int, ledger: Ledger, now_s: float) -> PlanAsked:
    """Make the observation of a call.

    Args:
        call: of the planner.
        client: whom to answer.
        ledger: knows the tenants, and the plan that this one replaces.
        now_s: Unix time.

    Raises:
        InvalidRequest: the plan makes no sense, or no sense now; nothing of it is used.
    """
    before = None if ledger.planned is None else ledger.planned.plan
    _check(call.plan, ledger.tenancy, before, now_s)
    return PlanAsked(client=client, plan=call.plan)


def _check(plan: LendingPlan, tenancy: Tenancy, before: LendingPlan | None, now_s: float) -> None:
    _check_times(plan, before, now_s)
    windows = plan.windows_s
    if not 1 <= len(windows) <= MOST_WINDOWS or not all(
        a < b
        for a, b in pairwise((0.0, *windows))  # NaN fails too
    ):
        raise _refused("windows_s", f"1 to {MOST_WINDOWS} lengths above 0, ascending", windows)
    if not windows[-1] <= LONGEST_WINDOW_S:
        raise _refused("windows_s", f"at most {LONGEST_WINDOW_S:.0f} s", windows[-1])
    if len(plan.forecasts) > MOST_FORECASTS:
        raise _refused("forecasts", f"at most {MOST_FORECASTS}", len(plan.forecasts))
    if len(plan.source) > _MOST_CHARS:
        raise _refused("source", f"at most {_MOST_CHARS} characters", len(plan.source))
    named: set[tuple[str, str]] = set()
    for number, forecast in enumerate(plan.forecasts):
        at = f"forecasts[{number}]"
        if not tenancy.is_configured(TenantName(forecast.tenant)):
            raise _refused(f"{at}.tenant", "a tenant of federation.yaml", forecast.tenant)
        if forecast.gpu_type and forecast.gpu_type not in tenancy.resources.names[2:]:
            raise _refused(f"{at}.gpu_type", "a GPU type that a quota counts", forecast.gpu_type)
        if (forecast.tenant, forecast.gpu_type) in named:
            raise _refused(at, "each tenant and GPU type once", forecast.tenant)
        named.add((forecast.tenant, forecast.gpu_type))
        _check_amounts(at, forecast, len(windows))


def _check_times(plan: LendingPlan, before: LendingPlan | None, now_s: float) -> None:
    if not (isfinite(plan.made_at_s) and now_s - LASTS_AT_MOST_S <= plan.made_at_s):
        raise _refused("made_at_s", "a time within the last hour", plan.made_at_s)
    if plan.made_at_s > now_s + MOST_SKEW_S:
        raise _refused("made_at_s", "no time to come", plan.made_at_s)
    if before is not None and before.holds(now_s) and plan.made_at_s <= before.made_at_s:
        raise _refused("made_at_s", f"later than the plan in force ({before.made_at_s:.0f})", "")
    if not plan.made_at_s < plan.expires_at_s <= plan.made_at_s + LASTS_AT_MOST_S:
        raise _refused("expires_at_s", "within an hour from made_at_s", plan.expires_at_s)
    if not plan.holds(now_s):
        raise _refused("expires_at_s", "a time to come", plan.expires_at_s)


def _check_amounts(at: str, forecast: LoadForecast, windows: int) -> None:
    if len(forecast.new_gpus) != windows:
        raise _refused(f"{at}.new_gpus", f"one for each of {windows} windows", forecast.new_gpus)
    for key, amounts in (
        ("new_gpus", forecast.new_gpus),
        ("kept", forecast.kept),
        ("promises", forecast.promises),
    ):
        if any(not 0 <= amount <= MAX_AMOUNT for amount in amounts):
            raise _refused(f"{at}.{key}", f"numbers from 0 to {MAX_AMOUNT}", amounts)
    learned: Sequence[Sequence[object]] = (forecast.off, forecast.kept, forecast.promises)
    if any(len(each) not in (0, windows) for each in learned):
        raise _refused(at, f"one of each for each of {windows} windows, or none", "")
    if any(k > made for k, made in zip(forecast.kept, forecast.promises, strict=False)):
        raise _refused(f"{at}.kept", "no more than promises", forecast.kept)


def _refused(where: str, expected: str, found: object) -> InvalidRequest:
    shown = f", found {str(found)[:_MOST_CHARS]!r}" if found != "" else ""
    return InvalidRequest(f"lending plan: {where}: expected {expected}{shown}")
