"""The parts of dashboards: queries, panels, boards, and panels of a common kind."""

from __future__ import annotations

from typing import NamedTuple


class Query(NamedTuple):
    """A query; {{label}} in the legend stands for a label's value."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """One panel; ``width`` of 24 columns."""

    title: str
    about: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 12
    stacked: bool = False


class Board(NamedTuple):
    """One dashboard; ``chosen``: a label whose values can be chosen, and a metric that has it."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    chosen: tuple[str, str] | None = None


def quantile(frac: float, metric: str, by: str = "") -> str:
    """The bound below which this part of the observations lies."""
    labels = f"le, {by}" if by else "le"
    return (
        f"histogram_quantile({frac}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"
    )


def rate(metric: str, by: str) -> str:
    """A counter, a second, summed by labels."""
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def sum_rate(metric: str) -> str:
    """A counter, a second, all series together."""
    return f"sum(rate({metric}[$__rate_interval]))"


def one(title: str, about: str, unit: str, expr: str) -> Panel:
    """One number."""
    return Panel(title, about, unit, (Query(expr, title.lower()),), "stat", 4)


def times(title: str, about: str, metric: str) -> Panel:
    """A histogram of times."""
    halves = Query(quantile(0.5, metric), "half"), Query(quantile(0.99, metric), "99 %")
    return Panel(title, about, "s", halves)


def by_tenant(title: str, about: str, metric: str, unit: str = "short") -> Panel:
    """A gauge, of the chosen tenants."""
    expr = f'sum by (tenant) ({metric}{{tenant=~"$tenant"}})'
    return Panel(title, about, unit, (Query(expr, "{{tenant}}"),))


def by_kind(title: str, metric: str) -> Panel:
    """A counter with a kind."""
    query = Query(f"{rate(metric, 'kind')} > 0", "{{kind}}")
    return Panel(title, "By kind, a second.", "ops", (query,))
