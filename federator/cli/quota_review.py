"""``federator quotas review``: who needs more, who less, and how much quotas may promise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from federator.cli.slurm_time import parsed_time
from federator.cli.text import counted, printable
from federator.errors import InvalidRequest

if TYPE_CHECKING:
    from federator.history.quota_answer import QuotaReview
    from federator.usage.quota_fit import OverCommitment, QuotaFit

_HEADER: Final = " ".join(
    (f"{'TENANT':16} {'QUOTA':>7} {'HELD':>8}", f"{'DEMAND':>18} {'BUSIEST DAY':>12}  VERDICT")
)


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    required=True,
    help="Its quotas and its history; read on the daemon's host, without the daemon.",
)
@click.option(
    "--weeks",
    type=click.IntRange(3, 52),
    default=8,
    show_default=True,
    help="Whole weeks that are looked at.",
)
@click.option("--until", metavar="TIME", help="The days before this one's; left out: today's.")
@click.option(
    "--risk",
    "risk_frac",
    type=click.FloatRange(0.0001, 0.5),
    default=0.01,
    show_default=True,
    help="The part of the time in which demand within quota may exceed the fleet.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def review(*, config: Path, weeks: int, until: str | None, risk_frac: float, as_json: bool) -> None:
    """Review quotas by the history's weeks: who needs more, who less, and with what certainty.

    The same history, quotas and --until give the same report. Nothing is changed.

    Example: federator quotas review --config /etc/federator/federation.yaml --weeks 12
    """
    now_s = time.time()
    until_s = now_s if until is None else min(now_s, parsed_time(until, now_s))
    found = _reviewed(config, weeks, until_s, risk_frac)
    if as_json:
        print(msgspec.json.encode({"schema": 1, **msgspec.to_builtins(found)}).decode())
        return
    for line in review_lines(found):
        print(printable(line))


def _reviewed(config: Path, weeks: int, until_s: float, risk_frac: float) -> QuotaReview:
    from federator.config import load_config  # noqa: PLC0415  # pydantic
    from federator.config_tenants import gpu_quotas  # noqa: PLC0415
    from federator.history.database import open_reader  # noqa: PLC0415
    from federator.history.quota_answer import quota_review  # noqa: PLC0415
    from federator.history.url import NONE, history_url  # noqa: PLC0415

    loaded = load_config(config)
    url = history_url(loaded.history.url, loaded.store)
    if url == NONE:
        raise InvalidRequest("no history is kept (history.url)")
    quotas = gpu_quotas(loaded.tenants)
    return quota_review(open_reader(url), quotas, weeks, until_s, risk_frac)


def review_lines(found: QuotaReview) -> Iterator[str]:
    """The report, line by line."""
    first, last = (
        time.strftime("%Y-%m-%d", time.gmtime(at_s)) for at_s in (found.start_s, found.end_s - 1)
    )
    yield f"{counted(found.days, 'whole day')} known from {first} to {last} (UTC)"
    if not found.fits:
        yield "no tenant has a quota of GPUs"
        return
    yield _HEADER
    for fit in found.fits:
        yield _line(fit)
    yield from _over_commitment(found.over_commitment)


def _line(fit: QuotaFit) -> str:
    if fit.verdict == "unknown":
        return f"{fit.tenant:16} {fit.quota_gpus:7.0f}  fewer than 3 whole weeks are known"
    demand = f"{fit.demand_gpus:.1f} ({fit.demand_low_gpus:.1f}-{fit.demand_high_gpus:.1f})"
    would_do = f": {fit.would_do_gpus:.0f} would do" if fit.would_do_gpus else ""
    return (
        f"{fit.tenant:16} {fit.quota_gpus:7.0f} {fit.held_gpus:8.1f} {demand:>18} "
        f"{fit.busiest_day_gpus:12.1f}  {fit.verdict}{would_do}"
    )


def _over_commitment(found: OverCommitment | None) -> Iterator[str]:
    if found is None:
        yield "over-commitment: not known"
        return
    now = found.promised_gpus / found.supply_gpus
    yield (
        f"over-commitment: quotas sum to {found.promised_gpus:.0f} of {found.supply_gpus:.0f} "
        f"GPUs ({now:.2f} times); demand within them exceeded the fleet for "
        f"{found.exceeded_frac:.2%} of the time"
    )
    yield (
        f"  they may sum to {found.factor:.2f} times the fleet for a risk of "
        f"{found.risk_frac:g}; by the worst week to {found.worst_week_factor:.2f} times"
    )
    advised = found.advised_factor
    yield f"  advised: {advised:.2f} times, {advised * found.supply_gpus:.0f} GPUs in all"
