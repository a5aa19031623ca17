"""A span: one stretch of a workload's life, at the daemon or at a site.

The ids follow from the federation's name and the workload's id alone. So daemon and agents, which
export separately, make one trace without having told each other of it, and a span that is made
again after a restart is the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from federator.model.mappings import NOTHING
from federator.model.workload import WorkloadId

Value = str | int | float | bool
_HALF: Final = 1 << 64
ROOT: Final = ""


class TracedSpan(NamedTuple):
    """One stretch.

    ``key`` tells it from the others of its workload, as ``parent`` does with the one around it.
    """

    workload: WorkloadId
    name: str  # one of few
    key: str
    start_s: float  # Unix time, as the next
    end_s: float
    parent: str | None = ROOT  # None: it is the root
    attributes: Mapping[str, Value] = NOTHING
    error: str = ""  # "": none


Tell = Callable[[TracedSpan], None]


def trace_id(federation: str, workload: WorkloadId) -> int:
    """The trace of a workload: 128 bits."""
    return int.from_bytes(sha256(f"{federation}\0{workload}".encode()).digest()[:16])


def span_id(trace: int, key: str) -> int:
    """A span of that trace: 64 bits."""
    return int.from_bytes(sha256(trace.to_bytes(16) + key.encode()).digest()[:8])


def is_sampled(trace: int, ratio: float) -> bool:
    """Whether a trace is among the given part of all; the same everywhere."""
    return trace % _HALF < ratio * _HALF


def launch_key(attempt: int) -> str:
    """The key of the span in which a site is ordered to launch, around those of its agent."""
    return f"launch/{attempt}"
