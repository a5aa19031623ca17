"""Spells the report on sites' own jobs for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from federator.cli.text import counted, printable, slurm_span
from federator.model.site_mode import SiteMode
from federator.sim.local_replay import SAME_S
from federator.sim.report.bootstrap import Interval
from federator.sim.report.divergence import DivergenceReason
from federator.sim.report.divergence_counts import DivergenceReport
from federator.sim.report.local_report import (
    LocalReport,
    SiteReport,
    TenantReport,
    UseChange,
    WaitComparison,
    Waits,
)
from federator.sim.report.promotion import Rule


def report_lines(report: LocalReport) -> list[str]:
    """Tables of sizes, accounts and sites, then what stands behind them."""
    days = (report.end_s - report.begin_s) / 86_400
    return [
        f"jobs submitted at the sites themselves, {_time(report.begin_s)} to "
        f"{_time(report.end_s)} UTC ({days:.1f} days); as it was > under policy {report.policy}",
        *_table("GPUS", [*report.sizes, report.in_all]),
        *_table("ACCOUNT", report.accounts),
        _use("allocated", report.allocation),
        _use("stranded (free while a job waited that asked for no more)", report.stranded),
        *_divergence_lines(report.divergences),
        *(line for site in report.sites for line in _site_lines(site)),
        *(line for tenant in report.tenants for line in _tenant_lines(tenant)),
        "assumed:",
        *(f"  {each}" for each in report.assumptions),
        "intervals: nine of ten draws of the days, with replacement; - where there are fewer than "
        "three days",
    ]


def _table(title: str, rows: Sequence[WaitComparison]) -> Iterator[str]:
    names = max(len(title), *(len(printable(row.name)) for row in rows)) if rows else len(title)
    yield (
        f"{title:<{names}} {'JOBS':>7} {'WAITMEAN':>23} {'WAITP50':>23} {'WAITP95':>23} "
        f"{'CHANGE OF MEAN':>25}"
    )
    for row in rows:
        marks = " WORSE" if row.worse else ""
        if row.never_started:
            marks += f" ({row.never_started} would never have started)"
        yield (
            f"{printable(row.name):<{names}} {row.jobs:>7} {_pairs(row.real, row.federated)} "
            f"{_change(row.change_s):>25}{marks}"
        )


def _pairs(real: Waits | None, after: Waits | None) -> str:
    if real is None or after is None:
        return " ".join([f"{'-':>23}"] * 3)
    pairs = (
        (real.mean_s, after.mean_s),
        (real.median_s, after.median_s),
        (real.p95_s, after.p95_s),
    )
    return " ".join(f"{f'{slurm_span(a)} > {slurm_span(b)}':>23}" for a, b in pairs)


def _change(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{_signed(interval.low)} to {_signed(interval.high)}"


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{slurm_span(abs(seconds))}"


def _divergence_lines(found: DivergenceReport) -> Iterator[str]:
    """How many started otherwise than they would have, and why."""
    in_all = found.in_all
    yield (
        f"divergences (another site, or {SAME_S:.0f} s sooner or later): "
        f"{in_all.divergences} of {counted(in_all.jobs, 'job')}"
    )
    for name, count in in_all.reasons.items():
        yield f"  {count:>7}  {name}: {DivergenceReason[name].value}"
    for kind, rows in (("site", found.sites), ("account", found.accounts)):
        for row in rows:
            if row.divergences:
                reasons = ", ".join(f"{count} {name}" for name, count in row.reasons.items())
                yield (
                    f"  {kind} {printable(row.name)}: {row.with_reason} of {row.divergences} have "
                    f"a reason, {row.with_reason_frac:.1%}{_range(row.interval)}: {reasons}"
                )


def _use(name: str, use: UseChange) -> str:
    return (
        f"{name}: {use.real_frac:.1%}{_range(use.real)} > "
        f"{use.federated_frac:.1%}{_range(use.federated)}"
    )


def _range(interval: Interval | None) -> str:
    return "" if interval is None else f" ({interval.low:.1%} to {interval.high:.1%})"


def _error_range(interval: Interval | None) -> str:
    return "" if interval is None else f" ({interval.low:+.1%} to {interval.high:+.1%})"


def _standing(rule: Rule) -> str:
    if rule.unsure:
        return "UNSURE"
    return "holds" if rule.holds else "FAILS"


def _site_lines(site: SiteReport) -> Iterator[str]:
    jobs = counted(site.jobs, "job")
    yield f"{printable(site.site)} (mode {site.mode}, {site.gpus} GPUs, {jobs})"
    if site.response_error_frac is not None and site.real is not None and site.alone is not None:
        yield (
            f"  simulator: {site.response_error_frac:.1%} off{_error_range(site.response_error)} "
            f"in the mean time to the end; mean wait {slurm_span(site.real.mean_s)}, replayed "
            f"{slurm_span(site.alone.mean_s)}; half of the starts within "
            f"{slurm_span(site.start_error_s or 0.0)}"
        )
    unseen = site.unseen
    yield (
        f"  not seen: {slurm_span(unseen.unwatched_s)} without a look; of "
        f"{counted(unseen.stays, 'stay')} {unseen.ended_between} ended between two looks; left "
        f"out: {unseen.unknown_end} with an unknown end, {unseen.unknown_gpus} with unknown GPUs; "
        f"{unseen.waiting} still waiting"
    )
    for reason, count in site.left_out.items():
        yield f"  left out: {counted(count, 'job')}: {reason}"
    yield from _rule_lines(site.rules)


def _tenant_lines(tenant: TenantReport) -> Iterator[str]:
    if tenant.mode == SiteMode.ENFORCED.value:
        return
    jobs = counted(tenant.jobs, "job")
    yield f"tenant {printable(tenant.tenant)} (mode {tenant.mode}, {jobs})"
    yield from _rule_lines(tenant.rules)


def _rule_lines(rules: Sequence[Rule]) -> Iterator[str]:
    for rule in rules:
        yield (
            f"  {_standing(rule)}: {rule.name} (for {rule.needed_for}): "
            f"{printable(rule.value)}; needed: {rule.bound}"
        )


def _time(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M")
