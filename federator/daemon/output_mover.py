"""Orders what jobs have written to be sealed, or removed, from sites that mount its domain.

The ledger says what is to be done. Each order is the whole of what its site must know, and may be
given again, so that it does not matter which daemon or agent gave or took the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
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
AT_ONCE: Final = 2  # folders of one domain
LOOKS_S: Final = 60.0  # for folders whose grace is over
LEAST_GRACE_S: Final = 90.0
"""An sbatch that is under way when its job ends makes the folder yet, whatever grace is configured:
twice as long as one can be under way."""
FIRST_RETRY_S: Final = 10.0  # after a failure; twice as long after each further one
LAST_RETRY_S: Final = 600.0
_Key = tuple[WorkloadId, str]  # of a folder: its job, and the domain

log = structlog.get_logger()


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
        self._ordered: dict[_Key, tuple[bool, float]] = {}  # to be dropped? and when
        self._failed: dict[_Key, tuple[int, float]] = {}  # how often, and when it is tried again

    def due(self, now_s: float) -> Iterator[tuple[SiteName, OutputOrder]]:
        """Yield the orders of now, each with the site that is to carry it out."""
        outputs = self._ledger.outputs
        if now_s < self._next_s and outputs.changes == self._changes:
            return
        self._changes, self._next_s = outputs.changes, now_s + LOOKS_S
        busy, wanted = Counter[str](), set[_Key]()
        for kept in list(outputs.due()):
            if now_s > kept.over_at_s + GIVE_UP_S:
                self._observe(_given_up(kept))
                continue
            for domain in kept.folders:
                key = kept.id, domain
                wanted.add(key)
                begins_s = self._begins_s(kept, domain)
                if begins_s > now_s:
                    self._next_s = min(self._next_s, begins_s)
                elif busy[domain] < AT_ONCE and (found := self._order(kept, domain)) is not None:
                    busy[domain] += 1
                    self._next_s = min(self._next_s, now_s + STEP_S)
                    self._ordered[key] = found[1].drop, now_s
                    yield found
        for of in (self._ordered, self._failed):
            for key in of.keys() - wanted:
                of.pop(key)

    def next_s(self) -> float:
        """Unix time at which ``due`` is to be asked again; 0: there is nothing to be done."""
        return self._next_s if next(self._ledger.outputs.due(), None) is not None else 0.0

    def taken(self, site: SiteName, answer: OutputStatus, now_s: float) -> OutputSeen | None:  # noqa: ARG002
        """Take an answer in; return what the core is to know of it."""
        key = WorkloadId(answer.workload), answer.domain
        if answer.phase is CopyPhase.FAILED:
            tries, _ = self._failed.get(key, (0, 0.0))
            wait_s = min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(tries, 16))
            self._failed[key] = tries + 1, now_s + wait_s
        elif answer.phase in (CopyPhase.DONE, CopyPhase.DROPPED):
            self._failed.pop(key, None)
        if answer.phase not in (CopyPhase.FAILED, CopyPhase.DONE, CopyPhase.DROPPED):
            return None
        of = {"workload": answer.workload, "domain": answer.domain}
        if answer.phase is CopyPhase.FAILED:
            log.info("output_not_done", **of, detail=answer.detail)
        else:
            log.info("output_done", **of, phase=answer.phase.value)
        return OutputSeen(
            workload=key[0],
            attempt=answer.attempt,
            domain=answer.domain,
            phase=answer.phase,
            size_bytes=answer.size_bytes,
            files=answer.files,
            digest=answer.digest,
            detail=answer.detail,
        )

    def _begins_s(self, kept: KeptOutput, domain: str) -> float:
        """Unix time from which something is to be done about a folder, or done again.

        What a job left goes after its grace; and so does what it left elsewhere, until it is known
        what becomes of its output.
        """
        drop, key = not self._seals(kept, domain), (kept.id, domain)
        last_drop, last_s = self._ordered.get(key, (drop, -STEP_S))
        begins_s = last_s + STEP_S if last_drop == drop else 0.0
        begins_s = max(begins_s, self._failed.get(key, (0, 0.0))[1])
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
