"""The base of experiments: parameters in; independent runs, then tables and plots of them, out.

A plot is a view of a table: it holds no number of its own, so whatever is drawn can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from math import ceil
from random import Random
from typing import Any, Final, Protocol, TypeVar

from federator.sim.runs.base import Progress, SimRun, outcomes, results
from federator.sim.runs.executors import InProcess
from federator.sim.trace import Trace

Cell = str | int | float | None  # None: there is nothing to say it of
TRACE_FIELD: Final = "trace"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """Rows under named columns.

    Attributes:
        name: of its file, too; lower case, digits and ``-``.
        title: one line for a reader.
        columns: names, with the unit at the end where there is one.
        about: what the columns mean, where their names do not say it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    about: str = ""

    def column(self, name: str) -> list[Cell]:
        at = self.columns.index(name)
        return [row[at] for row in self.rows]


class PlotKind(Enum):
    LINES = "lines"
    RANGES = "ranges"  # points with a range, beside each other for each x


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Columns of a table, drawn.

    Attributes:
        table: its name.
        by: the column that tells one curve from another.
        low: with ``high``, the column of the range around ``y``; "": none.
        only: a column and what it holds in the rows that are drawn; by default all are.
        x_least_log: with a logarithmic axis, smaller numbers are drawn here; 0: it is linear.
    """

    table: str
    title: str
    x: str
    y: str
    by: str
    only: tuple[str, Cell] | None = None
    kind: PlotKind = PlotKind.LINES
    low: str = ""
    high: str = ""
    x_label: str = ""
    y_label: str = ""
    x_least_log: float = 0.0
    y_least_log: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """Everything that a report is made of.

    Attributes:
        parameters: under which it was made, the seed apart.
        tables: the first is what a terminal is shown.
        notes: what a reader has to know to judge the figures.
    """

    title: str
    parameters: Mapping[str, Any]
    tables: tuple[DataTable, ...]
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()

    def table(self, name: str) -> DataTable:
        return next(table for table in self.tables if table.name == name)


class Experiment(Protocol):
    """A frozen dataclass of parameters, and these two methods.

    The same seed and parameters give the same runs, and with them the same result.
    """

    def runs(self, seed: int) -> Sequence[SimRun[Any]]:
        """The work, as runs that wait for no other.

        Raises:
            InvalidRequest: the parameters make no sense together.
        """
        ...

    def result(self, found: Sequence[Any]) -> ExperimentResult:
        """Make tables and plots of the results of the runs, which are in their order."""
        ...


def run_here(
    experiment: Experiment, seed: int, progress: Progress = lambda _: None
) -> ExperimentResult:
    """Do an experiment in this process, one run after the other.

    Raises:
        RunsFailed: a run has no result.
    """
    found = list(outcomes(experiment.runs(seed), InProcess(), progress=progress))
    return experiment.result(results(found))


def bounded(default: T, least: float, most: float) -> T:
    """A parameter with its bounds, those of each element where it is a tuple."""
    of_class: T = field(default=default, metadata={"least": least, "most": most})
    return of_class


def parameters_of(experiment: Any) -> dict[str, Any]:
    """What a report says about how it was made; of a trace, what identifies it."""
    found = {f.name: getattr(experiment, f.name) for f in fields(experiment)}
    trace = found.get(TRACE_FIELD)
    if isinstance(trace, Trace):
        found[TRACE_FIELD] = f"{len(trace)} jobs, {len(trace.pools)} pools, {trace.capacity} GPUs"
    return found


def seeded(seed: str) -> Random:
    """Numbers that look random and are the same for the same seed everywhere."""
    return Random(seed)  # noqa: S311 - nothing is kept secret by them


def at_fraction(ascending: list[float], frac: float) -> float:
    """The least of some sorted numbers that at least this fraction of them do not exceed."""
    return ascending[max(1, ceil(len(ascending) * frac - 1e-9)) - 1]


def mean(numbers: Iterable[float]) -> float:
    """Of at least one number."""
    found = list(numbers)
    return sum(found) / len(found)
