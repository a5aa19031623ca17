"""Puts every GPU-second of an attempt in exactly one class.

An attempt is cut into spans that follow each other without a gap from its start to its end; each
span is of one class. Times are whole milliseconds, so sums are exact, in any order.

Source:
    The three utilisations of the fleet chapter: *allocated* (held by a job), *compute* (SM busy)
    and *productive* (advancing the model: minus gang wait, checkpoint, restart and stalls). It
    gives no rule for work that is lost; ours is that of the preemption tax, see
    ``sched.state.preemption_cost.destroyed_gpu_s``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Final, NamedTuple

CLOCKS_DIFFER_MS: Final = 120_000  # a site's clock and the federation's
OVERLAP_MS: Final = 5_000  # of two attempts, that is not worth a flag
LONGEST_MS: Final = 400 * 86_400_000  # of one attempt that is believed


class TimeClass(Enum):
    """A class of GPU time; the value is its name in reports."""

    # held by an attempt
    START_UP = "start_up"  # from its start to its first step: the gang gathers, libraries load
    RESTORE = "restore"  # the same, of an attempt that begins from a checkpoint
    PRODUCTIVE = "productive"  # steps that were kept
    UNKNOWN = "unknown"  # held, and nothing told of steps
    SAVE = "save"  # writing checkpoints
    LOST_PREEMPTION = "lost_preemption"  # done again, as it had to leave for others
    LOST_FAILURE = "lost_failure"  # done again, as a node or its site failed
    LOST_REQUEUE = "lost_requeue"  # done again, after a time limit or a requeue that was asked for
    FAILED = "failed"  # since the last save of an attempt that failed by itself
    # held by no attempt
    LAUNCHING = "launching"  # awarded, and not started yet
    LOCAL = "local"  # held by jobs that are not the federation's
    DRAINED = "drained"
    DOWN = "down"
    UNREACHABLE = "unreachable"  # free as far as is known: its site was not in contact
    IDLE = "idle"


HELD: Final = tuple(TimeClass)[:9]
"""The classes of time that an attempt holds; they sum to *allocated*."""
FREE: Final = tuple(TimeClass)[9:]


class RecordFlag(Enum):
    """A record that cannot be right as it stands; its time is counted once, or not at all."""

    CLOCK = "clock"  # began before its award, ended before it began or once over, took for ever
    OVERLAP = "overlap"  # it ran while an earlier attempt of its workload did
    MISSING = "missing"  # an attempt before it is not there, or its start is not
    JOB_ID = "job_id"  # its site had given as high a job id, or a higher one, before its award


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTimes:
    """An attempt as the history has it. Times are Unix times in seconds; 0: never, or not known."""

    attempt: int
    awarded_at_s: float = 0.0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    known_at_s: float = 0.0  # since when the federation has known that it is over; 0: it runs on
    state: str = ""  # a state of Slurm's
    evicted: bool = False  # told to leave for another workload
    told_at_s: float = 0.0  # that it must leave
    saved_at_s: float = 0.0  # its last checkpoint
    ready_s: float | None = None  # from its start to its first step; None: nothing told of steps
    save_s: float | None = None  # in all its saves
    site_job_id: int = 0
    last_job_id: int = 0  # that its site was known to have given by its award; 0: of none known


class Span(NamedTuple):
    """Time of one class; ``save_ms`` of it, evenly spread, are saves."""

    kind: TimeClass
    start_ms: int
    end_ms: int
    save_ms: int = 0


class Split(NamedTuple):
    """An attempt's time, and what is wrong with its record."""

    spans: tuple[Span, ...]
    flags: frozenset[RecordFlag]
    useful_until_ms: int  # what came later was for nothing; its end, if all was of use

    @property
    def end_ms(self) -> int:
        """When it was over, as counted."""
        return self.spans[-1].end_ms if self.spans else 0


def milliseconds(at_s: float) -> int:
    """A time in whole milliseconds; 0 of what is no time."""
    return round(at_s * 1000.0) if isfinite(at_s) and 0 < at_s < 1e12 else 0


def split_all(attempts: Iterable[AttemptTimes]) -> Iterator[Split]:
    """The splits of one workload's attempts, by number: it runs once at a time.

    An attempt that began before an earlier one ended counts from there; one that is given twice
    counts once.
    """
    floor_ms, number, restores = 0, 0, False
    for times in sorted({each.attempt: each for each in attempts}.values(), key=_number):
        found = split(times, floor_ms, restores=restores)
        if times.attempt > number + 1:
            found = found._replace(flags=found.flags | {RecordFlag.MISSING})
        number = times.attempt
        restores = restores or bool(times.saved_at_s) or times.state == "REQUEUED"
        floor_ms = max([floor_ms, *(s.end_ms for s in found.spans if s.kind in HELD)])
        yield found


