"""Tables of ``scale``: costs, their growth, limits, and MAST's published load beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt
from statistics import mean
from types import MappingProxyType
from typing import Final

from federator.sim.experiments.base import Cell, DataTable
from federator.sim.experiments.scale_fleet import DecisionPart, FleetSize, PassCosts

AXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pending": "pending workloads",
        "sites": "sites",
        "gpus": "GPUs",
        "per_s": "submissions per second",
    }
)
PASS_EVERY_S: Final = 300.0  # when nothing changes: MAST sec. 4.2, and policy.pass_interval_s
MAST_PENDING: Final = 10_000
MAST_PASS_S: Final = 34.0
MAST_BIDS_S: Final = (0.0013, 0.0055)  # without and with preemption
MAST_ATTEMPTS: Final = 100_000  # in a day
_DAY_S: Final = 86_400.0
_FURTHEST: Final = 10.0  # times what was measured: a line is not trusted further
_LEAST_S: Final = 1e-6  # what is smaller cannot be told from nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One point, in CPU time.

    Attributes:
        submit_s: of a submission.
        first_pass_s: the daemon's, of the pass about a queue of which nothing is known.
        first_bid_s: of a request, at the site that needed most in that pass.
        passes: those that followed.
        pass_s: the daemon's, of one of them; the mean, for some have news and some have none.
        busy_frac: of one core of the daemon, with all that came between passes.
    """

    size: FleetSize
    submit_s: float
    first_pass_s: float
    first_bid_s: float
    passes: tuple[PassCosts, ...]
    pass_s: float
    busy_frac: float

    @property
    def bottleneck(self) -> DecisionPart:
        """The part of the daemon's time, or of a site's, that is largest."""
        total = {part: sum(one.cpu_s[part] for one in self.passes) for part in DecisionPart}
        return max(total, key=total.__getitem__)


_COSTS: Final[Mapping[str, Callable[[PassCosts], float]]] = MappingProxyType(
    {
        "whole pass": lambda one: one.pass_s,
        "ranking": lambda one: one.cpu_s[DecisionPart.RANKING],
        "awards": lambda one: one.cpu_s[DecisionPart.AWARDS],
        "bids": lambda one: one.bid_s,
    }
)
_SUBMISSION: Final = "a submission"
_PARTS: Final = (
    "ranking: the order of the queue, and the first question to the sites; awards: bids taken in, "
    "refusals remembered, auction and orders; bids: at the site that needs most."
)


def tables(
    points: Sequence[Measured], by_axis: Mapping[str, Sequence[Measured]]
) -> tuple[DataTable, ...]:
    """All tables.

    Args:
        points: each once.
        by_axis: those along each axis, the smallest first.
    """
    return (
        _points(points),
        _growth(by_axis),
        _limits(by_axis["pending"], by_axis["sites"]),
        _beside_mast(by_axis["pending"]),
        _costs(by_axis),
    )


def _points(points: Sequence[Measured]) -> DataTable:
    rows = [
        (
            one.size.sites,
            one.size.real_gpus,
            one.size.pending,
            one.size.per_s,
            one.pass_s,
            one.first_pass_s,
            *(mean(map(cost, one.passes)) for cost in list(_COSTS.values())[1:]),
            one.submit_s * 1e6,
            mean(each.awards for each in one.passes),
            one.busy_frac,
            one.bottleneck.value,
        )
        for one in sorted(points, key=lambda p: (p.size.pending, p.size.sites, p.size.gpus))
    ]
    return DataTable(
        name="points",
        title="CPU time of a pass, means",
        columns=(
            "sites",
            "gpus",
            "pending",
            "per_s",
            "pass_s",
            "first_pass_s",
            "ranking_s",
            "awards_s",
            "bids_s",
            "submission_us",
            "awards",
            "busy_frac",
            "most_time_in",
        ),
        rows=tuple(rows),
        about="pass_s = ranking_s + awards_s, the daemon's; first_pass_s: the same, while nothing "
        f"is known of the queue. {_PARTS}",
    )


def _costs(by_axis: Mapping[str, Sequence[Measured]]) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for axis, points in by_axis.items():
        for part, cost in _COSTS.items():
            for one in points:
                found = [cost(each) for each in one.passes]
                spread = (mean(found), min(found), max(found))
                rows.append((axis, getattr(one.size, axis), part, *spread))
        rows += [
            (axis, getattr(one.size, axis), _SUBMISSION, *(one.submit_s,) * 3) for one in points
        ]
    return DataTable(
        name="costs",
        title="CPU time along each axis",
        columns=("axis", "value", "part", "cpu_s", "least", "largest"),
        rows=tuple(rows),
        about=f"Mean, least and largest of the passes. {_PARTS}",
    )


