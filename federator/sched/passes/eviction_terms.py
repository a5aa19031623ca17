"""Keeps on which terms each running workload may be evicted, and renews what a change concerns.

The result is that of ``eviction.victim_terms``, which works out all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import le

from federator.model.lifecycle import WorkloadState
from federator.model.site import VictimTerms
from federator.model.tenant import LOWEST_PRIORITY, Tenancy
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.continuation import is_near_its_limit
from federator.sched.passes.eviction import terms_of
from federator.sched.queue.quota_status import statuses_of
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

Terms = Mapping[WorkloadId, VictimTerms]
_NO_TERMS: Terms = {}


class EvictionTerms:
    """The terms of all that run, by site; a site's mapping is replaced when one of them changes.

    A change of one workload concerns the standing of its tenant's family; as long as all of a
    family are within quota together, it concerns nobody else.

    Args:
        ledger: read; from the first ``renew`` on watched for changes.
        rules: see ``Rules``.

    Attributes:
        by_id: the terms of every workload that may be evicted, as of the last ``renew``.
    """

    def __init__(self, ledger: Ledger, rules: Rules) -> None:
        self._ledger = ledger
        self._rules = rules
        self._changed: set[WorkloadId] | None = None
        self._members: dict[int, dict[WorkloadId, None]] = {}  # at sites, by family
        self._family_of: dict[WorkloadId, int] = {}
        self._all_within: set[int] = set()  # families
        self.by_id: dict[WorkloadId, VictimTerms] = {}
        self._site_of: dict[WorkloadId, SiteName] = {}  # of those
        self._by_site: dict[SiteName, dict[WorkloadId, VictimTerms]] = {}
        self._continuing: dict[WorkloadId, None] = {}  # those that their time limit may call away
        self._saves_version = ledger.saves.version

    def close(self) -> None:
        """Watch the ledger no more."""
        if self._changed is not None:
            self._ledger.watches.close(self._changed)

    def at(self, site: SiteName) -> Terms:
        """The terms of all that may be evicted at a site; the same object while none changes."""
        return self._by_site.get(site, _NO_TERMS)

    def just_started(self) -> list[WorkloadRecord]:
        """Those that run, and did not when the terms were renewed last."""
        known = (self._ledger.entries.get(id_) for id_ in self._changed or ())
        running = (e for e in known if e is not None and e.state is WorkloadState.RUNNING)
        return [entry for entry in running if entry.workload.id not in self.by_id]

    def renew(self, now_s: float) -> None:
        """Take in what has changed since the last time."""
        if self._changed is None:
            self._changed = self._ledger.watches.open()
        changed = list(self._changed)
        self._changed.clear()
        stale: dict[int, set[WorkloadId]] = {}
        for id_ in changed:
            family = self._settle(id_)
            if family is not None:
                stale.setdefault(family, set()).add(id_)
        if self._saves_version != self._ledger.saves.version:
            self._saves_version = self._ledger.saves.version
            for family, members in self._members.items():
                stale.setdefault(family, set()).update(members)
        near = [id_ for id_ in self._continuing if id_ in self.by_id and self._is_near(id_, now_s)]
        renewed = dict.fromkeys(near, LOWEST_PRIORITY)
        for family, ids in stale.items():
            renewed.update(self._standings(family, ids))
        self._put(renewed, now_s)

    def _settle(self, id_: WorkloadId) -> int | None:
        """Note whether a workload is at a site; its family, if it is or was."""
        entry = self._ledger.entries.get(id_)
        if entry is None or entry.charge is None:
            family = self._family_of.pop(id_, None)
            if family is not None:
                del self._members[family][id_]
                self._continuing.pop(id_, None)
            return family
        family = self._family_of.get(id_)
        if family is None:
            family = self._ledger.tenancy.family(entry.charge.row)
            self._family_of[id_] = family
            self._members.setdefault(family, {})[id_] = None
            if entry.workload.continues:
                self._continuing[id_] = None
        return family

    def _standings(
        self, family: int, changed: Iterable[WorkloadId]
    ) -> Iterator[tuple[WorkloadId, int]]:
        """Those of a family whose terms may be others now, with the priority they run at."""
        tenancy, entries = self._ledger.tenancy, self._ledger.entries
        members = self._members.get(family, {})
        if not self._fit_together(members, tenancy):
            self._all_within.discard(family)
            found = statuses_of((entries[id_] for id_ in members), tenancy)
            for id_ in changed:
                yield id_, found[id_].priority if id_ in found else LOWEST_PRIORITY
            for id_, status in found.items():
                known = self.by_id.get(id_)
                if known is not None and known.priority != status.priority:
                    yield id_, status.priority
            return
        others = () if family in self._all_within else members
        self._all_within.add(family)
        for id_ in {*changed, *others}:
            entry = entries.get(id_)
            yield id_, LOWEST_PRIORITY if entry is None else tenancy.level(entry.workload)

    def _fit_together(self, members: Iterable[WorkloadId], tenancy: Tenancy) -> bool:
        """Tell whether all of a family are within quota, whatever their order."""
        rows = {charge.row for id_ in members if (charge := self._ledger.entries[id_].charge)}
        bounds = {row: tenancy.quota_rows(row) for row in rows}
        if not all(bounds.values()):
            return False
        used = self._ledger.holdings.used
        return all(
            all(map(le, used(at), tenancy.quotas[at] or ()))
            for quota_rows in bounds.values()
            for at in quota_rows
        )

    def _is_near(self, id_: WorkloadId, now_s: float) -> bool:
        return is_near_its_limit(self._ledger.entries[id_], self._rules, now_s)

    def _put(self, renewed: Mapping[WorkloadId, int], now_s: float) -> None:
        copied: set[SiteName] = set()
        for id_, priority in renewed.items():
            entry = self._ledger.entries.get(id_)
            known = self.by_id.get(id_)
            terms = None if entry is None else self._terms(entry, priority, now_s)
            stays = entry is not None and self._site_of.get(id_) == entry.site
            if known is not None and known == terms and stays:
                continue
            if known is not None:
                del self.by_id[id_]
                del self._of_site(self._site_of.pop(id_), copied)[id_]
            if terms is not None and entry is not None:
                self.by_id[id_], self._site_of[id_] = terms, entry.site
                self._of_site(entry.site, copied)[id_] = terms

    def _of_site(self, site: SiteName, copied: set[SiteName]) -> dict[WorkloadId, VictimTerms]:
        """A mapping that nobody has been given yet."""
        if site not in copied:
            copied.add(site)
            self._by_site[site] = dict(self._by_site.get(site, {}))
        return self._by_site[site]

    def _terms(self, entry: WorkloadRecord, priority: int, now_s: float) -> VictimTerms | None:
        charge = entry.charge
        may_go = (
            entry.state is WorkloadState.RUNNING
            and entry.workload.preemptible
            and not is_near_its_limit(entry, self._rules, now_s)
        )
        if charge is None or not may_go:
            return None
        if not self._ledger.tenancy.is_home(charge.row, entry.site):
            priority = LOWEST_PRIORITY
        return terms_of(entry, priority, self._ledger, self._rules)
