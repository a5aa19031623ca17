"""Keeps when each running workload is predicted to be over, for the reservations of sites.

A prediction is made at the start, again whenever the run has taken twice as long, and again when it
has outlived it. So each run costs a few predictions, and a pass only what has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

from federator.model.lifecycle import WorkloadState
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord

AGAIN_S: Final = 600.0
"""At the least between two predictions of a run, unless it has outlived the first."""

_LEAST_S: Final = 60.0  # between two in any case
_NO_ENDS: Mapping[WorkloadId, float] = {}


class PredictedEnds:
    """The predicted ends of all that run, by site; a site's mapping is replaced when one changes.

    Left out are those that end by their time limit before, and those of whose like too little is
    known. By nine of ten of these times the run is over (``DurationModel``).

    Args:
        ledger: read; from the first ``renew`` on watched for changes.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed: set[WorkloadId] | None = None
        self._site_of: dict[WorkloadId, SiteName] = {}
        self._by_site: dict[SiteName, dict[WorkloadId, float]] = {}
        self._due: list[tuple[float, WorkloadId, int]] = []  # when, whose attempt

    def close(self) -> None:
        """Watch the ledger no more."""
        if self._changed is not None:
            self._ledger.watches.close(self._changed)

    def at(self, site: SiteName) -> Mapping[WorkloadId, float]:
        """Unix times for those that run at a site; the same object while none changes."""
        return self._by_site.get(site, _NO_ENDS)

    def renew(self, now_s: float) -> None:
        """Take in what has started or ended since the last time, and predict what is due."""
        if self._changed is None:
            self._changed = self._ledger.watches.open()
        due = dict.fromkeys(self._changed)
        self._changed.clear()
        while self._due and self._due[0][0] <= now_s:
            _, id_, attempt = heappop(self._due)
            entry = self._ledger.entries.get(id_)
            if entry is not None and entry.attempt == attempt:
                due[id_] = None
        copied: set[SiteName] = set()
        for id_ in due:
            before = self._site_of.pop(id_, None)
            if before is not None:
                del self._of_site(before, copied)[id_]
            entry = self._ledger.entries.get(id_)
            if entry is not None and entry.state is WorkloadState.RUNNING:
                self._predict(entry, now_s, copied)

    def _predict(self, entry: WorkloadRecord, now_s: float, copied: set[SiteName]) -> None:
        id_ = entry.workload.id
        found = self._ledger.durations.remaining(entry, now_s)
        again_s = now_s + max(AGAIN_S, now_s - entry.started_at_s)
        if found is not None:
            end_s = now_s + found.q90_s
            again_s = max(now_s + _LEAST_S, min(again_s, end_s))
            if end_s < entry.started_at_s + entry.workload.time_limit_s:
                self._of_site(entry.site, copied)[id_] = end_s
                self._site_of[id_] = entry.site
        heappush(self._due, (again_s, id_, entry.attempt))

    def _of_site(self, site: SiteName, copied: set[SiteName]) -> dict[WorkloadId, float]:
        """A mapping that nobody has been given yet."""
        if site not in copied:
            copied.add(site)
            self._by_site[site] = dict(self._by_site.get(site, {}))
        return self._by_site[site]
