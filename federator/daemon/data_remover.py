"""Orders the files of retired replicas to be removed, from sites that mount their domain.

The core records what has begun before it is ordered here. Each order is the whole of what its site
must know, and may be given again, so it does not matter which daemon or agent gave or took the one
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Final

import structlog

from federator.daemon.data_mover import FIRST_RETRY_S, STEP_S, seen_of
from federator.model.dataset import CopyPhase, DataRemoval, DataReplica, DataSet
from federator.model.message import CopySeen
from federator.model.workload import SiteName
from federator.sched.passes.data_removals import has_other
from federator.sched.state.catalogue import Catalogue, retired_replicas
from federator.wire.agent_protocol import CopyOrder, CopyStatus

AT_ONCE: Final = 2  # in one domain; others wait
LAST_RETRY_S: Final = 86400.0  # each try reads all of it, and what is another content stays so
LOOKS_S: Final = 3600.0  # for copies that nobody has used for long
DUE_LOOKS_S: Final = 10.0  # for those whose grace is over: something may stand against it
_Key = tuple[str, str, str]  # name, version, domain

log = structlog.get_logger()


class DataRemover:
    """Makes the orders as they come due, and says when the core is to look what is.

    Args:
        catalogue: the replicas that are retired.
        able: whether a site is connected whose agent removes.
    """

    def __init__(self, catalogue: Catalogue, able: Callable[[SiteName], bool]) -> None:
        self._catalogue = catalogue
        self._able = able
        self._looked_s = -inf
        self._next_s = 0.0
        self._ordered: dict[_Key, tuple[SiteName, CopyOrder]] = {}  # the last of each

    def is_look_due(self, now_s: float) -> bool:
        """Whether the core is to look what has come due; once asked and true, not for a while."""
        if now_s < self._look_s():
            return False
        self._looked_s = now_s
        return True

    def _look_s(self) -> float:
        """Unix time at which the core is to look next."""
        removals = [
            r.removal for _, r in retired_replicas(self._catalogue) if r.removal is not None
        ]
        due_s = min((each.due_at_s for each in removals if not each.begun), default=inf)
        return min(self._looked_s + LOOKS_S, max(self._looked_s + DUE_LOOKS_S, due_s))

    def next_s(self) -> float:
        """Unix time at which all of this is to be asked again."""
        has_begun = any(r.removal and r.removal.begun for _, r in retired_replicas(self._catalogue))
        return min(self._look_s(), self._next_s) if has_begun else self._look_s()

    def due(self, now_s: float) -> Iterator[tuple[SiteName, CopyOrder]]:
        """Yield the orders of now, each with the site that is to carry it out."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + STEP_S
        busy: dict[str, int] = {}
        wanted: set[_Key] = set()
        for of, replica in retired_replicas(self._catalogue):
            removal = replica.removal
            if removal is None or not removal.begun or not has_other(of, replica.domain):
                continue
            wanted.add((of.name, of.version, replica.domain))
            if busy.get(replica.domain, 0) >= AT_ONCE or now_s < _not_before_s(removal):
                continue
            found = self._order(of, replica)
            if found is not None:
                busy[replica.domain] = busy.get(replica.domain, 0) + 1
                self._ordered[of.name, of.version, replica.domain] = found
                yield found
        self._ordered = {key: found for key, found in self._ordered.items() if key in wanted}

    def has_ordered(self, answer: CopyStatus) -> bool:
        """Whether an answer is to an order of a removal."""
        return (answer.name, answer.version, answer.domain) in self._ordered

    def taken(self, site: SiteName, answer: CopyStatus, now_s: float) -> CopySeen | None:
        """Take a site's answer in; return what the core is to know of it.

        That is nothing if the site was not given this order, or is not at its end with it.
        """
        key = answer.name, answer.version, answer.domain
        last = self._ordered.get(key)
        if last is None or last[0] != site or last[1].digest != answer.digest:
            return None
        if answer.phase not in (CopyPhase.DROPPED, CopyPhase.FAILED):
            return None
        if answer.phase is CopyPhase.FAILED and now_s < _not_before_s(self._removal(key)):
            return None
        del self._ordered[key]
        seen = seen_of(answer)
        event = "data_removed" if seen.phase is CopyPhase.DROPPED else "data_not_removed"
        label = f"{seen.name}@{seen.version}"
        log.info(event, data=label, domain=seen.domain, detail=seen.detail)
        return seen

    def _removal(self, key: _Key) -> DataRemoval | None:
        of = self._catalogue.find(*key[:2])
        replica = None if of is None else of.replica_in(key[2])
        return None if replica is None else replica.removal

    def _order(self, of: DataSet, replica: DataReplica) -> tuple[SiteName, CopyOrder] | None:
        there = self._catalogue.domains.get(replica.domain)
        able = [] if there is None else sorted(filter(self._able, there.mounts))
        if there is None or not able:
            return None
        if self._catalogue.in_the_way(of, replica.domain, replica.path):
            return None
        before = self._ordered.get((of.name, of.version, replica.domain))
        last = before[0] if before is not None else None  # has what is half removed
        site = last if last in able else able[0]
        assert site is not None
        order = CopyOrder(
            name=of.name,
            version=of.version,
            domain=replica.domain,
            user=of.owner,
            host="",
            source=f"{there.mounts[site]}/{replica.path}",
            root=there.mounts[site],
            path=replica.path,
            digest=of.digest,
            remove=True,
        )
        return site, order


def _not_before_s(removal: DataRemoval | None) -> float:
    """Unix time before which a removal that has failed is not tried again."""
    if removal is None or not removal.tries:
        return 0.0
    return removal.told_at_s + min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(removal.tries - 1, 16))
