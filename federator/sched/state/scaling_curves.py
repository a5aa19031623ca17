"""Learns how much faster the elastic jobs of a family are on more nodes, from those that completed.

Runs of a family (same tenant, user and name) are taken to do the same work. A run on n nodes for t
seconds does ``n**a * t`` of it; the exponent a is the one under which the works of its runs agree
best. Runs that were all on the same nodes tell nothing, and then the exponent is that of the
assumption: each doubling brings 1.8 times the throughput. A few runs move it little.

Source:
    Chosen here. Least deviations of the logarithms of the works from their median, which one odd
    run moves little, and a normal prior on a. Steps per second would not do: whether a step on
    more nodes is more work is up to the job.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from math import log, log2
from typing import Final

from federator.model.workload import TenantName
from federator.sched.state.save_times import Family

Stints = tuple[tuple[int, float], ...]
"""The runs of one workload: on how many nodes, and for how many seconds whose work is kept."""

ASSUMED_GAIN: Final = 1.8
"""Of throughput by twice the nodes, as in the worked case of the specification."""

RUNS_KEPT: Final = 20  # of a family, the latest
FAMILIES_KEPT: Final = 10_000
_ASSUMED: Final = log2(ASSUMED_GAIN)
_SPREAD: Final = 0.3  # of the exponent, about the assumed one
_NOISE: Final = 0.25  # of the logarithm of a run's work, from run to run
_TRIED: Final = tuple(k / 50 for k in range(51))  # exponents: from no gain to a doubling


class ScalingCurves:
    """The exponent of each family, as seen."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Family, deque[Stints]] = OrderedDict()  # latest family last
        self._gain: dict[Family, float] = {}  # of those asked for since they last completed

    def learn(self, family: Family, stints: Stints) -> None:
        """Take in the runs of one that has completed."""
        stints = tuple((nodes, ran_s) for nodes, ran_s in stints if ran_s > 0)
        if not stints:
            return
        seen = self._seen.setdefault(family, deque(maxlen=RUNS_KEPT))
        self._seen.move_to_end(family)
        seen.append(stints)
        self._gain.pop(family, None)
        if len(self._seen) > FAMILIES_KEPT:
            self._gain.pop(self._seen.popitem(last=False)[0], None)

    def gain(self, family: Family) -> float:
        """What twice the nodes bring of throughput, between 1 and 2."""
        seen = self._seen.get(family)
        if not seen or len({nodes for stints in seen for nodes, _ in stints}) == 1:
            return ASSUMED_GAIN
        if family not in self._gain:
            self._gain[family] = float(2.0 ** min(_TRIED, key=lambda a: _misfit(a, seen)))
        return self._gain[family]

    def saved(self) -> Iterator[tuple[TenantName, str, str, tuple[Stints, ...]]]:
        """Every family with its runs, the one that completed last at the end."""
        return ((*family, tuple(seen)) for family, seen in self._seen.items())

    def restore(self, families: Iterable[tuple[TenantName, str, str, tuple[Stints, ...]]]) -> None:
        """Know these as well, as ``saved`` told them."""
        for tenant, user, name, runs in families:
            self._seen[tenant, user, name] = deque(runs, maxlen=RUNS_KEPT)
        self._gain.clear()


def _misfit(exponent: float, seen: Iterable[Stints]) -> float:
    """How badly the works of some runs agree, and how far from the assumption that is."""
    works = [log(sum(nodes**exponent * ran_s for nodes, ran_s in stints)) for stints in seen]
    middle = sorted(works)[len(works) // 2]
    apart = sum(abs(work - middle) for work in works) / _NOISE
    return apart + ((exponent - _ASSUMED) / _SPREAD) ** 2


def with_stint(stints: Stints, nodes: int, ran_s: float) -> Stints:
    """One more run; those on as many nodes are one."""
    if ran_s <= 0:
        return stints
    by_nodes = dict(stints)
    by_nodes[nodes] = by_nodes.get(nodes, 0.0) + ran_s
    return tuple(sorted(by_nodes.items()))
