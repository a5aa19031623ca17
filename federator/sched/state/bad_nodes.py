"""Nodes that a workload avoids because they failed it: each for a while, longer each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from federator.model.workload import SiteName

AVOID_NODE_S: Final = 300.0
AVOID_NODE_MAX_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class _Failure:
    times: int
    until_s: float


@dataclass(slots=True)
class BadNodes:
    """The nodes that failed one workload, and until when it avoids each; none at first.

    A node that is broken takes no jobs anyhow; this is for one that is back and fails again.
    """

    _failed: dict[tuple[SiteName, str], _Failure] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._failed)

    @classmethod
    def restored(cls, rows: Iterable[tuple[SiteName, str, int, float]]) -> BadNodes:
        """Those that ``saved`` was called on."""
        return cls({(site, name): _Failure(n, until_s) for site, name, n, until_s in rows})

    def saved(self) -> Iterator[tuple[SiteName, str, int, float]]:
        """Site, node, how often it failed in a row and until when it is avoided, for each."""
        return ((*at, f.times, f.until_s) for at, f in self._failed.items())

    def blame(self, site: SiteName, nodes: Iterable[str], at_s: float) -> None:
        """Avoid these from now on, each for twice as long as the time before."""
        for name in nodes:
            known = self._failed.get((site, name))
            times = known.times + 1 if known is not None else 1
            for_s = min(AVOID_NODE_MAX_S, AVOID_NODE_S * 2 ** min(times - 1, 32))
            self._failed[site, name] = _Failure(times, at_s + for_s)

    def ran_well(self, site: SiteName, nodes: Iterable[str], at_s: float) -> None:
        """The workload ran on these until something else ended it: what was before is forgotten.

        Those that are avoided now are what ended it.
        """
        for name in nodes:
            known = self._failed.get((site, name))
            if known is not None and known.until_s <= at_s:
                del self._failed[site, name]

    def avoided(self, site: SiteName, now_s: float) -> tuple[str, ...]:
        """The nodes of a site that are avoided now, sorted."""
        found = (n for (s, n), f in self._failed.items() if s == site and f.until_s > now_s)
        return tuple(sorted(found))

    def ends_s(self) -> Iterator[float]:
        """The times at which each of them will be, or was, tried again."""
        return (failure.until_s for failure in self._failed.values())
