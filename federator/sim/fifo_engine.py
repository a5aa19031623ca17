"""Replays one queue in strict order, from event to event, without ticks or rescans.

Strict: the first job that does not fit blocks all behind it. Nothing is preempted. At one instant
ends come before arrivals, then the queue is scheduled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from federator.sim.node_pool import Held, Space
from federator.sim.trace import ReplayOptions, Timetable, Trace

_REPORT_EVERY: Final = 1024  # jobs
_NEVER: Final = 2**62

Running = list[tuple[int, int, Held]]  # a heap by end, then row


def free_ended(running: Running, space: Space, now_s: int) -> None:
    """End what ends by now."""
    while running and running[0][0] <= now_s:
        space.give(heappop(running)[2])


def next_event(arrives_s: int | None, running: Sequence[tuple[int, int, Held]]) -> int:
    """The earlier of the next arrival, if there is one, and the next end, if any matters."""
    if not running:
        assert arrives_s is not None, "jobs wait, and nothing runs or comes"
        return arrives_s
    ends_s = running[0][0]
    return ends_s if arrives_s is None or ends_s < arrives_s else arrives_s


def report(count: int, options: ReplayOptions) -> None:
    """Tell of progress now and then; ``count`` is the number of jobs seen so far."""
    if not count % _REPORT_EVERY:
        options.progress(_REPORT_EVERY)


def first_come(
    trace: Trace, rows: Sequence[int], space: Space, timetable: Timetable, options: ReplayOptions
) -> None:
    """Start jobs in the order given, each as early as it fits after the one before it.

    In this order only the first job ever waits for room, so no queue is kept.

    Args:
        trace: the jobs.
        rows: those that share ``node_pool``, by submission.
        space: free at first, large enough for each of them, and free in the end.
        timetable: gets starts and ends.
        options: who is told of progress.
    """
    submit_s, duration_s, gpus = trace.submit_s, trace.duration_s, trace.gpus
    take, give, start_s, end_s = space.take, space.give, timetable.start_s, timetable.end_s
    running: Running = []
    now_s = submit_s[rows[0]] if rows else 0
    for first in range(0, len(rows), _REPORT_EVERY):
        some = rows[first : first + _REPORT_EVERY]
        for row in some:
            if submit_s[row] > now_s:  # noqa: PLR1730 - max() is a call
                now_s = submit_s[row]
            while running and running[0][0] <= now_s:
                give(heappop(running)[2])
            while (held := take(gpus[row])) is None:
                now_s = running[0][0]
                free_ended(running, space, now_s)
            start_s[row] = now_s
            end_s[row] = ends_s = now_s + duration_s[row]
            heappush(running, (ends_s, row, held))
        options.progress(len(some))


def least_first(  # one loop over the columns; calls would cost more than what they do
    trace: Trace,
    rows: Sequence[int],
    key: Sequence[int],
    space: Space,
    timetable: Timetable,
    options: ReplayOptions,
) -> None:
    """Start jobs by the least key, whenever the first of those that wait fits.

    Args:
        trace: the jobs.
        rows: those that share ``node_pool``, by submission.
        key: of every row of the trace; ties go to the earlier one in ``rows``.
        space: free at first, large enough for each of them, and free in the end.
        timetable: gets starts and ends.
        options: who is told of progress.
    """
    submit_s, duration_s, gpus = trace.submit_s, trace.duration_s, trace.gpus
    take, give, start_s, end_s = space.take, space.give, timetable.start_s, timetable.end_s
    keys = [key[row] for row in rows]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    row_at = [rows[position] for position in order]
    place = [0] * len(rows)  # by position; small numbers compare faster than pairs
    for k, position in enumerate(order):
        place[position] = k
    arrivals_s = [*(submit_s[row] for row in rows), _NEVER]
    running: Running = []
    waiting: list[int] = []  # a heap of places
    position, count = 0, len(rows)
    while position < count or waiting:
        now_s = arrivals_s[position]
        if waiting and running[0][0] < now_s:
            now_s = running[0][0]
        while running and running[0][0] <= now_s:
            give(heappop(running)[2])
        while arrivals_s[position] == now_s:
            heappush(waiting, place[position])
            position += 1
            if not position % _REPORT_EVERY:
                options.progress(_REPORT_EVERY)
        while waiting:
            row = row_at[waiting[0]]
            held = take(gpus[row])
            if held is None:
                break
            heappop(waiting)
            start_s[row] = now_s
            end_s[row] = ends_s = now_s + duration_s[row]
            heappush(running, (ends_s, row, held))
