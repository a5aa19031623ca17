"""A model of how much faster an elastic job is on more nodes, and whether a resize pays.

Nothing is learned of a job's scaling: each doubling of its nodes is taken to bring 1.8 times the
throughput, as the worked case of the specification has it. A resize costs ten minutes in which
nothing is done (save, start, load, warm up), and whatever was not saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Final, NamedTuple

GAIN_OF_DOUBLING: Final = 1.8
RESIZE_S: Final = 600.0
HORIZON_S: Final = 86_400.0


class Phase(NamedTuple):
    """A size that a job has from some time on."""

    from_s: float
    rate: float  # work done in a second


def rate(nodes: int) -> float:
    """Throughput on so many nodes, of one node's; ``nodes`` >= 1."""
    return float(GAIN_OF_DOUBLING ** log2(nodes))


def work_done(phases: Sequence[Phase], horizon_s: float, resize_s: float = RESIZE_S) -> float:
    """Work done until the horizon by a job that runs through these phases.

    The first phase starts when the job does; each later one begins with a resize.

    Source:
        Specification, elastic jobs: integrated throughput over the horizon.
    """
    ends_s = [phase.from_s for phase in phases[1:]] + [horizon_s]
    done = 0.0
    for k, (phase, end_s) in enumerate(zip(phases, ends_s, strict=True)):
        idle_s = resize_s if k else 0.0
        done += phase.rate * max(0.0, end_s - phase.from_s - idle_s)
    return done


def pays(nodes: int, more: int, left_s: float, lost_s: float = 0.0) -> bool:
    """Tell whether a job does more until it would have ended if it is resized now.

    Args:
        nodes: that it has.
        more: that it would have instead.
        left_s: it would run on for so long as it is; more than the horizon counts as that.
        lost_s: of its work so much is not saved, in seconds at its present size.
    """
    left_s = min(left_s, HORIZON_S)
    stays = work_done([Phase(0.0, rate(nodes))], left_s)
    resized = work_done([Phase(0.0, 0.0), Phase(0.0, rate(more))], left_s, RESIZE_S)
    return resized - lost_s * rate(nodes) > stays
