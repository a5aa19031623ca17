"""Sums up the waiting workloads by tenant; it costs time with every lane."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

from federator.daemon.metrics.held_gpus import GPUS
from federator.sched.state.backlog import Backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSums:
    """By the tenants' rows; and since when the oldest waits, inf: none does."""

    workloads: Counter[int]
    gpus: Counter[int]
    oldest_at_s: float


def waiting_sums(backlog: Backlog) -> WaitingSums:
    """Look through all lanes."""
    workloads, gpus, oldest_at_s = Counter[int](), Counter[int](), inf
    for row in backlog.rows():
        for lane in backlog.lanes(row):
            workloads[row] += len(lane)
            gpus[row] += len(lane) * int(lane.shape.request[GPUS])
            oldest_at_s = min(oldest_at_s, lane.place(0)[0])
    return WaitingSums(workloads=workloads, gpus=gpus, oldest_at_s=oldest_at_s)
