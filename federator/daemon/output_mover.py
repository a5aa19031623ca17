"""Orders what jobs have written to be sealed, or removed, from sites that mount its domain.

The ledger says what is to be done. Each order is the whole of what its site must know, and may be
given again, so that it does not matter which daemon or agent gave or took the one before. Only what
was ordered is believed, once for each order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

import structlog

from federator.config import FederationConfig
from federator.model.data_output import KeptOutput, OutputPlace, OutputState
from federator.model.dataset import CopyPhase
from federator.model.message import OutputSeen
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.job_outputs import GIVE_UP_S
from federator.sched.state.ledger import Ledger
from federator.wire.agent_protocol import OutputOrder, OutputStatus

STEP_S: Final = 3.0  # between two orders for one folder
AT_ONCE: Final = 2  # folders of one domain, to be sealed; and as many to be removed
TURN_S: Final = 600.0  # for which a folder goes before others; what it began goes on then, too
UNANSWERED_S: Final = 15.0  # then it is as if the site had said that it failed
DETAIL_SIZE: Final = 300
LOOKS_S: Final = 60.0  # for folders whose grace is over
LEAST_GRACE_S: Final = 90.0
"""An sbatch that is under way when its job ends makes the folder yet, whatever grace is configured:
twice as long as one can be under way."""
FIRST_RETRY_S: Final = 10.0  # after a failure; twice as long after each further one
LAST_RETRY_S: Final = 600.0
_Key = tuple[WorkloadId, str]  # of a folder: its job, and the domain
_FINAL: Final = (CopyPhase.FAILED, CopyPhase.DONE, CopyPhase.DROPPED)

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class _Ordered:
    """The orders for a folder, all of one kind; times are Unix times."""

    drop: bool
    last_s: float = 0.0
    turn_s: float | None = None  # since when it goes before others; None: it does not
    silent_s: float | None = None  # the first order that was not answered; None: all were
    awaits: bool = False  # nothing final was said since the last order


class OutputMover:
    """Makes the orders as they come due.

    Args:
        config: how long what is of no use stays.
        ledger: what is to be done.
        able: whether a site is connected whose agent seals and removes.
        observe: told of what nobody tries any more.
    """

    def __init__(
        self,
        config: FederationConfig,
        ledger: Ledger,
        able: Callable[[SiteName], bool],
        observe: Callable[[OutputSeen], None],
    ) -> None:
        self.config = config
        self._ledger = ledger
        self._able = able
        self._observe = observe
        self._next_s = 0.0
        self._changes = -1  # of the ledger's outputs, when they were last looked through
        self._ordered: dict[_Key, _Ordered] = {}
        self._failed: dict[_Key, tuple[int, float]] = {}  # how often, and when it is tried again

    def due(self, now_s: float) -> Iterator[tuple[SiteName, OutputOrder]]:
        """Yield the orders of now, each with the site that is to carry it out."""
        outputs = self._ledger.outputs
        if now_s < self._next_s and outputs.changes == self._changes:
            return
        self._changes, self._next_s = outputs.changes, now_s + LOOKS_S
        busy = Counter[tuple[str, bool]]()
        for kept, domain in self._wanted(now_s):
            slot = domain, not self._seals(kept, domain)
            begins_s = self._begins_s(kept, domain)
            if begins_s > now_s:
                self._next_s = min(self._next_s, begins_s)
                busy[slot] += self._has_turn(kept, domain, now_s)
            elif busy[slot] < AT_ONCE and (found := self._order(kept, domain)) is not None:
                busy[slot] += 1
                self._next_s = min(self._next_s, now_s + STEP_S)
                self._given(kept, domain, now_s)
                yield found

    def next_s(self) -> float:
        """Unix time at which ``due`` is to be asked again; 0: there is nothing to be done."""
        return self._next_s if next(self._ledger.outputs.due(), None) is not None else 0.0

    def taken(self, site: SiteName, answer: OutputStatus, now_s: float) -> OutputSeen | None:
        """Take a site's answer in; return what the core is to know of it.

        Nothing, where it was not asked: of such a folder, for that, or since it said how it ended.
        """
        key = WorkloadId(answer.workload), answer.domain
        last, there = self._ordered.get(key), self._ledger.catalogue.domains.get(answer.domain)
        if last is None or not last.awaits or there is None or site not in there.mounts:
            return None
        if answer.phase is (CopyPhase.DONE if last.drop else CopyPhase.DROPPED):
            return None
        last.silent_s = None
        if answer.phase not in _FINAL:
            return None
        last.awaits, last.turn_s = False, None
        detail = answer.detail[:DETAIL_SIZE]
        of = {"workload": answer.workload, "domain": answer.domain}
        if answer.phase is CopyPhase.FAILED:
            self._fails(key, now_s)
            log.info("output_not_done", **of, detail=detail)
        else:
            self._failed.pop(key, None)
            log.info("output_done", **of, phase=answer.phase.value)
        return OutputSeen(
            workload=key[0],
            attempt=answer.attempt,
            domain=answer.domain,
            phase=answer.phase,
            size_bytes=answer.size_bytes,
            files=answer.files,
            digest=answer.digest,
            detail=detail,
        )

    def _wanted(self, now_s: float) -> list[tuple[KeptOutput, str]]:
        """The folders of which something is to be done, with their domains, in their order.

        Those whose turn it is go first; among equals the one that was not ordered for longest.
        """
        found: list[tuple[KeptOutput, str]] = []
        for kept in list(self._ledger.outputs.due()):
            if now_s > kept.over_at_s + GIVE_UP_S:
                self._observe(_given_up(kept))
            else:
                found += [(kept, domain) for domain in kept.folders]
        keys = {(kept.id, domain) for kept, domain in found}
        for of in (self._ordered, self._failed):
            for key in of.keys() - keys:
                of.pop(key)
        for key, last in self._ordered.items():
            if last.silent_s is not None and now_s - last.silent_s >= UNANSWERED_S:
                last.silent_s = last.turn_s = None
                self._fails(key, now_s)
        return sorted(found, key=lambda each: self._place(each[0], each[1], now_s))

    def _place(self, kept: KeptOutput, domain: str, now_s: float) -> tuple[bool, float]:
        """A folder's place among others: the least goes first."""
        last = self._last(kept, domain)
        last_s = kept.over_at_s if last is None else last.last_s
        return not self._has_turn(kept, domain, now_s), last_s

    def _last(self, kept: KeptOutput, domain: str) -> _Ordered | None:
        """The orders for a folder, of the kind that it needs now; None: none was given."""
        last = self._ordered.get((kept.id, domain))
        return last if last is not None and last.drop != self._seals(kept, domain) else None

    def _given(self, kept: KeptOutput, domain: str, now_s: float) -> None:
        """An order was given."""
        last = self._last(kept, domain)
        if last is None:
            last = _Ordered(drop=not self._seals(kept, domain))
            self._ordered[kept.id, domain] = last
        last.last_s, last.awaits = now_s, True
        last.turn_s = now_s if last.turn_s is None else last.turn_s
        last.silent_s = now_s if last.silent_s is None else last.silent_s

    def _has_turn(self, kept: KeptOutput, domain: str, now_s: float) -> bool:
        last = self._last(kept, domain)
        return last is not None and last.turn_s is not None and now_s < last.turn_s + TURN_S

    def _fails(self, key: _Key, now_s: float) -> None:
        """A try has failed; where it was counted already, as unanswered, it counts no more."""
        tries, again_s = self._failed.get(key, (0, -inf))
        if again_s <= now_s:
            wait_s = min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(tries, 16))
            self._failed[key] = tries + 1, now_s + wait_s

    def _begins_s(self, kept: KeptOutput, domain: str) -> float:
        """Unix time from which something is to be done about a folder, or done again.

        What a job left goes after its grace; and so does what it left elsewhere, until it is known
        what becomes of its output.
        """
        drop, last = not self._seals(kept, domain), self._last(kept, domain)
        begins_s = 0.0 if last is None else last.last_s + STEP_S
        begins_s = max(begins_s, self._failed.get((kept.id, domain), (0, 0.0))[1])
        if drop and kept.state in (OutputState.LEFT, OutputState.SEALING):
            grace_s = max(LEAST_GRACE_S, self.config.data.output_grace_h * 3600)
            begins_s = max(begins_s, kept.over_at_s + grace_s)
        return begins_s

    @staticmethod
    def _seals(kept: KeptOutput, domain: str) -> bool:
        return kept.state is OutputState.SEALING and domain == kept.domain

    def _order(self, kept: KeptOutput, domain: str) -> tuple[SiteName, OutputOrder] | None:
        """The order for one of the sites that can: that of the last attempt, then others."""
        there = self._ledger.catalogue.domains.get(domain)
        able = [] if there is None else sorted(site for site in there.mounts if self._able(site))
        if there is None or not able:
            return None
        able.sort(key=lambda site: site != kept.site)
        tries, _ = self._failed.get((kept.id, domain), (0, 0.0))
        site = able[tries % len(able)]
        place = OutputPlace(
            id=kept.id,
            name=kept.name,
            version=kept.version,
            domain=domain,
            root=there.mounts[site],
            path=kept.path,
        )
        drop = not self._seals(kept, domain)
        return site, OutputOrder(place=place, attempt=kept.attempt, user=kept.user, drop=drop)


def _given_up(kept: KeptOutput) -> OutputSeen:
    return OutputSeen(
        workload=kept.id,
        attempt=kept.attempt,
        domain=kept.domain,
        phase=CopyPhase.FAILED,
        detail=kept.detail or "no site that mounts its storage domain was there",
    )
