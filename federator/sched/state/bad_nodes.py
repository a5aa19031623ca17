"""Nodes that a workload avoids because they failed it: each for a while, longer each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from federator.model.mappings import NOTHING
from federator.model.workload import SiteName

AVOID_NODE_S: Final = 300.0
AVOID_NODE_MAX_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class _Failure:
    times: int
    until_s: float


@dataclass(frozen=True, slots=True)
class BadNodes:
    """The nodes that failed one workload, and until when it avoids each; none at first.

    A node that is broken takes no jobs anyhow; this is for one that is back and fails again.
    """

    _failed: Mapping[tuple[SiteName, str], _Failure] = field(default_factory=lambda: NOTHING)

    def __bool__(self) -> bool:
        return bool(self._failed)

    @classmethod
    def restored(cls, rows: Iterable[tuple[SiteName, str, int, float]]) -> BadNodes:
        """Those that ``saved`` was called on."""
        found = {(site, name): _Failure(n, until_s) for site, name, n, until_s in rows}
        return cls(found) if found else NO_BAD_NODES

    def saved(self) -> Iterator[tuple[SiteName, str, int, float]]:
        """Site, node, how often it failed in a row and until when it is avoided, for each."""
        return ((*at, f.times, f.until_s) for at, f in self._failed.items())

    def blamed(self, site: SiteName, nodes: Iterable[str], at_s: float) -> BadNodes:
        """The same, and these are avoided from now on, each for twice as long as before."""
        failed = dict(self._failed)
        for name in nodes:
            known = failed.get((site, name))
            times = known.times + 1 if known is not None else 1
            for_s = min(AVOID_NODE_MAX_S, AVOID_NODE_S * 2 ** min(times - 1, 32))
            failed[site, name] = _Failure(times, at_s + for_s)
        return BadNodes(failed)

    def after_run(self, site: SiteName, nodes: Iterable[str], at_s: float) -> BadNodes:
        """The same after a run on these until something else ended it: they are forgotten.

        Those that are avoided now are what ended it.
        """
        ran = {(site, name) for name in nodes}
        left = {
            at: failure
            for at, failure in self._failed.items()
            if at not in ran or failure.until_s > at_s
        }
        return BadNodes(left) if left else NO_BAD_NODES

    def avoided(self, site: SiteName, now_s: float) -> tuple[str, ...]:
        """The nodes of a site that are avoided now, sorted."""
        found = (n for (s, n), f in self._failed.items() if s == site and f.until_s > now_s)
        return tuple(sorted(found))

    def ends_s(self) -> Iterator[float]:
        """The times at which each of them will be, or was, tried again."""
        return (failure.until_s for failure in self._failed.values())


NO_BAD_NODES: Final = BadNodes()
