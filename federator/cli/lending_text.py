"""Texts about lending: on what forecast a workload started, and what may be lent now."""

from __future__ import annotations

import time
from collections.abc import Iterator

from federator.cli.text import counted, reason_text, span
from federator.model.lending import LendingDecision, LoadForecast
from federator.wire.status_rows import LendingRow, LoanRow


def decision_text(decision: LendingDecision) -> str:
    """E.g. ``8 GPUs lent from vision until 14:05, predicted free for 60 min (plan of 13:01)``."""
    plan = f" (plan of {_clock(decision.planned_at_s)})" if decision.planned_at_s else ""
    if decision.held is not None:
        return f"would have been held: {reason_text(decision.held)}{plan}"
    lenders = [
        f"{counted(gpus, 'GPU')} {f'lent from {name}' if name else 'of no quota'}"
        for name, gpus in decision.owners.items()
    ]
    text = (
        f"{', '.join(lenders) or 'lent'} until {_clock(decision.until_s)}, "
        f"predicted free for {span(decision.window_s)}{plan}"
    )
    return f"{text}; by advice, nothing follows from it" if decision.advisory else text


def lending_lines(row: LendingRow, now_s: float) -> Iterator[str]:
    """The state of lending in a line; one for each forecast that is off, and each unused quota."""
    yield from _plan_lines(row, now_s)
    for loan in row.loans:
        yield f"  {loan_text(loan)}"


def loan_text(loan: LoanRow) -> str:
    """E.g. ``vision used at most 3% of its quota in 3 days: ...``."""
    days = counted(loan.days, "day")
    whose = f"{loan.tenant} used at most {loan.used_frac:.0%} of its quota in {days}"
    match loan.step:
        case "advised":
            return f"{whose}: it would get notice (unused_quota: advisory)"
        case "noticed":
            return f"{whose}: nothing is held back for its forecast from {_day(loan.lends_at_s)} on"
        case "lent":
            since = _day(loan.since_s)
            return f"{whose}: since {since} nothing is held back for its forecast"
        case "kept":
            until = f" until {_day(loan.until_s)}" if loan.until_s else ""
            by = f" by {loan.by}" if loan.by else ""
            return f"the quota of {loan.tenant} is held back{until}{by}, used or not"
        case step:
            return f"the quota of {loan.tenant}: {step}"


def _plan_lines(row: LendingRow, now_s: float) -> Iterator[str]:
    if row.mode == "off":
        yield "off"
        return
    if not row.made_at_s:
        why = "the last plan has expired" if row.expires_at_s else "no plan has come"
        yield f"{row.mode}; {why}: nothing that cannot be evicted is lent"
        return
    left = span(max(0.0, row.expires_at_s - now_s))
    usable = ", ".join(
        f"{max(0, gpus)} for {span(window_s)}"
        for window_s, gpus in zip(row.windows_s, row.usable_gpus, strict=False)
    )
    yield f"{row.mode}; plan of {_clock(row.made_at_s)}, {left} left; GPUs to lend now: {usable}"
    for forecast in row.forecasts:
        yield from _off(forecast, row.windows_s)


def _off(forecast: LoadForecast, windows_s: tuple[float, ...]) -> Iterator[str]:
    whose = f"{forecast.tenant} ({forecast.gpu_type})" if forecast.gpu_type else forecast.tenant
    for window, window_s in enumerate(windows_s):
        if forecast.is_off(window):
            kept, made = forecast.kept[window], forecast.promises[window]
            yield (
                f"  {whose} lends nothing for {span(window_s)}: "
                f"{kept} of its last {made} forecasts held"
            )


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(at_s))
