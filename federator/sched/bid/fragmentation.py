"""Prices the free GPUs that a plan leaves useless for what is usually asked for.

For one shape of request (n nodes with g GPUs each), a rack's free GPUs are of use as far as whole
requests of that shape fit into it; for n = 1 a node may hold several. A shape of more nodes than
the rack has takes every node that has g free. The rest is stranded. Expected is the mean over the
shapes asked for lately.

Source:
    Fleet spec, "Fragmentation index": free GPUs that no typical request can use because of
    topology. The mean over recent requests follows Weng et al. (ATC'23), who count nodes; counting
    racks is ours, since gangs want whole ones.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from federator.model.workload import Job

REMEMBERED: Final = 1_000  # requests
SHAPES_COUNTED: Final = 8  # the most frequent ones
WEIGHED_AFTER: Final = 20  # the mix is weighed anew when a twentieth of it is new
PRICES_KEPT: Final = 4_096

Shape = tuple[int, int]  # nodes, GPUs on each
RackKey = tuple[int, tuple[int, ...]]
"""The nodes of a rack, and the GPUs of use on those that have any, ascending."""

UNTIL_KNOWN: Final[tuple[tuple[Shape, int], ...]] = (((1, 1), 1), ((1, 8), 1))
"""Assumed of a site that nobody has asked anything yet."""


class RequestMix:
    """The shapes of the last ``REMEMBERED`` requests, each counted once however often it asks.

    Attributes:
        epoch: grows when racks may have other prices.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._seen: OrderedDict[int, tuple[Shape, ...]] = OrderedDict()
        self._counts: Counter[Shape] = Counter()
        self._unweighed = 0  # requests since
        self._weights: tuple[tuple[Shape, float], ...] | None = None
        self._prices: dict[tuple[int, tuple[int, ...]], float] = {}

    def note(self, id_: int, jobs: Sequence[Job]) -> None:
        """A workload has asked for this."""
        if id_ in self._seen:
            return
        shapes = self._seen[id_] = tuple([s for job in jobs if (s := shape_of(job))[1]])
        for shape in shapes:
            self._counts[shape] += 1
        if len(self._seen) > REMEMBERED:
            for shape in self._seen.popitem(last=False)[1]:
                self._counts[shape] -= 1
                if not self._counts[shape]:
                    del self._counts[shape]
        self._unweighed += bool(shapes)
        if self._unweighed * WEIGHED_AFTER >= len(self._seen):  # a few of many change little
            self._unweighed = 0
            self.epoch += 1
            self._weights = None
            self._prices.clear()

    @property
    def weights(self) -> tuple[tuple[Shape, float], ...]:
        """The most frequent shapes with their shares, which sum to 1."""
        if self._weights is None:
            top = (
                sorted(self._counts.items(), key=lambda c: (-c[1], c[0]))[:SHAPES_COUNTED]
                or UNTIL_KNOWN
            )
            total = sum(n for _, n in top)
            self._weights = tuple((shape, n / total) for shape, n in top)
        return self._weights

    def stranded(self, rack: RackKey) -> float:
        """Expected GPUs of a rack that are of no use."""
        known = self._prices.get(rack)
        if known is None:
            if len(self._prices) >= PRICES_KEPT:
                self._prices.clear()
            nodes, free = rack
            known = self._prices[rack] = sum(
                weight * (sum(free) - _of_use(free, shape, nodes)) for shape, weight in self.weights
            )
        return known

    def stranded_of(self, racks: Iterable[Collection[int]]) -> float:
        """Expected GPUs of several racks that are of no use, to a tenth of one.

        Args:
            racks: GPUs free on each node of each, 0 where there are none.
        """
        return round(sum(self.stranded(rack_key(free)) for free in racks), 1)


def rack_key(free: Collection[int]) -> RackKey:
    """The GPUs free on each node of a rack, in whatever order, as ``RequestMix`` asks for them."""
    return len(free), tuple(sorted([gpus for gpus in free if gpus > 0]))


def shape_of(job: Job) -> Shape:
    """Nodes and GPUs on each; a total counts as GPUs anywhere, in nodes of eight."""
    if job.nodes is not None:
        return job.nodes, job.gpus_per_node or -(-job.gpus // job.nodes)
    if job.gpus:
        return -(-job.gpus // 8), min(8, job.gpus)
    return 1, job.gpus_per_node


def _of_use(free: Sequence[int], shape: Shape, nodes: int) -> int:
    wanted, each = shape
    if wanted == 1:
        return sum(gpus - gpus % each for gpus in free)
    fitting = sum(gpus >= each for gpus in free)
    return (fitting if wanted > nodes else fitting - fitting % wanted) * each
