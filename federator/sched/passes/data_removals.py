"""Retires replicas: no job is given one any more, and after a grace its files go.

Only a data set of which another sealed replica is left loses one. What begins is recorded before a
site is asked; until then a replica can be taken back as it is. Files are the business of the sites.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from federator.model.dataset import (
    CopyPhase,
    DataClass,
    DataRefusalCode,
    DataRemoval,
    DataReplica,
    DataSet,
    ReplicaState,
    home_of,
)
from federator.model.event import DataSetKept
from federator.model.message import CopySeen
from federator.sched.passes.transaction import Transaction
from federator.sched.state.catalogue import retired_replicas, with_replica
from federator.sched.state.ledger import Ledger

MOST_TRIES: Final = 1_000  # that are counted
MOST_RETIRED: Final = 200  # at a time, of those that nobody asked for


def retire_refusal(ledger: Ledger, of: DataSet, domain: str) -> tuple[DataRefusalCode, str] | None:
    """The reason why the files of a replica may not be removed; None: they may.

    Jobs at sites that use the data set stand against it, wherever they found it.
    """
    replica = of.replica_in(domain)
    whole = ReplicaState.READY, ReplicaState.RETIRED
    code = None
    if replica is None:
        code = DataRefusalCode.NO_REPLICA
    elif (there := ledger.catalogue.domains.get(domain)) is not None and not there.mounts:
        code = DataRefusalCode.NOT_MOUNTED
    elif of.kind is DataClass.SCRATCH:
        code = DataRefusalCode.SCRATCH
    elif replica.pinned:
        code = DataRefusalCode.PINNED
    elif replica.state not in whole or not replica.digest:
        code = DataRefusalCode.UNSEALED
    elif not has_other(of, domain):
        code = DataRefusalCode.LAST_COPY
    elif ledger.counts.using_at_sites[of.name, of.version]:
        code = DataRefusalCode.RUNNING
    return None if code is None else (code, domain)


def has_other(of: DataSet, domain: str) -> bool:
    """Whether another replica is ready, and was proved to hold what it should."""
    return any(
        r.domain != domain and r.state is ReplicaState.READY and of.digest and r.digest == of.digest
        for r in of.replicas
    )


def retired(of: DataSet, domain: str, removal: DataRemoval) -> DataSet:
    """The data set with a replica of it retired; as it is, where it was before."""
    replica = of.replica_in(domain)
    if replica is None or replica.state is ReplicaState.RETIRED:
        return of
    kept = replace(replica, state=ReplicaState.RETIRED, copy=None, removal=removal)
    return replace(of, replicas=with_replica(of.replicas, kept))


def taken_back(replica: DataReplica) -> DataReplica:
    """A replica, ready again if it was retired and nothing of it has gone."""
    removal = replica.removal
    if replica.state is not ReplicaState.RETIRED or removal is None or removal.begun:
        return replica
    return replace(replica, state=ReplicaState.READY, removal=None)


def with_one_left(of: DataSet) -> DataSet:
    """The same, but for retired replicas that are taken back where no ready one is left."""
    if any(r.state is ReplicaState.READY for r in of.replicas):
        return of
    return replace(of, replicas=tuple(map(taken_back, of.replicas)))


# ---- as time goes by ----


def tidy_data(turn: Transaction) -> None:
    """Begin the removals that are due, and retire copies that nobody has used for long."""
    ledger = turn.ledger
    for of, replica in list(retired_replicas(ledger.catalogue)):
        removal = replica.removal
        if removal is None or removal.begun or turn.now_s < removal.due_at_s:
            continue
        if retire_refusal(ledger, of, replica.domain) is None:
            begun = replace(replica, removal=replace(removal, begun=True))
            _keep(turn, replace(of, replicas=with_replica(of.replicas, begun)))
    moving = turn.rules.moving
    if not moving.unused_s:
        return
    removal = DataRemoval(by="", due_at_s=turn.now_s + moving.removal_grace_s)
    for of in list(ledger.catalogue):
        after = of
        for replica in of.replicas:
            if _is_unused(ledger, after, replica, turn.now_s - moving.unused_s):
                after = retired(after, replica.domain, removal)
        if after is not of:
            _keep(turn, after)
        if len(ledger.catalogue.shrinking) >= MOST_RETIRED:
            return


def _is_unused(ledger: Ledger, of: DataSet, replica: DataReplica, since_s: float) -> bool:
    """Whether a copy that was made for jobs was given to none for long, and none asks for it."""
    if not replica.for_jobs or replica.state is not ReplicaState.READY:
        return False
    if max(replica.used_at_s, replica.copied_at_s) >= since_s or home_of(of) == replica.domain:
        return False
    if ledger.counts.using[of.name, of.version]:
        return False
    return retire_refusal(ledger, of, replica.domain) is None


def take_removal(turn: Transaction, of: DataSet, replica: DataReplica, seen: CopySeen) -> None:
    """Record what a site tells of a removal: the replica leaves the catalogue once it is gone."""
    removal = replica.removal
    if removal is None or not removal.begun:
        return
    if seen.phase is CopyPhase.DROPPED:
        left = tuple(r for r in of.replicas if r.domain != replica.domain)
        _keep(turn, replace(of, replicas=left))
    elif seen.phase is CopyPhase.FAILED:
        tries = min(removal.tries + 1, MOST_TRIES)
        failed = replace(removal, tries=tries, told_at_s=turn.now_s, detail=seen.detail)
        kept = replace(replica, removal=failed)
        _keep(turn, replace(of, replicas=with_replica(of.replicas, kept)))


def _keep(turn: Transaction, of: DataSet) -> None:
    turn.record(DataSetKept(at_s=turn.now_s, kept=of))
