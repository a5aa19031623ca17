"""The score of a bid: terms in order of weight, compared from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self


class Score(NamedTuple):
    """Smaller is better, compared from left to right; the sum over a workload's jobs.

    Computed by ``sched.bid.score``; explained in docs/placement.md, "Score".
    ``bytes_to_move`` is 0: a site is asked once the data is there.
    """

    preempts: int = 0  # 1 when victims must go
    victims_priority: int = 0
    victims: int = 0  # an optional job that is taken counts as one
    lost_work_gpu_s: float = 0.0
    gpus_unasked: int = 0  # free GPUs of the nodes that a workload without GPUs takes
    locality_cost: float = 0.0  # sum over pairs of GPUs, spec eq. 2
    gpu_worth: float = 0.0  # of all GPUs taken, so that the least capable that do are taken
    fragmentation: float = 0.0  # by how many GPUs it raises those of no use in its racks
    bytes_to_move: float = 0.0

    def named(self) -> dict[str, float]:
        """The terms that are not 0, by name: so they keep their meaning in the log."""
        return {name: term for name, term in zip(self._fields, self, strict=True) if term}

    @classmethod
    def of(cls, terms: Mapping[str, float] | Sequence[float]) -> Self:
        """What ``named`` gave, here or in another release; the oldest told terms by position.

        Counts are whole numbers again, though the log may have them as others.
        """
        if not isinstance(terms, Mapping):
            terms = dict(zip(_TERMS_ONCE, terms, strict=False))
        defaults = cls._field_defaults
        return cls._make(type(defaults[n])(terms.get(n, defaults[n])) for n in cls._fields)


_TERMS_ONCE: Final = (
    "preempts",
    "victims_priority",
    "victims",
    "lost_work_gpu_s",
    "locality_cost",
    "gpu_worth",
    "fragmentation",
    "bytes_to_move",
)
"""The terms while the log told them by position."""

COST: Final = "cost"
_COST_AT: Final = Score._fields.index("locality_cost")
TERMS: Final = (*Score._fields[:_COST_AT], COST, *Score._fields[_COST_AT:])
"""The names of the terms of a bid, in order."""


def with_cost(score: Score, cost: float) -> tuple[float, ...]:
    """The terms of a score with the cost in its place among them: before the locality."""
    return (*score[:_COST_AT], cost, *score[_COST_AT:])
