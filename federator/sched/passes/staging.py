"""Has data sets copied for jobs that wait: to which site, and whether that is better than to wait.

A site without the data is asked for no bid. It has a staging bid here instead: what is to be copied
to it, and how long that takes. ``is_worth_it`` weighs that against the start where the data is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from federator.model.data_use import DataUse
from federator.model.dataset import CopyPhase, DataCopy, DataReplica, ReplicaState
from federator.model.event import DataSetKept
from federator.model.lifecycle import AT_SITE
from federator.model.resources import PLAIN
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.availability import takes_work
from federator.sched.passes.data_copies import (
    bytes_to_copy,
    copy_refusal,
    copy_s,
    source_of,
    turn_s,
    used_bytes,
    with_copy,
)
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.backlog import Lane
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.rules import Staging

PATIENCE: Final = 2.0  # times the copy's time, that an estimate which promises less is believed
_GPUS: Final = PLAIN.index("gpus")


def is_worth_it(staging_s: float, waited_s: float, home_s: float | None) -> bool:
    """Whether to copy a job's data to another site, rather than to wait for one that has it.

    A copy only adds a place: the job starts wherever it can first. So this weighs time against
    bytes that are copied in vain.

    - With an estimate of the start where the data is, the sooner of the two is chosen. An estimate
      that goes on promising a start within the copy's time is believed for ``PATIENCE`` times that.
    - Without one the job waits for as long as the copy takes: so it waits no more than twice as
      long as it would if the start had been known, and as few are copied in vain.

    Args:
        staging_s: until the data is there, and the job could start at once.
        waited_s: that the job has waited.
        home_s: until its likely start where the data is; inf: none of these sites could ever run
            it; None: nothing is known.
    """
    if home_s is None:
        return waited_s >= staging_s
    return home_s > staging_s or waited_s >= PATIENCE * staging_s


class StagingBid(NamedTuple):
    """What it takes that a job could start at a site where its data is not.

    ``staging_s``: in seconds, the copies ahead included.
    """

    copies: tuple[tuple[DataUse, str], ...]  # each with the storage domain that it goes to
    bytes_to_move: int
    staging_s: float
    largest_bytes: int = 0  # of the data sets to copy

    def is_begun(self, catalogue: Catalogue) -> bool:
        """Whether any of the copies is under way, or waits for another try."""
        replicas = [
            of.replica_in(domain)
            for use, domain in self.copies
            if (of := catalogue.find(use.name, use.version)) is not None
        ]
        return any(replica is not None and replica.copy is not None for replica in replicas)


def staging_bid(
    catalogue: Catalogue, uses: tuple[DataUse, ...], site: SiteName
) -> StagingBid | None:
    """What it takes to have all of these data sets at a site; None: that cannot be had."""
    copies, moved, took_s, wait_s, largest = [], 0, 0.0, 0.0, 0
    for use in catalogue.lacking(uses, site):
        of = catalogue.find(use.name, use.version)
        domain = next((n for n, d in catalogue.domains.items() if site in d.mounts), None)
        if of is None or domain is None or use.write or not of.size_bytes or not use.may_have(of):
            return None
        if copy_refusal(of, domain, catalogue.domains, used_bytes(catalogue, domain)):
            return None
        copies.append((use, domain))
        moved += bytes_to_copy(of, domain)
        largest = max(largest, of.size_bytes)
        took_s += copy_s(catalogue, of, domain)
        wait_s = max(wait_s, turn_s(catalogue, of, domain))
    return StagingBid(tuple(copies), moved, wait_s + took_s, largest)


def _is_for_jobs(replica: DataReplica) -> bool:
    """Whether its copy is under way, and nobody asked for it; one that has failed keeps no room."""
    copy = replica.copy
    if copy is None or copy.by or copy.planned:
        return False
    return copy.phase is not CopyPhase.FAILED


class JobStaging:
    """The copies that a pass asks for.

    Args:
        turn: takes them.
        sites: as they last were.
        staging: whether, and how many.
        starts: when a workload is likely to start where its data is, in Unix time, by its id.
    """

    def __init__(
        self,
        turn: Transaction,
        sites: Mapping[SiteName, SiteView],
        staging: Staging,
        starts: Mapping[WorkloadId, float],
    ) -> None:
        self._turn = turn
        self._sites = sites
        self._staging = staging
        self._starts = starts

    def ask(self) -> None:
        """Have data sets copied for those that wait, if that may be done by itself."""
        if not self._staging.auto:
            return
        ledger, catalogue = self._turn.ledger, self._turn.ledger.catalogue
        lanes = [lane for lane in ledger.backlog.with_data() if len(lane)]
        if not lanes:
            return
        held_gpus = Counter[SiteName]()
        for entry in ledger.in_state(*AT_SITE):
            held_gpus[entry.site] += 0 if entry.charge is None else entry.charge.amounts[_GPUS]
        under_way = sum(_is_for_jobs(replica) for _, replica in catalogue.copies())
        for lane in lanes:
            if under_way >= self._staging.at_once:
                return
            bid = self._best(lane, held_gpus)
            under_way += self._begin(bid) if bid is not None else 0

    def _begin(self, bid: StagingBid) -> int:
        """Ask for the copies of a bid; return how many were not under way before."""
        catalogue, now_s = self._turn.ledger.catalogue, self._turn.now_s
        began = 0
        for use, domain in bid.copies:
            of = catalogue.find(use.name, use.version)
            source = None if of is None else source_of(of, domain, catalogue.domains)
            if of is None or source is None or catalogue.in_the_way(of, domain, source.path):
                continue
            after = with_copy(of, domain, source.path, DataCopy(by="", asked_at_s=now_s))
            if after != of:
                self._turn.record(DataSetKept(at_s=now_s, kept=after))
                began += 1
                there = after.replica_in(domain)
                if there is not None and there.state is ReplicaState.READY:  # taken back
                    self._turn.pass_is_due(self._turn)
        return began

    def _best(self, lane: Lane, held_gpus: Counter[SiteName]) -> StagingBid | None:
        """The bid for the first of a lane that is worth it, by time and then by room; or none."""
        ledger, now_s = self._turn.ledger, self._turn.now_s
        since_s, number = lane.place(0)
        having = ledger.catalogue.sites_of(lane.data)
        could = [s for s in having if s in self._sites and self._fits(lane, s)]
        start_s = self._starts.get(WorkloadId(number), 0.0)
        home_s = inf if not could else start_s - now_s if start_s > now_s else None
        asked = lane.shape.request[_GPUS]
        best: tuple[float, int, StagingBid] | None = None
        for site, view in self._sites.items():
            free = view.gpus - held_gpus[site]
            if site in having or free < asked or not takes_work(site, view, ledger):
                continue
            bid = self._bid(lane, site) if self._fits(lane, site) else None
            if bid is None or not is_worth_it(bid.staging_s, now_s - since_s, home_s):
                continue
            if best is None or (bid.staging_s, -free) < best[:2]:
                best = bid.staging_s, -free, bid
        return None if best is None else best[2]

    def _fits(self, lane: Lane, site: SiteName) -> bool:
        return self._sites[site].never_fits(lane.jobs) is None

    def _bid(self, lane: Lane, site: SiteName) -> StagingBid | None:
        bid = staging_bid(self._turn.ledger.catalogue, lane.data, site)
        return None if bid is None or bid.largest_bytes > self._staging.most_bytes else bid
