"""The catalogue of data sets: which there are, and where jobs find them; part of the ledger.

A site has a data set if it mounts a storage domain with a ready replica of it. What each site
mounts is configured, not logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from federator.model.data_output import ROOM
from federator.model.data_use import DataPath, DataUse
from federator.model.dataset import CopyPhase, DataReplica, DataSet, ReplicaState, StorageDomain
from federator.model.event import Awarded, DataRecord, DataSetKept
from federator.model.mappings import NOTHING
from federator.model.workload import SiteName, TenantName
from federator.sched.state.link_speeds import LinkSpeeds

USES_KEPT: Final = 8_192  # answers that are remembered


@dataclass(slots=True)
class DomainUse:
    """What one tenant has in one storage domain."""

    sets: int = 0
    size_bytes: int = 0  # of those of which it is known
    unsized: int = 0  # those of which it is not


Uses = tuple[DataUse, ...]


class Catalogue:
    """All data sets, by name and version. Changed only by ``Ledger.apply``.

    Attributes:
        sets: of each name the versions, the one that was added first at the beginning.
        usage: of each storage domain, by tenant.
        owned: how many each user has, every version counted.
        replicas: how many each storage domain has, by their state.
        links: how fast copies between storage domains were.
        shrinking: name and version of those of which a replica is retired.
    """

    def __init__(self) -> None:
        self.sets: dict[str, dict[str, DataSet]] = {}
        self.usage: dict[str, dict[TenantName, DomainUse]] = {}
        self.owned: Counter[str] = Counter()
        self.replicas: Counter[tuple[str, ReplicaState]] = Counter()
        self.links = LinkSpeeds()
        self.shrinking: set[tuple[str, str]] = set()
        self._copying: set[tuple[str, str]] = set()  # data sets of which a copy is being made
        self._domains: Mapping[str, StorageDomain] = NOTHING
        self._places: dict[DataUse, dict[SiteName, DataPath]] = {}  # as asked for; may be forgotten
        self._sites: dict[Uses, frozenset[SiteName]] = {}  # likewise
        self._ahead: dict[str, list[DataSet]] | None = None  # by domain; likewise
        self.copies_s: dict[str, float] = {}  # of ``copied_to``; likewise

    @property
    def domains(self) -> Mapping[str, StorageDomain]:
        """The storage domains, as configured now; the first of two at one site is preferred."""
        return self._domains

    @domains.setter
    def domains(self, domains: Mapping[str, StorageDomain]) -> None:
        self._domains = domains
        self._forget()

    def __iter__(self) -> Iterator[DataSet]:
        for versions in self.sets.values():
            yield from versions.values()

    def __len__(self) -> int:
        return self.owned.total()

    def find(self, name: str, version: str = "") -> DataSet | None:
        """A data set; without a version the one of that name that was added last."""
        versions = self.sets.get(name)
        if not versions:
            return None
        return versions.get(version) if version else next(reversed(versions.values()))

    def copies(self) -> Iterator[tuple[DataSet, DataReplica]]:
        """The replicas that are being made; those that were asked for first come first."""
        found = [
            (of, replica)
            for name, version in self._copying
            if (of := self.find(name, version)) is not None
            for replica in of.replicas
            if replica.copy is not None
        ]
        yield from sorted(found, key=lambda each: (_asked_at_s(each[1]), each[0].label))

    def copied_to(self, domain: str) -> Sequence[DataSet]:
        """The data sets that are being copied to a domain; one that has failed waits aside."""
        if self._ahead is None:
            self._ahead = {}
            for each, replica in self.copies():
                if replica.copy is not None and replica.copy.phase is not CopyPhase.FAILED:
                    self._ahead.setdefault(replica.domain, []).append(each)
        return self._ahead.get(domain, ())

    def in_the_way(self, of: DataSet, domain: str, path: str) -> bool:
        """Whether another data set has a replica at a path of a domain, above it or below."""
        for other in self:
            replica = other.replica_in(domain)
            if replica is None or (other.name, other.version) == (of.name, of.version):
                continue
            one, two = path + "/", replica.path + "/"
            if one.startswith(two) or two.startswith(one):
                return True
        return False

    # ---- for jobs ----

    def sites_of(self, uses: Uses) -> frozenset[SiteName]:
        """The sites where all of these are to be found; ``uses`` has at least one."""
        known = self._sites.get(uses)
        if known is None:
            if len(self._sites) >= USES_KEPT:
                self._sites.clear()
            places = [self._places_of(use).keys() for use in uses]
            known = self._sites[uses] = frozenset(places[0]).intersection(*places[1:])
        return known

    def lacking(self, uses: Uses, site: SiteName | None = None) -> list[DataUse]:
        """Those that a site does not have; without a site: those that none has."""
        if site is None:
            return [use for use in uses if not self._places_of(use)]
        return [use for use in uses if site not in self._places_of(use)]

    def paths(self, uses: Uses, site: SiteName) -> tuple[DataPath, ...] | None:
        """Where a job finds each at a site; None where it does not find all of them."""
        if not uses:
            return ()
        if site not in self.sites_of(uses):
            return None
        return tuple(self._places_of(use)[site] for use in uses)

    def _places_of(self, use: DataUse) -> Mapping[SiteName, DataPath]:
        places = self._places.get(use)
        if places is None:
            if len(self._places) >= USES_KEPT:
                self._places.clear()
            places = self._places[use] = dict(self._found(use))
        return places

    def _found(self, use: DataUse) -> Iterator[tuple[SiteName, DataPath]]:
        """Every site with its path; of several domains at one site the first configured counts.

        There is room at every site that mounts a domain.
        """
        if use == ROOM:
            yield from _rooms(self._domains)
            return
        of = self.find(use.name, use.version)
        if of is None or not use.may_have(of):
            return
        ready = {r.domain: r for r in of.replicas if r.state is ReplicaState.READY}
        seen: set[SiteName] = set()
        for name, domain in self._domains.items():
            if name not in ready:
                continue
            for site, root in domain.mounts.items():
                if site not in seen:
                    seen.add(site)
                    yield (
                        site,
                        DataPath(
                            name=use.name,
                            version=use.version,
                            domain=name,
                            root=root,
                            path=ready[name].path,
                            write=use.write,
                        ),
                    )

    # ---- changes ----

    def apply(self, event: DataRecord) -> None:
        """Take in that a data set was added, changed or dropped."""
        if isinstance(event, DataSetKept):
            self._put(event.kept)
        else:
            versions = self.sets.get(event.name, {})
            gone = versions.pop(event.version, None)
            if gone is not None:
                self._count(gone, -1)
                self._copying.discard((gone.name, gone.version))
                self.shrinking.discard((gone.name, gone.version))
            if not versions:
                self.sets.pop(event.name, None)
        self._forget()

    def awarded(self, event: Awarded) -> None:
        """Note that a job is given data sets, and when."""
        for path in event.data:
            of = self.find(path.name, path.version)
            replica = None if of is None else of.replica_in(path.domain)
            if of is not None and replica is not None:
                used = replace(replica, used_at_s=max(replica.used_at_s, event.at_s))
                replicas = with_replica(of.replicas, used)
                self.sets[of.name][of.version] = replace(of, replicas=replicas)

    def _put(self, of: DataSet) -> None:
        versions = self.sets.setdefault(of.name, {})
        before = versions.get(of.version)
        if before is not None:
            self._count(before, -1)
        versions[of.version] = of
        self._count(of, 1)
        is_copied = any(replica.copy is not None for replica in of.replicas)
        (self._copying.add if is_copied else self._copying.discard)((of.name, of.version))
        goes = any(replica.removal is not None for replica in of.replicas)
        (self.shrinking.add if goes else self.shrinking.discard)((of.name, of.version))

    def _count(self, of: DataSet, times: int) -> None:
        self.owned[of.owner] += times
        if not self.owned[of.owner]:
            del self.owned[of.owner]
        for replica in of.replicas:
            self.replicas[replica.domain, replica.state] += times
            if replica.copied_kib_per_s:
                self.links.count(of, replica, times)
            tenants = self.usage.setdefault(replica.domain, {})
            use = tenants.setdefault(of.tenant, DomainUse())
            use.sets += times
            use.size_bytes += times * of.size_bytes
            use.unsized += times * (not of.size_bytes)

    def _forget(self) -> None:
        self._places.clear()
        self._sites.clear()
        self._ahead = None
        self.copies_s.clear()

    # ---- snapshots ----

    def restore(self, sets: Iterable[DataSet]) -> None:
        for of in sets:
            self._put(of)


def retired_replicas(catalogue: Catalogue) -> Iterator[tuple[DataSet, DataReplica]]:
    """The replicas whose files are to go; the data sets in the order of their names."""
    for name, version in sorted(catalogue.shrinking):
        of = catalogue.find(name, version)
        if of is not None:
            yield from ((of, r) for r in of.replicas if r.removal is not None)


def _rooms(domains: Mapping[str, StorageDomain]) -> Iterator[tuple[SiteName, DataPath]]:
    """Every site that mounts a domain, with a place in the first that it mounts."""
    seen: set[SiteName] = set()
    for name, domain in domains.items():
        for site, root in domain.mounts.items():
            if site not in seen:
                seen.add(site)
                yield site, DataPath(name="", version="", domain=name, root=root, path="")


def _asked_at_s(replica: DataReplica) -> float:
    return 0.0 if replica.copy is None else replica.copy.asked_at_s


def with_replica(
    replicas: tuple[DataReplica, ...], replica: DataReplica
) -> tuple[DataReplica, ...]:
    """The replicas with this one in place of that of its domain, else behind the others."""
    if all(each.domain != replica.domain for each in replicas):
        return (*replicas, replica)
    return tuple(replica if each.domain == replica.domain else each for each in replicas)