# ---- growth ----


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The power of x that y grows with: the slope of log y over log x, by least squares.

    Args:
        points: x > 0 and y; what is smaller than a microsecond counts as one.

    Returns:
        The slope; None of fewer than two different x.
    """
    xs = [log(x) for x, _ in points]
    ys = [log(max(y, _LEAST_S)) for _, y in points]
    if len(set(xs)) < 2:
        return None
    at_x, at_y = mean(xs), mean(ys)
    above = sum((x - at_x) * (y - at_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - at_x) ** 2 for x in xs)


def _growth(by_axis: Mapping[str, Sequence[Measured]]) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for axis, points in by_axis.items():
        for part, cost in {**_COSTS, _SUBMISSION: None}.items():
            curve = [
                (
                    float(getattr(one.size, axis)),
                    one.submit_s if cost is None else mean(map(cost, one.passes)),
                )
                for one in points
            ]
            ends = (curve[0][1], curve[-1][1])
            rows.append((axis, part, exponent(curve), exponent(curve[-2:]), *ends))
    return DataTable(
        name="growth",
        title="Fitted exponents: cost ~ value ^ exponent",
        columns=("axis", "part", "exponent", "exponent_last", "least_s", "largest_s"),
        rows=tuple(rows),
        about="exponent: least squares over the logarithms of all points of the axis; _last: "
        "between its last two. least_s, largest_s: CPU time at both ends of the axis.",
    )


# ---- limits ----


def reached_at(curve: Sequence[tuple[float, float]], limit: float) -> tuple[float, bool] | None:
    """The x at which y reaches a limit, on straight lines between the logarithms of points.

    Args:
        curve: points by ascending x; at least two.
        limit: of y.

    Returns:
        x, and whether it lies inside the curve; beyond, the last line goes on up to ten times the
        last x. None: y is above the limit from the first point on, or reaches it nowhere there.
    """
    if curve[0][1] >= limit:
        return None
    for (x, y), (next_x, next_y) in pairwise(curve):
        if y < limit <= next_y:
            return x * exp(log(next_x / x) * log(limit / y) / log(next_y / y)), True
    slope = exponent(curve[-2:])
    if slope is None or slope < 0.05:
        return None
    x, y = curve[-1]
    times = exp(log(limit / max(y, _LEAST_S)) / slope)
    return (x * times, False) if times <= _FURTHEST else None


def _limits(*axes: Sequence[Measured]) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for axis, points in zip(("pending", "sites"), axes, strict=True):
        curve = [(float(getattr(one.size, axis)), one.pass_s) for one in points]
        for limit, meaning in (
            (2.0, "passes follow each other without pause"),
            (MAST_PASS_S, "as long as MAST's pass"),
            (PASS_EVERY_S, "as long as the time between passes"),
        ):
            found = reached_at(curve, limit) if len(curve) > 1 else None
            value, inside = found if found is not None else (None, None)
            where = None if inside is None else "measured" if inside else "extrapolated"
            rows.append((axis, limit, value, where, meaning))
    return DataTable(
        name="limits",
        title="Where a pass takes how long",
        columns=("axis", "pass_s", "value", "by", "meaning"),
        rows=tuple(rows),
        about="The other three are at their base. No value: a pass takes longer from the first "
        "point on, or not so long at ten times the last.",
    )


# ---- MAST ----


def _beside_mast(points: Sequence[Measured]) -> DataTable:
    return DataTable(
        name="beside-mast",
        title="Beside MAST's published load",
        columns=("what", "mast", "here", "mast_headroom", "headroom"),
        rows=tuple(_mast_rows(points)),
        about="headroom: times as many workloads as MAST has. Global: until a pass takes 300 s. "
        "Regional: 100,000 attempts a day, of cost that grows with the workloads, as the paper "
        "reckons. Here nobody is evicted, so 1.3 ms is the paper's figure to compare with.",
    )


def _mast_rows(points: Sequence[Measured]) -> Iterator[tuple[Cell, ...]]:
    at = next((one for one in points if one.size.pending == MAST_PENDING), None)
    if at is None:
        return
    curve = [(float(one.size.pending), one.pass_s) for one in points]
    limit = reached_at(curve, PASS_EVERY_S) if len(curve) > 1 else None
    more = None if limit is None else limit[0] / MAST_PENDING
    pass_s = f"{MAST_PENDING} pending"
    yield f"global: pass, {pass_s}, s", MAST_PASS_S, at.pass_s, PASS_EVERY_S / MAST_PASS_S, more
    ranking_s = mean(one.cpu_s[DecisionPart.RANKING] for one in at.passes)
    yield f"global: ranking alone, {pass_s}, s", MAST_PASS_S, ranking_s, None, None
    without_s, with_s = MAST_BIDS_S
    yield (
        "regional: a bid at the slowest site, ms",
        without_s * 1e3,
        at.first_bid_s * 1e3,
        _regional_headroom(with_s),
        _regional_headroom(at.first_bid_s),
    )


def _regional_headroom(bid_s: float) -> float:
    """MAST sec. 5.4: the root, for an attempt costs more where more runs."""
    return sqrt(_DAY_S / max(bid_s, _LEAST_S) / MAST_ATTEMPTS)
