"""Says in which regions a workload with data sets could run, and in which it has run.

A region is a candidate if one of its sites could hold the jobs while it is empty, and all data
sets are there, or would be copied there by ``data.stage``. Whatever changes by the minute is left
out: free nodes, drains, sites that are not heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from federator.model.data_use import DataUse
from federator.model.workload import Job, SiteName
from federator.sched.passes.site_view import SiteView, never_fits
from federator.sched.passes.staging import StagingBid, staging_bid
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.rules import Rules
from federator.sched.state.workload_record import WorkloadRecord


class DataNearness(Enum):
    """How near a workload's data sets are to a region that could hold it; the nearest first."""

    THERE = "there"  # all of them
    COPY = "copy"  # those that lack would be copied there for it: ``data.stage``
    ASK = "ask"  # they could be copied there, if somebody asks
    NONE = "none"  # they cannot be had there

    @property
    def is_candidate(self) -> bool:
        return self in (DataNearness.THERE, DataNearness.COPY)


class DataRegion(NamedTuple):
    """A region that could hold a workload: its nearest sites, and what there is to copy."""

    name: str
    data: DataNearness
    sites: tuple[SiteName, ...]
    bytes_to_move: int = 0
    staging_s: float = 0.0  # that takes so many seconds


def data_regions(
    jobs: tuple[Job, ...],
    uses: tuple[DataUse, ...],
    sites: Mapping[SiteName, SiteView],
    rules: Rules,
    catalogue: Catalogue,
) -> tuple[DataRegion, ...]:
    """The regions that could hold these jobs, candidates or not, in the order of the sites.

    Args:
        jobs: of the workload.
        uses: its data sets, and room for its output; at least one.
        sites: as they last were.
        rules: have the regions of sites, and say what is copied.
        catalogue: says where data is.
    """
    having = catalogue.sites_of(uses)
    found: dict[str, DataRegion] = {}
    for site in sites:
        if site in rules.shadow or never_fits(sites, site, jobs) is not None:
            continue
        name = rules.regions.get(site, "")
        if site in having:
            here = DataRegion(name, DataNearness.THERE, (site,))
        else:
            here = _at(site, name, rules, staging_bid(catalogue, uses, site))
        known = found.get(name)
        if known is not None and known.data is here.data:
            found[name] = known._replace(sites=(*known.sites, site))
        elif known is None or _ORDER.index(here.data) < _ORDER.index(known.data):
            found[name] = here
    return tuple(found.values())


_ORDER = tuple(DataNearness)


def _at(site: SiteName, region: str, rules: Rules, bid: StagingBid | None) -> DataRegion:
    """What staging would take at one site that could hold the jobs."""
    if bid is None:
        return DataRegion(region, DataNearness.NONE, (site,))
    fits = bid.largest_bytes <= rules.staging.most_bytes
    word = DataNearness.COPY if rules.staging.auto and fits else DataNearness.ASK
    return DataRegion(region, word, (site,), bid.bytes_to_move, bid.staging_s)


def ran_in(entry: WorkloadRecord, regions: Mapping[SiteName, str]) -> tuple[str, ...]:
    """The regions in which a workload has run, the latest last."""
    sites = (*entry.ran_before_at, entry.ran_at)
    return tuple(dict.fromkeys(regions.get(site, "") for site in sites if site))
