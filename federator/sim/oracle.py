"""Finds the best timetable there is for a small trace: least waiting, by an integer program.

One counter of the GPUs of all pools; nothing is preempted; arrivals and durations are known. Of all
timetables that keep to this, the oracle finds one in which the jobs wait least in all. A job may
have a latest start; with those of ``pool-fifo-count`` no job is slowed.

Time is cut into steps of the greatest common divisor of all submissions and durations. That loses
nothing: in a timetable in which no job can move ahead alone, each starts at its submission or at
an end of another, so at a whole number of steps, and one of those waits least.

Source:
    SIA appendix A, Figure 19, objective (8) and constraints (9) to (12). Different here:

    - beta is 0: the paper calls the fairness term and constraint (13) optional, and gives no beta;
    - Y (11) is written out in (12), which is asked only where a job may start, since only a start
      can break it;
    - the paper's windows grow with a job's duration, so its starts are near the best; one step for
      all makes them exact, and the trace has to be smaller.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from federator.errors import InvalidRequest
from federator.planner.highs import Int32, new_highs, whole
from federator.sim.trace import Timetable, Trace

MOST_STARTS: Final = 60_000  # columns: one for each job and step at which it may start
_MOST_ENTRIES: Final = 8_000_000
_ROUNDED: Final = 1e-6  # what a solver's bound may be off, in steps


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleAnswer:
    """The best timetable found, and what is proven of it.

    Attributes:
        timetable: feasible, proven or not.
        wait_s: of all jobs together, in it.
        bound_s: no timetable has less; ``wait_s`` if that is proven to be the least.
    """

    timetable: Timetable
    wait_s: int
    bound_s: int

    @property
    def proven(self) -> bool:
        return self.bound_s == self.wait_s


def wait_s(trace: Trace, timetable: Timetable) -> int:
    """From submission to end, less the duration, of all jobs together."""
    return sum(timetable.end_s) - sum(trace.submit_s) - sum(trace.duration_s)


def best_timetable(
    trace: Trace, known: Timetable, *, latest_s: Sequence[int] | None = None, limit_s: float
) -> OracleAnswer:
    """The timetable with the least waiting.

    Args:
        trace: the jobs.
        known: a timetable that keeps to all rules, from which the search begins.
        latest_s: start of each row, at most; None: whenever.
        limit_s: of the solver's time. What is found by then is the answer, with its bound.

    Raises:
        InvalidRequest: the trace is too large, or HiGHS is not installed.
    """
    known_s = wait_s(trace, known)
    if not known_s:
        return OracleAnswer(timetable=known, wait_s=0, bound_s=0)
    if latest_s is None:  # a job that waits longer than all together do in a known timetable
        latest_s = [at_s + known_s for at_s in trace.submit_s]
    program = _Program(trace, latest_s)
    starts, bound = program.solve(known, limit_s)
    timetable = Timetable.of(trace, shared=True)
    for row, step in enumerate(starts):
        timetable.start_s[row] = trace.submit_s[row] + step * program.step_s
        timetable.end_s[row] = timetable.start_s[row] + trace.duration_s[row]
    found_s = wait_s(trace, timetable)
    bound_s = min(found_s, int(np.ceil(max(0.0, bound) - _ROUNDED)) * program.step_s)
    return OracleAnswer(timetable=timetable, wait_s=found_s, bound_s=bound_s)


class _Program:
    """The program of a trace. Times are steps; a column is a job that starts at one of them."""

    def __init__(self, trace: Trace, latest_s: Sequence[int]) -> None:
        first_s = min(trace.submit_s)
        after_s = [at_s - first_s for at_s in trace.submit_s]
        self.step_s = gcd(*after_s, *trace.duration_s)
        self._trace = trace
        came = np.array(after_s) // self.step_s
        room = (np.array(latest_s) - np.array(trace.submit_s)) // self.step_s
        self._lasts = np.array(trace.duration_s) // self.step_s
        counts = room + 1  # columns of each job
        if counts.sum() > MOST_STARTS:
            raise InvalidRequest(
                f"the oracle is for small cases: {len(trace)} jobs may start at {counts.sum()} "
                f"instants of {self.step_s} s; expected at most {MOST_STARTS}; use fewer jobs, or "
                "coarser times"
            )
        self._job = np.repeat(np.arange(len(trace)), counts)
        self._first = np.concatenate(([0], np.cumsum(counts)))  # column of each job
        self._wait = np.arange(len(self._job)) - self._first[self._job]
        self._at = came[self._job] + self._wait
        self._instants = np.unique(self._at)

    def solve(self, known: Timetable, limit_s: float) -> tuple[list[int], float]:
        """Steps that each job waits, and the bound of their sum."""
        model, size = new_highs(), len(self._job)
        highspy = importlib.import_module("highspy")
        lp = highspy.HighsLp()
        instants, jobs = len(self._instants), len(self._trace)
        lp.num_col_, lp.num_row_ = size, jobs + instants
        lp.col_cost_ = self._wait.astype(float)
        lp.col_lower_, lp.col_upper_ = np.zeros(size), np.ones(size)
        lp.integrality_ = [whole()] * size
        capacity = np.full(instants, float(self._trace.capacity))
        lp.row_lower_ = np.concatenate((np.ones(jobs), np.full(instants, -np.inf)))
        lp.row_upper_ = np.concatenate((np.ones(jobs), capacity))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = self._entries()
        model.setOptionValue("time_limit", limit_s)
        model.setOptionValue("mip_rel_gap", 0.0)
        model.setOptionValue("mip_abs_gap", 0.5)  # of whole numbers: none is between
        model.passModel(lp)
        model.setSolution(self._solution(known))
        model.run()
        bound = float(model.getInfo().mip_dual_bound)
        if model.getInfo().primal_solution_status != 2:  # not feasible: the clock was too quick
            return self._waits(known), bound
        chosen = np.array(model.getSolution().col_value)
        columns = zip(self._first[:-1], self._first[1:], strict=True)
        return [int(chosen[a:b].argmax()) for a, b in columns], bound

    def _entries(self) -> tuple[Int32, Int32, NDArray[np.float64]]:
        """Where each column begins, then its rows, of its job and of instants, and factors."""
        jobs = len(self._trace)
        low = np.searchsorted(self._instants, self._at)
        high = np.searchsorted(self._instants, self._at + self._lasts[self._job])
        starts = np.concatenate(([0], np.cumsum(high - low + 1)))
        if starts[-1] > _MOST_ENTRIES:
            raise InvalidRequest(
                f"the oracle is for small cases: a program of {starts[-1]} entries; expected at "
                f"most {_MOST_ENTRIES}; use fewer jobs, or coarser times"
            )
        index = np.empty(starts[-1], dtype=np.int32)
        value = np.ones(starts[-1])
        gpus = np.array(self._trace.gpus)[self._job]
        for column, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            begin = starts[column]
            index[begin] = self._job[column]
            index[begin + 1 : begin + 1 + b - a] = np.arange(jobs + a, jobs + b)
            value[begin + 1 : begin + 1 + b - a] = gpus[column]
        return starts.astype(np.int32), index, value

    def _solution(self, known: Timetable) -> object:
        solution = importlib.import_module("highspy").HighsSolution()
        values = np.zeros(len(self._job))
        values[self._first[:-1] + self._waits(known)] = 1.0
        solution.col_value = values.tolist()
        return solution

    def _waits(self, known: Timetable) -> list[int]:
        """Of each job, in whole steps: if all starts are rounded down, none gets into another."""
        starts = zip(known.start_s, self._trace.submit_s, strict=True)
        return [(start_s - at_s) // self.step_s for start_s, at_s in starts]
