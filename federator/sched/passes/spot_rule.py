"""Keeps workloads that spot interrupted too often at other partitions, where they have any.

What a workload could have instead is found once in a round, for all sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from federator.model.workload import Job, SiteName
from federator.sched.passes.availability import takes_work
from federator.sched.passes.data_places import has_data
from federator.sched.passes.eviction import checkpoint_in_reach
from federator.sched.passes.site_view import SiteView, never_fits
from federator.sched.passes.tariff import Tariff
from federator.sched.queue.guests import Guests
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

Partitions = tuple[tuple[str, ...], ...]
"""Those that are left to each job."""


class SpotRule:
    """The rule, in one pass.

    Args:
        tariff: knows the tiers, and who takes no spot.
        ledger: knows where data sets are, and which sites take work.
        rules: see ``Rules``.
        guests: which work over quota may start, and where.
    """

    def __init__(self, tariff: Tariff, ledger: Ledger, rules: Rules, guests: Guests) -> None:
        self._tariff = tariff
        self._ledger = ledger
        self._rules = rules
        self._guests = guests
        self._found: dict[int, Mapping[SiteName, Partitions]] = {}  # of the present round

    def begin_round(self) -> None:
        """Sites may be others."""
        self._found.clear()

    def jobs_at(
        self,
        entry: WorkloadRecord,
        jobs: tuple[Job, ...],
        site: SiteName,
        sites: Mapping[SiteName, SiteView],
        now_s: float,
    ) -> tuple[Job, ...] | None:
        """The jobs as a site is asked about them: for other partitions than those of spot.

        None: it has none for them. One that could start nowhere else takes spot all the same: the
        same object then.

        Args:
            entry: of the workload.
            jobs: of it, as the site would be asked about them.
            site: that is asked.
            sites: all, as they last were.
            now_s: Unix time.
        """
        if not self._tariff.avoids_spot_until_s(entry, now_s):
            return jobs
        id_ = entry.workload.id
        if id_ not in self._found:
            self._found[id_] = self._others(entry, sites, now_s)
        others = self._found[id_]
        if not others:
            return jobs
        return _on(jobs, others[site]) if site in others else None

    def _others(
        self, entry: WorkloadRecord, sites: Mapping[SiteName, SiteView], now_s: float
    ) -> Mapping[SiteName, Partitions]:
        """The partitions where a workload could run, by site, without those of spot."""
        jobs = entry.workload.jobs
        found = {}
        for site, view in sites.items():
            if not self._may_start(entry, site, view):
                continue
            left = self._tariff.without_spot(jobs, site, view.partitions, now_s)
            if left is not None and never_fits(sites, site, _on(jobs, left)) is None:
                found[site] = left
        return found

    def _may_start(self, entry: WorkloadRecord, site: SiteName, view: SiteView) -> bool:
        """Tell whether a site may be asked about a workload at all."""
        workload, tenancy = entry.workload, self._ledger.tenancy
        home = tenancy.home(tenancy.row(workload.tenant))
        roams = not home or workload.preemptible or not self._guests.keeps_firm_work_home
        return (
            takes_work(site, view, self._ledger)
            and (roams or site in home)
            and has_data(self._ledger, workload, site)
            and checkpoint_in_reach(entry, site, self._rules)
        )


def _on(jobs: tuple[Job, ...], partitions: Partitions) -> tuple[Job, ...]:
    pairs = zip(jobs, partitions, strict=True)
    return tuple(replace(job, partitions=names) for job, names in pairs)
