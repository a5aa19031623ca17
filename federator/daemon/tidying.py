"""Tells a site of each region which checkpoint folders are of no more use.

Empty ones are as soon as their workload has ended; others once nothing has been written to them
for ``keep_saved_h`` of their region. A workload that the sites have lost may run all the same: its
folder is only ever too old. What no site could be told is told when one is heard again, and all of
it once more after a restart; an order that comes twice finds nothing left to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from federator.config import FederationConfig
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.reason import ReasonCode
from federator.model.workload import SiteName, WorkloadId
from federator.sched.ledger import Entry, Ledger
from federator.sites.protocol import TidyOrder

LOOK_EVERY_S: Final = 60.0
OLD_EVERY_S: Final = 86_400.0
OLD_FIRST_S: Final = 3600.0  # after the start: by then the sites have told what lives


class TidyNews:
    """What is due to be removed, by site.

    Args:
        config: regions, sites and how long they keep what was saved.
        ledger: which workloads have ended, and which live.
        ready: whether a site is heard.
        now_s: Unix time of the start.
    """

    def __init__(
        self,
        config: FederationConfig,
        ledger: Ledger,
        ready: Callable[[SiteName], bool],
        now_s: float,
    ) -> None:
        self._ledger = ledger
        self._ready = ready
        self._regions = {
            str(region.shared): [n for n, site in config.sites.items() if site.region == name]
            for name, region in config.regions.items()
        }
        self._keep_s = {
            str(region.shared): region.keep_saved_h * 3600.0 for region in config.regions.values()
        }
        self._told: dict[str, set[WorkloadId]] = {shared: set() for shared in self._regions}
        self._old_due_s = dict.fromkeys(self._regions, now_s + OLD_FIRST_S)
        self.next_s = now_s + LOOK_EVERY_S

    def due(self, now_s: float) -> Iterator[tuple[SiteName, TidyOrder]]:
        """Yield the orders of now, each with the site that is to carry it out."""
        if now_s < self.next_s:
            return
        self.next_s = now_s + LOOK_EVERY_S
        ended = {e.workload.id: e.workload.user for e in _ended(self._ledger)}
        for shared, sites in self._regions.items():
            site = next(filter(self._ready, sites), None)
            if site is None:
                continue
            fresh = ended.keys() - self._told[shared]
            is_old_due = self._keep_s[shared] > 0 and now_s >= self._old_due_s[shared]
            if not fresh and not is_old_due:
                continue
            self._told[shared] = set(ended)
            before_s = 0.0
            if is_old_due:
                self._old_due_s[shared] = now_s + OLD_EVERY_S
                before_s = now_s - self._keep_s[shared]
            yield (
                site,
                TidyOrder(
                    shared=shared,
                    ended=_by_user((ended[id_], id_) for id_ in fresh),
                    live=self._live(),
                    below=int(self._ledger.next_id),
                    before_s=before_s,
                ),
            )

    def _live(self) -> dict[str, tuple[int, ...]]:
        states = (state for state in WorkloadState if state not in TERMINAL)
        entries = self._ledger.in_state(*states)
        return _by_user((e.workload.user, e.workload.id) for e in entries)


def _ended(ledger: Ledger) -> Iterator[Entry]:
    """What was at a site and has ended for certain."""
    for entry in ledger.in_state(*TERMINAL):
        is_lost = entry.reason is not None and entry.reason.code is ReasonCode.LOST
        if entry.attempt and not is_lost:
            yield entry


def _by_user(pairs: Iterable[tuple[str, WorkloadId]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = defaultdict(list)
    for user, id_ in pairs:
        found[user].append(int(id_))
    return {user: tuple(sorted(ids)) for user, ids in found.items()}
