"""Shows a history before and after on a page: two tables, and the waits drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from federator.sim.experiments.base import Cell, DataTable, ExperimentResult, Plot, PlotKind
from federator.sim.report.before_after import BeforeAfter, Change, Then

_COLUMNS: Final = (
    "when",
    "jobs",
    "wait_mean_h",
    "wait_p50_h",
    "wait_p95_h",
    "wait_max_h",
    "allocated_frac",
    "preemptions",
    "start_earlier",
    "start_later",
)
_ABOUT: Final = (
    "wait: until the first start. allocated: of all GPUs of the site, of all sites for a tenant. "
    "start_earlier, start_later: jobs, by their first start."
)
_NOTES: Final = (
    "A history shows what was submitted under the policy of its time: with other waits people "
    "would have sent something else.",
    "Launch and start-up take no time here and nothing fails, as it did in the waits before; what "
    "the comparison leaves out is counted below.",
)


def page_of(result: BeforeAfter) -> ExperimentResult:
    """The comparison as something that ``report_page`` makes a page of."""
    tables = (
        _table("tenants", "By tenant", "tenant", [*result.tenants, result.in_all]),
        _table("sites", "By site", "site", [*result.sites, result.in_all]),
        DataTable(
            name="left-out",
            title="Left out, by reason",
            columns=("reason", "jobs"),
            rows=tuple(_left_out(result)),
        ),
    )
    return ExperimentResult(
        title="your own history under the federation",
        parameters={"policy": result.policy, "begin_s": result.begin_s, "end_s": result.end_s},
        tables=tables,
        plots=(_plot("tenants", "tenant"), _plot("sites", "site")),
        notes=_NOTES,
    )


def _table(name: str, title: str, key: str, changes: Iterable[Change]) -> DataTable:
    rows = tuple(row for change in changes for row in _rows(change))
    return DataTable(name=name, title=title, columns=(key, *_COLUMNS), rows=rows, about=_ABOUT)


def _rows(change: Change) -> Iterator[tuple[Cell, ...]]:
    yield (change.name, "before", change.jobs, *_then(change.before), None, None)
    yield (
        change.name,
        "after",
        change.jobs_here,
        *_then(change.after),
        change.start_earlier,
        change.start_later,
    )


def _then(then: Then) -> tuple[Cell, ...]:
    wait = then.wait_s
    times_s = (wait.mean, wait.median, wait.p95, wait.max) if wait is not None else (None,) * 4
    hours = (None if time_s is None else time_s / 3600 for time_s in times_s)
    return (*hours, then.allocation_frac, then.preemptions)


def _left_out(result: BeforeAfter) -> Iterator[tuple[Cell, ...]]:
    counts: dict[str, int] = {}
    for job in result.left_out_jobs:
        counts[job.reason] = counts.get(job.reason, 0) + 1
    yield from sorted(counts.items())


def _plot(table: str, key: str) -> Plot:
    return Plot(
        table=table,
        title=f"Waits by {key}: 95th percentile, from the median to the longest",
        x=key,
        y="wait_p95_h",
        low="wait_p50_h",
        high="wait_max_h",
        by="when",
        kind=PlotKind.RANGES,
        x_label=key,
        y_label="hours until the first start",
    )
