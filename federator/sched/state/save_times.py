"""Save times: how long workloads of a kind take to save once notified, learned from the log.

A *family* is what is submitted again and again: same tenant, user and name.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from math import floor, inf, isfinite
from typing import Final

from federator.model.site import Leave
from federator.model.workload import TenantName, Workload

SAVES_KEPT: Final = 40  # of a family, the latest
FAMILIES_KEPT: Final = 10_000
_QUANTILE: Final = 0.95

Family = tuple[TenantName, str, str]


def family_of(workload: Workload) -> Family:
    return (workload.tenant, workload.user, workload.name)


class SaveTimes:
    """The save times of each family, as seen."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Family, deque[float]] = OrderedDict()  # latest family last
        self._p95_s: dict[Family, float] = {}  # of those asked for since they last saved
        self.version = 0  # changes with whatever is learned

    def saved(self) -> Iterator[tuple[TenantName, str, str, tuple[float, ...]]]:
        """Every family with its save times, the one that saved last at the end."""
        return ((*family, tuple(seen)) for family, seen in self._seen.items())

    def restore(self, families: Iterable[tuple[TenantName, str, str, tuple[float, ...]]]) -> None:
        """Know these as well, as ``saved`` told them."""
        self.version += 1
        for tenant, user, name, times in families:
            self._seen[tenant, user, name] = deque(times, maxlen=SAVES_KEPT)
        self._p95_s.clear()

    def learn(self, family: Family, leave: Leave, started_at_s: float, most_s: float = inf) -> None:
        """Take in how one of a family has left, that started then; no save took longer than that.

        One that had to be killed though it has made checkpoints was too slow, nobody knows by how
        much. One that makes none says nothing: refusing to save must not protect anybody.
        """
        if leave.saved:
            took_s = min(leave.saved_at_s - leave.told_at_s, most_s)
        elif leave.forced and leave.saved_at_s > started_at_s:
            took_s = inf
        else:
            return
        self.version += 1
        seen = self._seen.setdefault(family, deque(maxlen=SAVES_KEPT))
        self._seen.move_to_end(family)
        seen.append(took_s)
        self._p95_s.pop(family, None)
        if len(self._seen) > FAMILIES_KEPT:
            self._p95_s.pop(self._seen.popitem(last=False)[0], None)

    def p95_s(self, family: Family) -> float | None:
        """The time that some 95 % of the family's saves did not exceed; None: none seen.

        Of a few the largest is left out, so that one odd save decides nothing.

        Returns:
            Seconds >= 0; ``inf`` where a save was cut off by the end of the grace.
        """
        known_s = self._p95_s.get(family)
        if known_s is None and (seen := self._seen.get(family)):
            known_s = sorted(seen)[floor(_QUANTILE * (len(seen) - 1))]
            self._p95_s[family] = known_s
        return known_s

    def known_s(self, family: Family) -> float:
        """As ``p95_s``; 0 where no save was seen to its end."""
        known_s = self.p95_s(family)
        return known_s if known_s is not None and isfinite(known_s) else 0.0

    def seen(self, family: Family) -> int:
        """The number of saves of the family that are remembered."""
        return len(self._seen.get(family, ()))

    def in_time(self, family: Family, grace_s: float) -> bool:
        """Tell whether one of the family can be expected to save within the grace."""
        known_s = self.p95_s(family)
        return known_s is None or known_s <= grace_s
