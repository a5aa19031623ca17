"""The mix of recent requests, noted once for all sites, since all are asked the same.

``RequestMix`` of each site notes the same requests in the same order; only when a site weighs them
differs: when it first puts a price on something after its weights were dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from operator import mul
from typing import Final

from federator.sched.bid.fragmentation import (
    PRICES_KEPT,
    REMEMBERED,
    SHAPES_COUNTED,
    UNTIL_KNOWN,
    WEIGHED_AFTER,
)
from federator.sim.fast.request_shape import AskedShape

RackKey = tuple[int, tuple[int, ...]]
"""Nodes of a rack, and the GPUs of use on those that have any, ascending."""

_KEPT: Final = 65_536  # racks of which it is known how they serve some shapes
_CHOICES_KEPT: Final = 16  # of shapes
RackShape = tuple[int, int]
"""Nodes, and GPUs on each, of a request."""


class Wasted:
    """How many GPUs of a rack are of no use to requests of some shapes: a matter of counting."""

    def __init__(self) -> None:
        self._known: dict[tuple[RackShape, ...], dict[RackKey, list[int]]] = {}
        self._by_shape: dict[RackShape, dict[RackKey, int]] = {}

    def of(self, shapes: tuple[RackShape, ...], key: RackKey) -> list[int]:
        """By shape, in this order."""
        known = self._known.get(shapes)
        if known is None:
            if len(self._known) >= _CHOICES_KEPT:
                self._known.clear()
            known = self._known[shapes] = {}
        found = known.get(key)
        if found is None:
            if len(known) >= _KEPT:
                known.clear()
            found = known[key] = [self._one(shape, key) for shape in shapes]
        return found

    def _one(self, shape: RackShape, key: RackKey) -> int:
        known = self._by_shape.setdefault(shape, {})
        found = known.get(key)
        if found is None:
            if len(known) >= _KEPT:
                known.clear()
            found = known[key] = sum(key[1]) - _of_use(key, shape)
        return found


class Weights:
    """The most frequent shapes with their shares, and what racks cost by them.

    Args:
        counts: how often each shape was asked for.
        wasted: what is known of them already, whatever their shares.
    """

    __slots__ = ("_prices", "_shapes", "_shares", "_wasted")

    def __init__(self, counts: dict[RackShape, int], wasted: Wasted) -> None:
        top = sorted(counts.items(), key=lambda c: (-c[1], c[0]))[:SHAPES_COUNTED] or UNTIL_KNOWN
        total = sum(n for _, n in top)
        self._shapes = tuple([shape for shape, _ in top])
        self._shares = [n / total for _, n in top]
        self._wasted = wasted
        self._prices: dict[RackKey, float] = {}

    def stranded(self, key: RackKey) -> float:
        """Expected GPUs of a rack that are of no use; as ``RequestMix.stranded``."""
        known = self._prices.get(key)
        if known is None:
            if len(self._prices) >= PRICES_KEPT:
                self._prices.clear()
            known = sum(map(mul, self._shares, self._wasted.of(self._shapes, key)))
            self._prices[key] = known
        return known


def _of_use(key: RackKey, shape: RackShape) -> int:
    nodes, free = key
    wanted, each = shape
    if wanted == 1:
        return sum([gpus - gpus % each for gpus in free])
    fitting = sum([gpus >= each for gpus in free])
    return (fitting if wanted > nodes else fitting - fitting % wanted) * each


class SharedMix:
    """The shapes of the last requests, each job counted once however often it asks.

    Attributes:
        epoch: grows when sites have to weigh anew.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._seen: OrderedDict[int, AskedShape] = OrderedDict()
        self._counts: dict[RackShape, int] = {}
        self._wasted = Wasted()
        self._unweighed = 0
        self._weights: Weights | None = None  # of the counts as they are

    def knows(self, job: int) -> bool:
        return job in self._seen

    def note(self, job: int, shape: AskedShape) -> int | None:
        """A job has asked for the first time, or since it was forgotten.

        Returns:
            The job that is forgotten for it.
        """
        counted = shape.counted
        self._seen[job] = shape
        if counted[1]:
            self._counts[counted] = self._counts.get(counted, 0) + 1
            self._unweighed += 1
            self._weights = None
        forgotten = self._forget_oldest() if len(self._seen) > REMEMBERED else None
        if self._unweighed * WEIGHED_AFTER >= len(self._seen):
            self._unweighed = 0
            self.epoch += 1
        return forgotten

    def forgotten_for(self, more: int, jobs: Container[int]) -> list[int]:
        """Which of ``jobs`` may be forgotten when so many more are noted, and they again."""
        beyond = len(self._seen) + more - REMEMBERED
        found: list[int] = []
        if beyond > 0:
            for position, job in enumerate(self._seen):
                if position >= beyond + len(found):
                    break
                if job in jobs:
                    found.append(job)
        return found

    def weights(self) -> Weights:
        """Of what has been noted by now."""
        if self._weights is None:
            self._weights = Weights(self._counts, self._wasted)
        return self._weights

    def _forget_oldest(self) -> int:
        job, shape = self._seen.popitem(last=False)
        counted = shape.counted
        if counted[1]:
            left = self._counts[counted] - 1
            if left:
                self._counts[counted] = left
            else:
                del self._counts[counted]
            self._weights = None
        return job
