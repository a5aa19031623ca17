"""Texts about evictions: what they cost a workload, and others for its sake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, isinf
from typing import Final

from federator.cli.rank_text import counted, duration
from federator.wire.queue_rows import PreemptionRow

NAMED: Final = 5  # victims by their ids; of more the rest is counted

Line = tuple[str, str]
"""A label, and what there is to say."""


def gpu_time(gpu_s: float) -> str:
    """``40 GPU-s``, ``12.5 GPU-h``: hours from one on."""
    return f"{gpu_s / 3600:,.1f} GPU-h" if gpu_s >= 3600 else f"{gpu_s:.0f} GPU-s"


def preemption_lines(row: PreemptionRow | None, now_s: float) -> Iterator[Line]:
    """The lines about a workload's evictions, under one label each."""
    if row is None:
        return
    if row.leave_by_s:
        yield "Leaving", _leaving(row, now_s)
    if row.preemptions:
        yield "Evicted", _evicted(row)
    if row.saved_at or row.copied_ahead:
        saved = f"saved at {row.saved_at}" if row.saved_at else ""
        yield "Checkpoint", "; ".join(filter(None, (saved, row.copied_ahead)))
    if row.saves_seen:
        yield "Save time", _save_time(row)
    if row.victims or row.victims_hidden:
        others = counted(row.victims_hidden, "others") if row.victims_hidden else ""
        yield "Victims", " and ".join(filter(None, (_ids(row.victims), others)))
    if row.moves:
        yield "Moves", _moves(row)
    if row.goes_on_at:
        yield "Goes on", f"at node {row.goes_on_at}, which is held for it"
    if row.evictions:
        destroyed = gpu_time(row.destroyed_gpu_s)
        yield "Made leave", f"{counted(row.evictions, 'workloads')}, which lost {destroyed} in all"


def _leaving(row: PreemptionRow, now_s: float) -> str:
    why = "at its time limit" if row.at_limit else _whom(row)
    left_s = row.leave_by_s - now_s
    if left_s < 1:
        return f"{why}; its grace is over"
    return f"{why}; killed in {duration(left_s)} unless it has left before"


def _evicted(row: PreemptionRow) -> str:
    times = counted(row.preemptions, "times")
    last = f"last {_whom(row)}" if row.preemptions > 1 else _whom(row)
    return f"{times}, {last}; lost {gpu_time(row.lost_gpu_s)} so far"


def _moves(row: PreemptionRow) -> str:
    jobs, gpus = counted(row.moves, "jobs"), counted(row.moved_gpus, "GPUs")
    saved, lost = duration(ceil(row.waits_s)), gpu_time(row.moves_lose_gpu_s)
    have = "has" if row.moves == 1 else "have"
    return (
        f"starts when {jobs} of {gpus} {have} moved; "
        f"saves about {saved} of waiting for {lost} of lost work"
    )


def _whom(row: PreemptionRow) -> str:
    if row.evicted_for_hidden:
        return "for another job"
    return f"for {row.evicted_for}" if row.evicted_for else "since its site was drained"


def _save_time(row: PreemptionRow) -> str:
    known = f"by {counted(row.saves_seen, 'saves')} of jobs of this name"
    if row.save_p95_s is None or isinf(row.save_p95_s):
        return f"longer than the grace, {known}"
    return f"at most {duration(ceil(row.save_p95_s))}, odd ones apart, {known}"


def _ids(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:NAMED]))
    return f"{shown} and {len(ids) - NAMED:,} more" if len(ids) > NAMED else shown
