"""Draws plots as SVG text with matplotlib: the same bytes for the same table."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from federator.sim.experiments.base import Cell, DataTable, Plot, PlotKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito: told apart also by those who do not see all colours.
_COLOURS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
    "#999999",
)
_MARKS: Final = "os^Dv<>P"
_STYLES: Final = ("-", "--", "-.", ":")

Points = Sequence[tuple[Cell, ...]]  # x, y, low, high


def drawn(plot: Plot, table: DataTable, salt: str) -> str:
    """The plot as an SVG document.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    settings: Any = {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",  # text stays text
        "text.parse_math": False,  # a name with two $ is no formula
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "font.size": 9,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(7.5, 3.8), layout="constrained")
        canvas: Any = FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        _fill(axes, plot, _curves(plot, table))
        file = io.StringIO()
        canvas.print_svg(file, metadata={"Date": None, "Creator": None})
        # Paths are broken into lines that end in a blank.
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _curves(plot: Plot, table: DataTable) -> Mapping[str, Points]:
    """Points by curve, both in the order of the table; rows without a y are no points."""
    wanted = [True] * len(table.rows)
    if plot.only is not None:
        wanted = [cell == plot.only[1] for cell in table.column(plot.only[0])]
    columns = [table.column(name) for name in (plot.x, plot.y)]
    columns += [table.column(name or plot.y) for name in (plot.low, plot.high)]
    curves: dict[str, list[tuple[Cell, ...]]] = {}
    for kept, name, *point in zip(wanted, table.column(plot.by), *columns, strict=True):
        if kept and point[1] is not None:
            curves.setdefault(str(name), []).append(tuple(point))
    return curves


def _fill(axes: Axes, plot: Plot, curves: Mapping[str, Points]) -> None:
    if plot.kind is PlotKind.RANGES:
        names = list(dict.fromkeys(str(p[0]) for points in curves.values() for p in points))
        place = {name: k for k, name in enumerate(names)}
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        handles = [
            _ranges(axes, plot, [(place[str(p[0])], *p[1:]) for p in points], at, len(curves))
            for at, points in enumerate(curves.values())
        ]
    else:
        handles = [_lines(axes, plot, points, at) for at, points in enumerate(curves.values())]
    if plot.x_least_log:
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis, axes.get_xlim())
    if plot.y_least_log:
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis, axes.get_ylim())
    axes.set_xlabel(plot.x_label or plot.x)
    axes.set_ylabel(plot.y_label or plot.y)
    # A label with a leading underscore would be left out.
    labels = [f" {name}" if name.startswith("_") else name for name in curves]
    if handles:
        axes.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _plain_ticks(axis: Any, limits: tuple[float, float]) -> None:
    """Numbers as people write them; more than powers of ten where there are few of those."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    subs = (1.0, 2.0, 5.0) if limits[1] / limits[0] < 1000 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.set_minor_formatter(NullFormatter())


def _lines(axes: Axes, plot: Plot, points: Points, at: int) -> Any:
    colour, style = _COLOURS[at % len(_COLOURS)], _STYLES[at % len(_STYLES)]
    x = _at_least(plot.x_least_log, points, 0)
    y = _at_least(plot.y_least_log, points, 1)
    (line,) = axes.plot(x, y, style, color=colour, linewidth=1.6)
    if plot.low:
        low, high = (_at_least(plot.y_least_log, points, k) for k in (2, 3))
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    return line


def _ranges(axes: Axes, plot: Plot, points: Points, at: int, curves: int) -> Any:
    """One curve's points at their categories, shifted a little so that curves do not cover."""
    shift = (at - (curves - 1) / 2) * 0.7 / curves
    x = [place + shift for place in _at_least(0, points, 0)]
    y, low, high = (_at_least(plot.y_least_log, points, k) for k in (1, 2, 3))
    below = [a - b for a, b in zip(y, low, strict=True)]
    above = [b - a for a, b in zip(y, high, strict=True)]
    return axes.errorbar(
        x,
        y,
        yerr=[below, above],
        fmt=_MARKS[at % len(_MARKS)],
        markersize=5,
        color=_COLOURS[at % len(_COLOURS)],
        capsize=2,
    )


def _at_least(least: float, points: Points, k: int) -> list[float]:
    """Numbers of all points; what is smaller than a logarithmic axis can show is at its end."""
    numbers = [float(cell) for p in points if isinstance(cell := p[k], int | float)]
    assert len(numbers) == len(points), "a plot needs numbers"
    return [max(number, least) for number in numbers] if least else numbers
