"""Has data sets copied to storage domains: what is asked for, how far it is, and copies for jobs.

A copy is a part of its replica in the catalogue. So it is as durable as that, and a daemon that
takes over goes on with it. Files are the business of the sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from federator.model.data_use import DataUse
from federator.model.dataset import (
    CopyPhase,
    DataClass,
    DataCopy,
    DataRefusalCode,
    DataReplica,
    DataSet,
    ReplicaState,
    StorageDomain,
)
from federator.model.event import DataSetKept
from federator.model.lifecycle import AT_SITE
from federator.model.message import CopySeen
from federator.model.resources import PLAIN
from federator.model.workload import SiteName
from federator.sched.passes.availability import takes_work
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.backlog import Lane
from federator.sched.state.catalogue import Catalogue, with_replica
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Staging

COPYABLE: Final = "sha256tree:"  # the digests that a site can prove
ASSUMED_KIB_PER_S: Final = 100 * 1024  # of a copy that nothing bounds
SETUP_S: Final = 30.0  # of any copy
PLANNED_TRIES: Final = 5  # of a copy that no job wants, until it is given up
STEP_FRAC: Final = 0.02  # of a size: less progress than this is not recorded
_GPUS: Final = PLAIN.index("gpus")


# ---- asked for ----


def copy_refusal(
    of: DataSet, domain: str, domains: Mapping[str, StorageDomain], used_bytes: int
) -> tuple[DataRefusalCode, str] | None:
    """The reason why a data set cannot be copied to a domain; None: it can.

    Args:
        of: the data set.
        domain: one of ``domains``.
        domains: as configured.
        used_bytes: of the domain, by the catalogue.
    """
    if of.kind is DataClass.SCRATCH:
        return DataRefusalCode.SCRATCH, ""
    if not of.digest.startswith(COPYABLE):
        return DataRefusalCode.UNSEALED, ""
    if source_of(of, domain, domains) is None:
        return DataRefusalCode.NO_SOURCE, domain
    capacity = domains[domain].capacity_bytes
    is_new = of.replica_in(domain) is None
    if capacity and is_new and used_bytes + of.size_bytes > capacity:
        return DataRefusalCode.NO_ROOM, domain
    return None


def source_of(of: DataSet, domain: str, domains: Mapping[str, StorageDomain]) -> DataReplica | None:
    """The replica to copy from; one that was proved before one that was not."""
    ready = [
        r
        for r in of.replicas
        if r.state is ReplicaState.READY and r.domain in domains and r.domain != domain
    ]
    return max(ready, key=lambda r: bool(r.digest), default=None)


def with_copy(of: DataSet, domain: str, path: str, copy: DataCopy) -> DataSet:
    """The data set with a copy under way; as it is, where one is, or where it is ready.

    One that has failed begins anew.
    """
    before = of.replica_in(domain)
    if before is not None and before.state is ReplicaState.READY:
        return of
    copied = None if before is None else before.copy
    if copied is not None and (copied.phase is not CopyPhase.FAILED or not copy.by):
        return of
    if before is None:
        replica = DataReplica(domain=domain, path=path, state=ReplicaState.COPYING, copy=copy)
    else:
        replica = replace(before, copy=copy)
    return replace(of, replicas=with_replica(of.replicas, replica))


def used_bytes(catalogue: Catalogue, domain: str) -> int:
    """What the catalogue has in a domain, with what is being copied there."""
    return sum(use.size_bytes for use in catalogue.usage.get(domain, {}).values())


# ---- how far it is ----


def take_copy(turn: Transaction, seen: CopySeen) -> None:
    """Record what a site tells of a copy, unless it is no news; a pass is due once it is whole."""
    of = turn.ledger.catalogue.find(seen.name, seen.version)
    replica = None if of is None else of.replica_in(seen.domain)
    if of is None or replica is None or replica.copy is None or of.digest != seen.digest:
        return
    after = replica_after(of, replica, replica.copy, seen, turn.now_s)
    if after == replica:
        return
    kept = replace(of, replicas=with_replica(of.replicas, after))
    if after.state is ReplicaState.READY and replica.copy.becomes_home:
        kept = replace(kept, home=seen.domain)
    if _is_given_up(turn.ledger, of, after):
        kept = replace(of, replicas=tuple(r for r in of.replicas if r.domain != seen.domain))
    turn.record(DataSetKept(at_s=turn.now_s, kept=kept))
    if after.state is ReplicaState.READY:
        turn.pass_is_due(turn)


def replica_after(
    of: DataSet, replica: DataReplica, copy: DataCopy, seen: CopySeen, now_s: float
) -> DataReplica:
    """A replica as it is by what its site tells; the same, where that is no news."""
    match seen.phase:
        case CopyPhase.DONE:
            ready = replace(replica, state=ReplicaState.READY, digest=of.digest, copy=None)
            return replace(ready, sealed_at_s=now_s, copied_at_s=now_s)
        case CopyPhase.FAILED:
            failed = replace(
                copy,
                phase=CopyPhase.FAILED,
                began_at_s=0.0,
                told_at_s=now_s,
                tries=copy.tries + 1,
                detail=seen.detail,
            )
            return replace(replica, copy=failed)
        case CopyPhase.COPYING | CopyPhase.CHECKING:
            grown = abs(seen.copied_bytes - copy.copied_bytes)
            is_news = seen.phase is not copy.phase or grown > STEP_FRAC * of.size_bytes
            if not is_news:
                return replica
            under_way = replace(
                copy,
                phase=seen.phase,
                began_at_s=copy.began_at_s or now_s,
                told_at_s=now_s,
                copied_bytes=seen.copied_bytes,
            )
            return replace(replica, copy=under_way)
        case _:
            return replica


def _is_given_up(ledger: Ledger, of: DataSet, replica: DataReplica) -> bool:
    """A copy that was made for jobs, and fails, leaves the catalogue when none is left.

    One that a plan asked for may fail a few times before.
    """
    copy, is_new = replica.copy, replica.state is ReplicaState.COPYING
    if copy is None or copy.by or not is_new or copy.phase is not CopyPhase.FAILED:
        return False
    if copy.planned and copy.tries < PLANNED_TRIES:
        return False
    return not ledger.counts.using[of.name, of.version]


# ---- for jobs ----


def copy_s(of: DataSet, domain: StorageDomain) -> float:
    """The time that a copy of a data set to a domain may take."""
    return SETUP_S + of.size_bytes / 1024 / (domain.copy_kib_per_s or ASSUMED_KIB_PER_S)


def stage(turn: Transaction, sites: Mapping[SiteName, SiteView], staging: Staging) -> None:
    """Have data sets copied to sites for jobs that wait, if that may be done by itself.

    A job waits for a place where its data is as long as a copy would take, and then is worth one:
    so it never loses more than twice what it would have lost had it known how long it was to wait.
    Where no site with the data could ever run it, it is worth one at once.
    """
    if not staging.auto:
        return
    ledger, catalogue = turn.ledger, turn.ledger.catalogue
    lanes = [lane for lane in ledger.backlog.with_data() if len(lane)]
    if not lanes:
        return
    held_gpus = Counter[SiteName]()
    for entry in ledger.in_state(*AT_SITE):
        held_gpus[entry.site] += 0 if entry.charge is None else entry.charge.amounts[_GPUS]
    under_way = sum(_is_for_jobs(replica) for _, replica in catalogue.copies())
    for lane in lanes:
        if under_way >= staging.at_once:
            return
        found = _worth_it(turn, lane, sites, staging, held_gpus)
        for use, domain in found:
            of = catalogue.find(use.name, use.version)
            source = None if of is None else source_of(of, domain, catalogue.domains)
            if of is None or source is None:
                continue
            if catalogue.in_the_way(of, domain, source.path):
                continue
            after = with_copy(of, domain, source.path, DataCopy(by="", asked_at_s=turn.now_s))
            if after != of:
                turn.record(DataSetKept(at_s=turn.now_s, kept=after))
                under_way += 1


def _is_for_jobs(replica: DataReplica) -> bool:
    """Whether its copy is under way, and nobody asked for it; one that has failed keeps no room."""
    copy = replica.copy
    if copy is None or copy.by or copy.planned:
        return False
    return copy.phase is not CopyPhase.FAILED


def _worth_it(
    turn: Transaction,
    lane: Lane,
    sites: Mapping[SiteName, SiteView],
    staging: Staging,
    held_gpus: Counter[SiteName],
) -> list[tuple[DataUse, str]]:
    """The data sets to be copied for the first of a lane, with their domains; none: nothing is."""
    ledger = turn.ledger
    since_s, _ = lane.place(0)
    having = ledger.catalogue.sites_of(lane.data)
    could = [s for s in having if s in sites and sites[s].never_fits(lane.jobs) is None]
    asked = lane.shape.request[_GPUS]
    best: list[tuple[float, int, SiteName, list[tuple[DataUse, str]]]] = []
    for site, view in sites.items():
        if site in having or not takes_work(site, view, ledger):
            continue
        free = view.gpus - held_gpus[site]
        if free < asked or view.never_fits(lane.jobs) is not None:
            continue
        plan = _plan(ledger, lane, site, staging)
        if plan is not None and (not could or turn.now_s - since_s >= plan[0]):
            best.append((plan[0], -free, site, plan[1]))
    return min(best, key=lambda each: each[:2])[3] if best else []


def _plan(
    ledger: Ledger, lane: Lane, site: SiteName, staging: Staging
) -> tuple[float, list[tuple[DataUse, str]]] | None:
    """How long the copies take that a site needs, and which these are; None: it cannot be had."""
    catalogue, took_s = ledger.catalogue, 0.0
    copies = []
    for use in catalogue.lacking(lane.data, site):
        of = catalogue.find(use.name, use.version)
        domain = next((n for n, d in catalogue.domains.items() if site in d.mounts), None)
        if of is None or domain is None or use.write or of.owner != use.owner:
            return None
        too_large = of.size_bytes > staging.most_bytes or not of.size_bytes
        if too_large or copy_refusal(of, domain, catalogue.domains, used_bytes(catalogue, domain)):
            return None
        took_s += copy_s(of, catalogue.domains[domain])
        copies.append((use, domain))
    return took_s, copies
