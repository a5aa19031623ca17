"""Orders the steps of copies of data sets from sites that mount the domain they go to.

A copy needs many steps; each order is the whole of what its site must know, so that it does not
matter which daemon or agent gave or took the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import structlog
from msgspec.structs import replace

from federator.config import FederationConfig
from federator.model.dataset import CopyPhase, DataReplica, DataSet, ReplicaState, StorageDomain
from federator.model.message import CopySeen
from federator.model.workload import SiteName
from federator.sched.passes.data_copies import AT_ONCE, source_of
from federator.wire.agent_protocol import CopyOrder, CopyStatus

STEP_S: Final = 3.0  # between two orders of one copy
FIRST_RETRY_S: Final = 10.0  # after a failure; twice as long after each further one
LAST_RETRY_S: Final = 600.0
SAID_ANEW_S: Final = 60.0  # between failures of one order that count: each in other words
MOST_DETAIL: Final = 300  # characters; a site may write anything
_Key = tuple[str, str, str]  # name, version, domain

log = structlog.get_logger()


class WantedCopies(Protocol):
    """What is to be copied; a ``Catalogue``, or checkpoints that are to go to other regions."""

    @property
    def domains(self) -> Mapping[str, StorageDomain]:
        """Where copies may lie."""
        ...

    def copies(self) -> Iterator[tuple[DataSet, DataReplica]]:
        """The replicas that are to be made, in their order."""
        ...

    def find(self, name: str, version: str = "") -> DataSet | None:
        """A data set as it is now; None: it is not wanted any more."""
        ...

    def in_the_way(self, of: DataSet, domain: str, path: str) -> bool:
        """Whether another one has a replica at a path, above it or below."""
        ...


class DataMover:
    """Makes the orders as they come due.

    Args:
        config: storage domains, and where users log in at sites.
        catalogue: the copies that are to be made.
        able: whether a site is connected whose agent copies.
        reads_objects: whether that copies from object stores, too.
    """

    def __init__(
        self,
        config: FederationConfig,
        catalogue: WantedCopies,
        able: Callable[[SiteName], bool],
        reads_objects: Callable[[SiteName], bool] = lambda _: False,
    ) -> None:
        self.config = config
        self._catalogue = catalogue
        self._able, self._reads_objects = able, reads_objects
        self._next_s = 0.0
        self._ordered: dict[_Key, tuple[SiteName, CopyOrder]] = {}  # the last of each
        self._failed: dict[_Key, tuple[str, float]] = {}  # since it was ordered; and when

    def due(self, now_s: float) -> Iterator[tuple[SiteName, CopyOrder]]:
        """Yield the orders of now, each with the site that is to carry it out."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + STEP_S
        busy = Counter[str]()
        wanted: set[_Key] = set()
        for of, replica in self._catalogue.copies():
            key = of.name, of.version, replica.domain
            wanted.add(key)
            if busy[replica.domain] >= AT_ONCE or now_s < _not_before_s(replica):
                continue
            found = self._order(of, replica)
            if found is not None:
                busy[replica.domain] += 1
                self._ordered[key] = found
                self._failed.pop(key, None)
                yield found
        yield from self._drops(wanted)
        self._failed = {key: said for key, said in self._failed.items() if key in self._ordered}

    def next_s(self) -> float:
        """Unix time at which ``due`` is to be asked again; 0: there is nothing to be done."""
        has_work = bool(self._ordered) or next(self._catalogue.copies(), None) is not None
        return self._next_s if has_work else 0.0

    def taken(self, site: SiteName, answer: CopyStatus, now_s: float) -> CopySeen | None:
        """Take a site's answer in; return what the core is to know of it.

        That is nothing if the site was not given this order, or does not mount the domain any more,
        nor if it says again that the order failed.
        """
        key = answer.name, answer.version, answer.domain
        last = self._ordered.get(key)
        if last is None or last[0] != site or last[1].digest != answer.digest:
            return None
        wanted = {(of.name, of.version, replica.domain) for of, replica in self._catalogue.copies()}
        gives_up = answer.phase is CopyPhase.FAILED and key not in wanted  # it cannot be dropped
        if gives_up or answer.phase in (CopyPhase.DONE, CopyPhase.DROPPED):
            self._ordered.pop(key, None)
        seen, there = seen_of(answer), self._catalogue.domains.get(answer.domain)
        if there is None or site not in there.mounts:
            return None
        if seen.phase is CopyPhase.FAILED and not self._is_news(key, seen.detail, now_s):
            return None
        if seen.phase in (CopyPhase.DONE, CopyPhase.FAILED):
            event = "data_copied" if seen.phase is CopyPhase.DONE else "data_not_copied"
            label = f"{seen.name}@{seen.version}"
            log.info(event, data=label, domain=seen.domain, detail=seen.detail)
        return None if seen.phase in (CopyPhase.NONE, CopyPhase.DROPPED) else seen

    def _is_news(self, key: _Key, detail: str, now_s: float) -> bool:
        """Whether an order has failed for the first time, or fails for another cause by now."""
        said = self._failed.get(key)
        if said is not None and (said[0] == detail or now_s < said[1] + SAID_ANEW_S):
            return False
        self._failed[key] = detail, now_s
        return True

    def _drops(self, wanted: set[_Key]) -> Iterator[tuple[SiteName, CopyOrder]]:
        """What was begun and is not wanted any more: it is to go, until its site says it has."""
        for key, (site, order) in list(self._ordered.items()):
            if key in wanted:
                continue
            of = self._catalogue.find(*key[:2])
            replica = None if of is None else of.replica_in(key[2])
            if replica is not None and replica.state is ReplicaState.READY:
                del self._ordered[key]
            elif self._able(site):
                yield site, _dropping(order)

    def _order(self, of: DataSet, replica: DataReplica) -> tuple[SiteName, CopyOrder] | None:
        domains = self._catalogue.domains
        there = domains.get(replica.domain)
        source = source_of(of, replica.domain, domains)
        if there is None or source is None:
            return None
        if self._catalogue.in_the_way(of, replica.domain, replica.path):
            return None
        before = self._ordered.get((of.name, of.version, replica.domain))
        last = before[0] if before is not None else None  # has what was copied so far
        able = [site for site in there.mounts if self._able(site)]
        for site in sorted(able, key=lambda site: site != last):
            tries = 0 if replica.copy is None else replica.copy.tries
            found = self._way(site, domains[source.domain], tries, of.owner)
            if found is not None:
                host, root = found
                order = CopyOrder(
                    name=of.name,
                    version=of.version,
                    domain=replica.domain,
                    user=of.owner,
                    host=host,
                    source=f"{root}/{source.path}",
                    root=there.mounts[site],
                    path=replica.path,
                    digest=of.digest,
                    size_bytes=of.size_bytes,
                    keep_free_bytes=there.keep_free_bytes,
                    kib_per_s=there.copy_kib_per_s,
                    streams=there.copy_streams,
                    replace=replica.state is ReplicaState.LOST,
                )
                return site, order
        return None

    def _way(
        self, site: SiteName, source: StorageDomain, tries: int, owner: str
    ) -> tuple[str, str] | None:
        """Host and root of a source as a site reaches it; "": it mounts the source itself.

        Where the owner is called otherwise there, the name stands before the host.
        """
        if site in source.mounts:
            return "", source.mounts[site]
        if source.rclone:
            root = f"rclone:{source.rclone.rstrip('/')}"
            return ("", root) if self._reads_objects(site) else None
        sites = self.config.sites
        hosts = [
            (self._account(name, site, owner) + sites[name].login, root)
            for name, root in source.mounts.items()
            if name in sites and sites[name].login
        ]
        return hosts[tries % len(hosts)] if hosts else None

    def _account(self, there: SiteName, here: SiteName, owner: str) -> str:
        name = self.config.name_at(there, owner)
        return f"{name}@" if name != self.config.name_at(here, owner) else ""


def seen_of(answer: CopyStatus) -> CopySeen:
    """What the core is to know of an answer."""
    return CopySeen(
        name=answer.name,
        version=answer.version,
        domain=answer.domain,
        digest=answer.digest,
        phase=answer.phase,
        copied_bytes=answer.copied_bytes,
        detail=answer.detail[:MOST_DETAIL],
    )


def _not_before_s(replica: DataReplica) -> float:
    """Unix time before which a copy that has failed is not tried again."""
    copy = replica.copy
    if copy is None or copy.phase is not CopyPhase.FAILED:
        return 0.0
    return copy.told_at_s + min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(copy.tries - 1, 16))


def _dropping(order: CopyOrder) -> CopyOrder:
    return replace(order, drop=True)