def split(times: AttemptTimes, floor_ms: int = 0, *, restores: bool = False) -> Split:
    """Cut one attempt into spans.

    Args:
        times: of the attempt; one that runs on ends at ``ended_at_s`` for now.
        floor_ms: an earlier attempt of its workload held nodes until then.
        restores: there was a checkpoint before it.
    """
    start_ms, end_ms, flags = _bounds(times)
    if 0 < times.site_job_id <= times.last_job_id:
        flags |= {RecordFlag.JOB_ID}
    if start_ms and floor_ms > start_ms:
        if min(floor_ms, end_ms) - start_ms > OVERLAP_MS:
            flags |= {RecordFlag.OVERLAP}
        start_ms = min(floor_ms, end_ms)
    spans = list(_launching(times, start_ms, end_ms, floor_ms))
    if not start_ms:
        return Split(tuple(spans), frozenset(flags), end_ms)
    useful_ms, loss = _useful_until(times, start_ms, end_ms)
    spans += _useful(
        times, start_ms, useful_ms, TimeClass.RESTORE if restores else TimeClass.START_UP
    )
    if loss is not None:
        saved_ms = min(max(milliseconds(times.saved_at_s), useful_ms), end_ms)
        spans += [Span(TimeClass.SAVE, useful_ms, saved_ms), Span(loss, saved_ms, end_ms)]
    kept = tuple(span for span in spans if span.end_ms > span.start_ms)
    return Split(kept, frozenset(flags), useful_ms)


def amounts(spans: Sequence[Span], from_ms: int, to_ms: int) -> dict[TimeClass, int]:
    """Milliseconds of each class within a window; windows that follow each other sum exactly."""
    found: dict[TimeClass, int] = {}
    for span in spans:
        a, b = max(span.start_ms, from_ms), min(span.end_ms, to_ms)
        if a >= b:
            continue
        whole = span.end_ms - span.start_ms
        save = span.save_ms * (b - span.start_ms) // whole
        save -= span.save_ms * (a - span.start_ms) // whole
        found[span.kind] = found.get(span.kind, 0) + b - a - save
        if save:
            found[TimeClass.SAVE] = found.get(TimeClass.SAVE, 0) + save
    return found


def _number(times: AttemptTimes) -> int:
    return times.attempt


def _bounds(times: AttemptTimes) -> tuple[int, int, set[RecordFlag]]:
    """Start and end as they are believed; a start of 0: it never ran."""
    flags: set[RecordFlag] = set()
    start_ms, end_ms = milliseconds(times.started_at_s), milliseconds(times.ended_at_s)
    known_ms = milliseconds(times.known_at_s)
    if known_ms and end_ms > known_ms + CLOCKS_DIFFER_MS:
        end_ms = known_ms
        flags.add(RecordFlag.CLOCK)
    if not start_ms:
        if times.state in ("COMPLETED", "TIMEOUT"):  # it cannot have done that without
            flags.add(RecordFlag.MISSING)
        return 0, end_ms, flags
    awarded_ms = milliseconds(times.awarded_at_s)
    if start_ms < awarded_ms - CLOCKS_DIFFER_MS:
        flags.add(RecordFlag.CLOCK)
        start_ms = awarded_ms - CLOCKS_DIFFER_MS
    if end_ms < start_ms:
        flags.add(RecordFlag.CLOCK)
        end_ms = start_ms = min(start_ms, known_ms or start_ms)  # nor was it launched after that
    if end_ms - start_ms > LONGEST_MS:
        flags.add(RecordFlag.CLOCK)
        start_ms = end_ms - LONGEST_MS
    return start_ms, end_ms, flags


def _launching(times: AttemptTimes, start_ms: int, end_ms: int, floor_ms: int) -> Iterator[Span]:
    """From the award to the start; nodes may still be held by who makes room for it."""
    until_ms = start_ms or end_ms
    from_ms = max(milliseconds(times.awarded_at_s), floor_ms)
    if from_ms and 0 < until_ms - from_ms <= LONGEST_MS:
        yield Span(TimeClass.LAUNCHING, from_ms, until_ms)


def _useful_until(times: AttemptTimes, start_ms: int, end_ms: int) -> tuple[int, TimeClass | None]:
    """The end of what was of use, and the class of what came later; None: all was."""
    loss = _loss(times)
    if loss is None:
        return end_ms, None
    useful_ms = milliseconds(times.saved_at_s)
    if times.told_at_s:
        useful_ms = min(useful_ms, milliseconds(times.told_at_s))
    return min(max(useful_ms, start_ms), end_ms), loss


def _loss(times: AttemptTimes) -> TimeClass | None:
    match times.state:
        case "PREEMPTED":  # by another workload, or untold by its site
            by_others = times.evicted or not times.told_at_s
            return TimeClass.LOST_PREEMPTION if by_others else TimeClass.LOST_REQUEUE
        case "NODE_FAIL" | "BOOT_FAIL":
            return TimeClass.LOST_FAILURE
        case "REQUEUED" if times.told_at_s:
            return TimeClass.LOST_REQUEUE
        case "TIMEOUT" if times.saved_at_s:  # it goes on later
            return TimeClass.LOST_REQUEUE
        case "FAILED" | "OUT_OF_MEMORY":
            return TimeClass.FAILED
    return None


def _useful(times: AttemptTimes, start_ms: int, until_ms: int, begins: TimeClass) -> Iterator[Span]:
    """The time before anything was lost; steps are known if ``Checkpointer`` told of them."""
    if times.ready_s is None:
        yield Span(TimeClass.UNKNOWN, start_ms, until_ms)
        return
    ready_ms = min(start_ms + milliseconds(times.ready_s), until_ms)
    yield Span(begins, start_ms, ready_ms)
    save_ms = min(milliseconds(times.save_s or 0.0), until_ms - ready_ms)
    yield Span(TimeClass.PRODUCTIVE, ready_ms, until_ms, save_ms)
