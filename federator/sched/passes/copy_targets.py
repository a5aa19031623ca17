"""Chooses the sites, in other regions, to which checkpoints are copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Final

from federator.model.dataset import DataSet
from federator.model.lifecycle import AT_SITE
from federator.model.resources import PLAIN
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.availability import takes_work
from federator.sched.passes.data_copies import ASSUMED_KIB_PER_S, SETUP_S
from federator.sched.passes.data_places import has_data
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.staging import is_worth_it
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

START_S: Final = SETUP_S  # that a copy takes, however small it is
_GPUS: Final = PLAIN.index("gpus")


@dataclass(frozen=True, kw_only=True)
class CopyTargets:
    """The sites that could go on with a workload, as they are at one moment.

    Nothing is kept of it: ``free_gpus`` would be wrong a moment later.
    """

    sites: Mapping[SiteName, SiteView]
    rules: Rules
    ledger: Ledger  # knows what is held, who waits, and which sites are drained
    now_s: float  # Unix time
    starts: Mapping[WorkloadId, float]  # as of ``StartsEstimated``

    @cached_property
    def free_gpus(self) -> Mapping[SiteName, int]:
        """The GPUs of each site that no workload of the federation holds."""
        held = Counter[SiteName]()
        for entry in self.ledger.in_state(*AT_SITE):
            held[entry.site] += 0 if entry.charge is None else entry.charge.amounts[_GPUS]
        return {site: view.gpus - held[site] for site, view in self.sites.items()}

    def choose(
        self, entry: WorkloadRecord, of: DataSet, since_s: float, near: SiteName
    ) -> SiteName | None:
        """The site for which a workload's checkpoint is copied; None: it is not, or not yet.

        While a site of its own region could run the workload, ``is_worth_it`` decides. Else it is
        copied at once.

        Args:
            entry: of a workload that waits.
            of: its checkpoint.
            since_s: Unix time since when it is known to wait with one.
            near: a site of the region to which one was copied before, which is chosen again if it
                has room; "": none was.
        """
        lane = self.ledger.backlog.lane_of(entry.workload)
        if lane is None:
            return None
        if lane.refusal_of((entry.ranks_since_s, entry.workload.id)) is not None:
            return None  # no site could do anything about it
        home_s = self._home_s(entry)
        if not is_worth_it(self._copy_s(of), self.now_s - since_s, home_s):
            return None
        free, asked = self.free_gpus, lane.shape.request[_GPUS]
        could = [
            site
            for site in self.elsewhere(entry, entry.saved_at)
            if free[site] >= asked and entry.avoid_until_s.get(site, 0.0) <= self.now_s
        ]
        return self._best(could, near)

    def ahead(self, entry: WorkloadRecord, near: SiteName) -> SiteName | None:
        """The site at which one that runs would go on if it had to leave; None: in its own region.

        Also None: nowhere are as many GPUs free as it holds. ``near``: as of ``choose``.
        """
        free, needs = self.free_gpus, entry.held_gpus
        could = [
            site
            for site in self.sites
            if free[site] >= needs and self._could_run(entry, site)
            if entry.avoid_until_s.get(site, 0.0) <= self.now_s
        ]
        if any(self.rules.reaches(site, entry.site) for site in could):
            return None
        return self._best(could, near)

    def _best(self, could: Sequence[SiteName], near: SiteName) -> SiteName | None:
        """That with the most GPUs free, of the region where a copy is, if any is there."""
        free, reaches = self.free_gpus, self.rules.reaches
        return max(could, key=lambda site: (reaches(site, near), free[site]), default=None)

    def elsewhere(self, entry: WorkloadRecord, saved_at: SiteName) -> list[SiteName]:
        """The sites of other regions that could run a workload, as far as is known."""
        return [
            site
            for site in self.sites
            if not self.rules.reaches(site, saved_at) and self._could_run(entry, site)
        ]

    def takes_work(self, site: SiteName) -> bool:
        """Whether a site is one of the federation, and takes work now."""
        return site in self.sites and takes_work(site, self.sites[site], self.ledger)

    def _could_go_on_here(self, entry: WorkloadRecord) -> bool:
        return any(
            self.rules.reaches(site, entry.saved_at) and self._could_run(entry, site)
            for site in self.sites
        )

    def _home_s(self, entry: WorkloadRecord) -> float | None:
        """Seconds until it is likely to go on in its region; inf: nothing there could ever run it.

        None: nobody knows.
        """
        if not self._could_go_on_here(entry):
            return inf
        start_s = self.starts.get(entry.workload.id, 0.0)
        return start_s - self.now_s if start_s > self.now_s else None

    def _could_run(self, entry: WorkloadRecord, site: SiteName) -> bool:
        view = self.sites[site]
        if not self.takes_work(site) or view.knows.get(entry.workload.user) is False:
            return False
        fits = view.never_fits(entry.workload.jobs) is None and not entry.is_refused_by(site)
        return fits and has_data(self.ledger, entry.workload, site)

    def _copy_s(self, of: DataSet) -> float:
        kib_per_s = self.rules.staging.checkpoint_kib_per_s or ASSUMED_KIB_PER_S
        return START_S + of.size_bytes / 1024 / kib_per_s
