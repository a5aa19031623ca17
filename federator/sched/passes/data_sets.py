"""Changes the catalogue as users ask: adds data sets, pins and unpins replicas, takes them out.

Nothing here touches a file. One request changes all that it names, or nothing.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from federator.model.dataset import (
    MOST_REPLICAS,
    DataClass,
    DataCopy,
    DataGiven,
    DataRefusal,
    DataRefusalCode,
    DataRemoval,
    DataReplica,
    DataSet,
    DataSharing,
    DataVerb,
    ReplicaState,
)
from federator.model.event import DataRecord, DataSetDropped, DataSetKept
from federator.model.message import AnswerData, AnswerDataRefused, DataAsked
from federator.model.workload import TenantName
from federator.sched.passes.data_copies import copy_refusal, source_of, used_bytes, with_copy
from federator.sched.passes.data_removals import (
    has_other,
    retire_refusal,
    retired,
    taken_back,
    with_one_left,
)
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger

FIRST_VERSION: Final = "1"


class _Refused(Exception):
    def __init__(self, code: DataRefusalCode, given: DataGiven, detail: str = "") -> None:
        super().__init__(code.value)
        self.refusal = DataRefusal(code=code, label=given.label, detail=detail)


def change_catalogue(turn: Transaction, asked: DataAsked) -> None:
    """Carry out what was asked, and answer; a pass is due, for a job may find its data now."""
    changes = _Changes(turn.ledger, asked, turn.now_s, turn.rules.moving.removal_grace_s)
    try:
        for given in asked.sets:
            changes.add(given)
        changes.refuse_in_use()
    except _Refused as refused:
        turn.commands.append(AnswerDataRefused(client=asked.client, refusal=refused.refusal))
        return
    records = changes.records()
    for record in records:
        turn.record(record)
    if records:
        turn.pass_is_due(turn)
    kept, dropped = changes.outcome()
    turn.commands.append(AnswerData(client=asked.client, sets=kept, dropped=dropped))


class _Changes:
    """The changes of one request, on top of the catalogue as it is."""

    def __init__(self, ledger: Ledger, asked: DataAsked, now_s: float, grace_s: float) -> None:
        self._grace_s = grace_s
        self._ledger = ledger
        self._asked = asked
        self._now_s = now_s
        self._after: dict[tuple[str, str], DataSet | None] = {}  # None: it is taken out
        self._shrunk: dict[tuple[str, str], DataGiven] = {}

    def add(self, given: DataGiven) -> None:
        """Take one part of the request in.

        Raises:
            _Refused: it cannot be.
        """
        if self._asked.verb is DataVerb.ADD:
            self._add(given)
            return
        known = self._known(given)
        if known is None or not self._may_see(known):
            raise _Refused(DataRefusalCode.UNKNOWN, given)
        if not self._may_change(known.owner, known.tenant):
            raise _Refused(DataRefusalCode.DENIED, given)
        if self._asked.verb is DataVerb.COPY:
            self._copy(given, known)
            return
        domains = {place.domain for place in given.at} or {r.domain for r in known.replicas}
        for domain in sorted(domains):
            if known.replica_in(domain) is None:
                raise _Refused(DataRefusalCode.NO_REPLICA, given, domain)
        if self._asked.verb is DataVerb.REMOVE:
            self._remove(given, known, domains)
            return
        if self._asked.verb in (DataVerb.SEAL, DataVerb.LOSE):
            self._read(given, known, domains)
        elif self._asked.verb is DataVerb.RETIRE:
            self._retire(given, known, domains)
        else:
            self._pin(given, known, domains)

    def refuse_in_use(self) -> None:
        """Raises: _Refused: jobs name what none of them would find any more.

        With force only those at sites count: the others may be held for ever, by anybody.
        """
        force, counts = self._asked.force, self._ledger.counts
        code = DataRefusalCode.RUNNING if force else DataRefusalCode.IN_USE
        for key in self._shrunk:
            jobs = counts.using_at_sites[key] if force else counts.using[key]
            after = self._after[key]
            left = () if after is None else after.replicas
            if jobs and not any(r.state is ReplicaState.READY for r in left):
                refused = _Refused(code, self._shrunk[key])
                refused.refusal = replace(refused.refusal, jobs=jobs)
                raise refused

    def records(self) -> list[DataRecord]:
        """The records that make the changes; none for what stays as it is."""
        found: list[DataRecord] = []
        for (name, version), after in self._after.items():
            if after is None:
                found.append(
                    DataSetDropped(at_s=self._now_s, name=name, version=version, by=self._asked.by)
                )
            elif after != self._ledger.catalogue.find(name, version):
                found.append(DataSetKept(at_s=self._now_s, kept=after, by=self._asked.by))
        return found

    def outcome(self) -> tuple[tuple[DataSet, ...], tuple[str, ...]]:
        """The data sets as they are now, and the names of those that are not there any more."""
        kept = tuple(after for after in self._after.values() if after is not None)
        gone = (f"{n}@{v}" for (n, v), after in self._after.items() if after is None)
        return kept, tuple(gone)

    def _put(self, of: DataSet) -> None:
        self._after[of.name, of.version] = of

    def _known(self, given: DataGiven) -> DataSet | None:
        if given.version and (given.name, given.version) in self._after:
            return self._after[given.name, given.version]
        return self._ledger.catalogue.find(given.name, given.version)

    def _may_change(self, owner: str, tenant: TenantName) -> bool:
        asked = self._asked
        return asked.operator or owner == asked.by or tenant in asked.administers

    def _may_see(self, of: DataSet) -> bool:
        asked = self._asked
        return self._may_change(of.owner, of.tenant) or is_shared(of, asked.tenants)

    def _pin(self, given: DataGiven, known: DataSet, domains: set[str]) -> None:
        """Pin replicas, or let them go; one that is retired is taken back by it."""
        pinned = self._asked.verb is DataVerb.PIN
        for domain in sorted(domains) if pinned else ():
            before = known.replica_in(domain)
            if before is not None and before.removal is not None and before.removal.begun:
                raise _Refused(DataRefusalCode.REMOVING, given, domain)
        self._put(
            replace(
                known,
                replicas=tuple(
                    replace(taken_back(r) if pinned else r, pinned=pinned)
                    if r.domain in domains
                    else r
                    for r in known.replicas
                ),
            )
        )

    def _retire(self, given: DataGiven, known: DataSet, domains: set[str]) -> None:
        due_at_s = self._now_s + self._grace_s
        for domain in sorted(domains):
            refused = retire_refusal(self._ledger, known, domain)
            if refused is not None:
                raised = _Refused(refused[0], given, refused[1])
                jobs = self._ledger.counts.using_at_sites[known.name, known.version]
                raised.refusal = replace(raised.refusal, jobs=jobs)
                raise raised
            removal = DataRemoval(by=self._asked.by, due_at_s=due_at_s)
            known = retired(known, domain, removal)
        self._put(known)

    def _remove(self, given: DataGiven, known: DataSet, domains: set[str]) -> None:
        for replica in known.replicas:
            if replica.pinned and replica.domain in domains:
                raise _Refused(DataRefusalCode.PINNED, given, replica.domain)
        left = tuple(r for r in known.replicas if r.domain not in domains)
        key = known.name, known.version
        kept = with_one_left(replace(known, replicas=left))
        goes = [r.domain for r in kept.replicas if r.removal is not None and r.removal.begun]
        if given.at and goes and not any(r.state is ReplicaState.READY for r in kept.replicas):
            raise _Refused(DataRefusalCode.REMOVING, given, goes[0])
        self._after[key] = kept if left and given.at else None
        self._shrunk[key] = given

    def _copy(self, given: DataGiven, known: DataSet) -> None:
        catalogue = self._ledger.catalogue
        for place in given.at:
            if place.domain not in catalogue.domains:
                raise _Refused(DataRefusalCode.NO_DOMAIN, given, place.domain)
            before = known.replica_in(place.domain)
            if before is not None and place.path not in ("", before.path):
                detail = f"{place.domain}:{before.path}"
                raise _Refused(DataRefusalCode.OTHER_CONTENT, given, detail)
            if before is None or before.state is not ReplicaState.READY:
                used = used_bytes(catalogue, place.domain)
                refused = copy_refusal(known, place.domain, catalogue.domains, used)
                if refused is not None:
                    raise _Refused(refused[0], given, refused[1])
            source = source_of(known, place.domain, catalogue.domains)
            path = place.path or (source.path if source is not None else "")
            if before is None or before.state in (ReplicaState.COPYING, ReplicaState.LOST):
                self._refuse_to_overwrite(given, known, place.domain, path)
            copy = DataCopy(by=self._asked.by, asked_at_s=self._now_s)
            known = with_copy(known, place.domain, path, copy)
        self._put(known)

    def _refuse_to_overwrite(
        self, given: DataGiven, known: DataSet, domain: str, path: str
    ) -> None:
        """A copy takes the place of nothing that jobs read, and of no other data set."""
        before = known.replica_in(domain)
        path = path if before is None else before.path
        if self._ledger.catalogue.in_the_way(known, domain, path):
            raise _Refused(DataRefusalCode.OCCUPIED, given, f"{domain}:{path}")
        jobs = self._ledger.counts.using_at_sites[known.name, known.version]
        if before is not None and before.state is ReplicaState.LOST and jobs:
            refused = _Refused(DataRefusalCode.RUNNING, given)
            refused.refusal = replace(refused.refusal, jobs=jobs)
            raise refused

    def _read(self, given: DataGiven, known: DataSet, domains: set[str]) -> None:
        """Somebody has read replicas: they hold what they should, or are lost."""
        sound = self._asked.verb is DataVerb.SEAL
        if known.kind is DataClass.SCRATCH and sound:
            raise _Refused(DataRefusalCode.SCRATCH, given)
        if sound and known.digest and given.digest != known.digest:
            raise _Refused(DataRefusalCode.OTHER_CONTENT, given, f"digest {known.digest}")
        replicas = tuple(
            replace(
                r,
                state=ReplicaState.READY if sound else ReplicaState.LOST,
                digest=given.digest or "" if sound else "",
                sealed_at_s=self._now_s if sound else 0.0,
                copy=None if sound else r.copy,
                removal=None,
            )
            if r.domain in domains and not _goes(known, r, sound=sound)
            else r
            for r in known.replicas
        )
        if sound:  # what was read is right, whatever was said before
            known = replace(
                known,
                digest=given.digest or "",
                size_bytes=given.size_bytes or known.size_bytes,
                files=given.files or known.files,
            )
        self._put(with_one_left(replace(known, replicas=replicas)))

    # ---- adding ----

    def _add(self, given: DataGiven) -> None:
        version = given.version or FIRST_VERSION
        named = replace(given, version=version)
        known = self._known(named)
        other = known or self._ledger.catalogue.find(given.name)
        if other is not None and not self._may_change(other.owner, other.tenant):
            taken = known is None or not self._may_see(known)
            code = DataRefusalCode.NAME_TAKEN if taken else DataRefusalCode.DENIED
            raise _Refused(code, named)
        if known is None:
            known = DataSet(
                name=given.name,
                version=version,
                owner=given.owner or self._asked.by,
                tenant=given.tenant or TenantName(""),
                added_at_s=self._now_s,
            )
        self._put(self._added_to(known, named))

    def _added_to(self, known: DataSet, given: DataGiven) -> DataSet:
        if given.owner not in (None, known.owner) and not self._asked.operator:
            raise _Refused(DataRefusalCode.DENIED, given)
        self._refuse_other_content(known, given)
        replicas = known.replicas
        for place in given.at:
            if place.domain not in self._ledger.catalogue.domains:
                raise _Refused(DataRefusalCode.NO_DOMAIN, given, place.domain)
            before = known.replica_in(place.domain)
            if before is not None and before.path != place.path:
                detail = f"{place.domain}:{before.path}"
                raise _Refused(DataRefusalCode.OTHER_CONTENT, given, detail)
            if before is None:
                replicas = (*replicas, DataReplica(domain=place.domain, path=place.path))
        if len(replicas) > MOST_REPLICAS:
            raise _Refused(DataRefusalCode.TOO_MANY, given)
        return replace(
            known,
            owner=given.owner or known.owner,
            tenant=given.tenant or known.tenant,
            size_bytes=known.size_bytes or given.size_bytes or 0,
            files=known.files or given.files or 0,
            digest=known.digest or given.digest or "",
            kind=known.kind if given.kind is None else DataClass(given.kind),
            sharing=known.sharing if given.sharing is None else DataSharing(given.sharing),
            replicas=replicas,
        )

    def _refuse_other_content(self, known: DataSet, given: DataGiven) -> None:
        """A version is one content; what has changed is another version."""
        for what, is_, said in (
            ("size", known.size_bytes, given.size_bytes),
            ("files", known.files, given.files),
            ("digest", known.digest, given.digest),
        ):
            if is_ and said and is_ != said and known.kind is not DataClass.SCRATCH:
                raise _Refused(DataRefusalCode.OTHER_CONTENT, given, f"{what} {is_}")


def _goes(of: DataSet, replica: DataReplica, *, sound: bool) -> bool:
    """Whether what was read of a replica changes nothing: it is retired.

    One that was found whole is taken back where no other good one is left: no site is asked to go
    on with its removal. One that was found damaged is lost, unless its removal has begun.
    """
    if replica.removal is None:
        return False
    return has_other(of, replica.domain) if sound else replica.removal.begun


def is_shared(of: DataSet, tenants: frozenset[TenantName]) -> bool:
    """Whether others than its owner may see and name it: a user of these tenants."""
    if of.sharing is DataSharing.ALL:
        return True
    return of.sharing is DataSharing.TENANT and of.tenant in tenants
