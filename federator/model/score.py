"""The score of a bid: terms in order of weight, compared from left to right."""

from __future__ import annotations

from typing import NamedTuple


class Score(NamedTuple):
    """Smaller is better, compared from left to right; the sum over a workload's jobs.

    Order of the terms: docs/architecture.md, "Score". ``bytes_to_move`` is 0 until data is
    placed.
    """

    preempts: int = 0  # 1 when victims must go
    victims_priority: int = 0
    victims: int = 0  # an optional job that is taken counts as one
    lost_work_gpu_s: float = 0.0
    locality_cost: float = 0.0  # sum over pairs of GPUs, spec eq. 2
    gpu_worth: float = 0.0  # of all GPUs taken, so that the least capable that do are taken
    fragmentation: float = 0.0  # by how many GPUs it raises those of no use in its racks
    bytes_to_move: float = 0.0
