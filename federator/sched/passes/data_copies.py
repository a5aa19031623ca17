"""Has data sets copied to storage domains: what is asked for, how far it is, how long it takes.

A copy is a part of its replica in the catalogue. So it is as durable as that, and a daemon that
takes over goes on with it. Files are the business of the sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

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
from federator.model.message import CopySeen
from federator.sched.passes.data_removals import take_removal, taken_back
from federator.sched.passes.transaction import Transaction
from federator.sched.state.catalogue import Catalogue, with_replica
from federator.sched.state.ledger import Ledger
from federator.sched.state.link_speeds import speed_kib_per_s

COPYABLE: Final = "sha256tree:"  # the digests that a site can prove
AT_ONCE: Final = 2  # copies to one domain; others wait for their turn
ASSUMED_KIB_PER_S: Final = 100 * 1024  # of a copy that nothing bounds, where none was measured
SETUP_S: Final = 30.0  # of any copy
PLANNED_TRIES: Final = 5  # of a copy that no job wants, until it is given up
STEP_FRAC: Final = 0.02  # of a size: less progress than this is not recorded


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
    there = bool(domains[domain].mounts)
    if not there or source_of(of, domain, domains) is None:
        return DataRefusalCode.NO_SOURCE if there else DataRefusalCode.NOT_MOUNTED, domain
    capacity, before = domains[domain].capacity_bytes, of.replica_in(domain)
    if before is not None and before.removal is not None and before.removal.begun:
        return DataRefusalCode.REMOVING, domain
    is_new = before is None
    if capacity and is_new and used_bytes + of.size_bytes > capacity:
        return DataRefusalCode.NO_ROOM, domain
    return None


def source_of(of: DataSet, domain: str, domains: Mapping[str, StorageDomain]) -> DataReplica | None:
    """The replica to copy from: one that sites mount before one in an object store.

    Of several, one that was proved.
    """
    ready = [
        r
        for r in of.replicas
        if r.state is ReplicaState.READY and r.domain in domains and r.domain != domain
    ]
    return max(ready, key=lambda r: (bool(domains[r.domain].mounts), bool(r.digest)), default=None)


def with_copy(of: DataSet, domain: str, path: str, copy: DataCopy) -> DataSet:
    """The data set with a copy under way; as it is, where one is, or where it is ready.

    What is retired there is taken back, if it is still whole. A copy that has failed begins anew,
    for whoever asks. One under way that a plan or a job had made is from now on also the copy of a
    user who asks for it; a plan's home stays planned.
    """
    before = of.replica_in(domain)
    if before is not None and before.state is ReplicaState.RETIRED:
        before = taken_back(before)
        of = replace(of, replicas=with_replica(of.replicas, before))
    if before is not None and before.state in (ReplicaState.READY, ReplicaState.RETIRED):
        if not before.for_jobs or not (copy.by or copy.planned):
            return of
        wanted = replace(before, for_jobs=False)  # not by jobs alone any more
        return replace(of, replicas=with_replica(of.replicas, wanted))
    copied = None if before is None else before.copy
    if copied is not None:
        is_over = copied.phase is CopyPhase.FAILED
        if not copy.by or (copied.by and not is_over):
            return of
        if is_over:
            copy = replace(copy, becomes_home=copied.becomes_home)
        else:
            copy = replace(copied, by=copy.by)
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
    if of is None or replica is None or of.digest != seen.digest:
        return
    if replica.state is ReplicaState.RETIRED:
        take_removal(turn, of, replica, seen)
        return
    if replica.copy is None:
        return
    after = replica_after(of, replica, replica.copy, seen, turn.now_s)
    if after == replica:
        return
    after = _measured(turn.ledger.catalogue, of, replica.copy, after)
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
            is_new = replica.state is ReplicaState.COPYING
            for_jobs = is_new and not (copy.by or copy.planned)
            return replace(ready, sealed_at_s=now_s, copied_at_s=now_s, for_jobs=for_jobs)
        case CopyPhase.FAILED:
            failed = replace(
                copy,
                phase=CopyPhase.FAILED,
                began_at_s=0.0,
                began_bytes=0,
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
                began_bytes=copy.began_bytes if copy.began_at_s else seen.copied_bytes,
                told_at_s=now_s,
                copied_bytes=seen.copied_bytes,
            )
            return replace(replica, copy=under_way)
        case _:
            return replica


def _measured(
    catalogue: Catalogue, of: DataSet, copy: DataCopy, replica: DataReplica
) -> DataReplica:
    """A replica with the speed of the copy that has made it, if that is known."""
    source = source_of(of, replica.domain, catalogue.domains)
    if replica.state is not ReplicaState.READY or source is None or not copy.began_at_s:
        return replica
    came = of.size_bytes - copy.began_bytes
    speed = speed_kib_per_s(came, replica.copied_at_s - copy.began_at_s) if came > 0 else 0
    return replace(replica, copied_from=source.domain if speed else "", copied_kib_per_s=speed)


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


# ---- how long it takes ----


def copy_s(catalogue: Catalogue, of: DataSet, domain: str) -> float:
    """The time in seconds that a copy of a data set to a domain takes from its beginning.

    What has come of one that is under way counts. The speed is that of the latest copies between
    the two domains, else the one that bounds them, else ``ASSUMED_KIB_PER_S``.
    """
    there, source = catalogue.domains[domain], source_of(of, domain, catalogue.domains)
    measured = 0 if source is None else catalogue.links.kib_per_s(source.domain, domain)
    bound = there.copy_kib_per_s
    kib_per_s = min(measured or bound, bound or measured) or ASSUMED_KIB_PER_S
    return SETUP_S + bytes_to_copy(of, domain) / 1024 / kib_per_s


def bytes_to_copy(of: DataSet, domain: str) -> int:
    """What a copy of a data set to a domain has still to bring."""
    replica = of.replica_in(domain)
    if replica is not None and replica.state is ReplicaState.RETIRED:
        return 0  # it is taken back
    copy = None if replica is None else replica.copy
    return of.size_bytes if copy is None else max(0, of.size_bytes - copy.copied_bytes)


def turn_s(catalogue: Catalogue, of: DataSet, domain: str) -> float:
    """The time in seconds until the copy of a data set to a domain has its turn."""
    replica = of.replica_in(domain)
    copy = None if replica is None else replica.copy
    is_one = copy is not None and copy.phase is not CopyPhase.FAILED
    if len(catalogue.copied_to(domain)) - is_one < AT_ONCE:
        return 0.0
    if domain not in catalogue.copies_s:
        ahead = catalogue.copied_to(domain)
        catalogue.copies_s[domain] = sum(copy_s(catalogue, each, domain) for each in ahead)
    all_s = catalogue.copies_s[domain]
    own_s = copy_s(catalogue, of, domain) if is_one else 0.0
    return (all_s - own_s) / AT_ONCE
