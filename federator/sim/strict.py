"""How is one queue replayed in strict order? From event to event, without ticks or rescans.

Strict: the first job that does not fit blocks all behind it. Nothing is preempted. At one instant
ends come before arrivals, then the queue is scheduled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from federator.sim.space import Held, Space
from federator.sim.trace import ReplayOptions, Timetable, Trace

_REPORT_EVERY: Final = 1024  # jobs

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
        rows: those that share ``space``, by submission.
        space: free at first, large enough for each of them, and free in the end.
        timetable: gets starts and ends.
        options: who is told of progress.
    """
    submit_s, duration_s, gpus = trace.submit_s, trace.duration_s, trace.gpus
    take, start_s, end_s = space.take, timetable.start_s, timetable.end_s
    running: Running = []
    now_s = submit_s[rows[0]] if rows else 0
    for count, row in enumerate(rows, 1):
        now_s = max(now_s, submit_s[row])
        free_ended(running, space, now_s)
        while (held := take(gpus[row])) is None:
            now_s = running[0][0]
            free_ended(running, space, now_s)
        start_s[row] = now_s
        end_s[row] = ends_s = now_s + duration_s[row]
        heappush(running, (ends_s, row, held))
        report(count, options)


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
        rows: those that share ``space``, by submission.
        key: of every row of the trace; ties go to the earlier one in ``rows``.
        space: free at first, large enough for each of them, and free in the end.
        timetable: gets starts and ends.
        options: who is told of progress.
    """
    submit_s, duration_s, gpus = trace.submit_s, trace.duration_s, trace.gpus
    take, start_s, end_s = space.take, timetable.start_s, timetable.end_s
    order = sorted(range(len(rows)), key=lambda position: key[rows[position]])
    place = [0] * len(rows)  # by position; small numbers compare faster than pairs
    for k, position in enumerate(order):
        place[position] = k
    running: Running = []
    waiting: list[int] = []  # a heap of places
    position, count = 0, len(rows)
    while position < count or waiting:
        arrives_s = submit_s[rows[position]] if position < count else None
        now_s = next_event(arrives_s, running if waiting else ())
        free_ended(running, space, now_s)
        while position < count and submit_s[rows[position]] <= now_s:
            heappush(waiting, place[position])
            position += 1
            report(position, options)
        while waiting:
            row = rows[order[waiting[0]]]
            held = take(gpus[row])
            if held is None:
                break
            heappop(waiting)
            start_s[row] = now_s
            end_s[row] = ends_s = now_s + duration_s[row]
            heappush(running, (ends_s, row, held))
