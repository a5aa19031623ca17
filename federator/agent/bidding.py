"""Bids for workloads on what the last sweep shows, and shows what it bids on."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from federator.agent.folders import CheckpointTimes
from federator.agent.memory import AgentMemory
from federator.agent.sweeping import Sweeper
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site_message import Ask, BidsMade, SiteAnswer
from federator.model.workload import SiteName
from federator.wire.agent_protocol import SnapshotAsk, SnapshotTaken, packed

FRESH_S: Final = 1.0  # bids are made on a sweep no older than this


class SiteBids:
    """Answers to ``Ask`` and ``SnapshotAsk``; all decisions are the site scheduler's.

    Args:
        memory: shared.
        sweeper: looks again where the last look is old.
        saves: is told whose saves matter.
    """

    def __init__(self, memory: AgentMemory, sweeper: Sweeper, saves: CheckpointTimes) -> None:
        self._memory = memory
        self._sweeper = sweeper
        self._saves = saves

    def ask(self, ask: Ask, strangers: frozenset[str]) -> None:
        """Bid, on a fresh sweep if the last one is old."""
        age_s = self._memory.now.elapsed_s - self._sweeper.swept_at_s
        if age_s > max(FRESH_S, self._sweeper.rest_s):
            self._sweeper.when_swept(lambda _ok: self._bid(ask, strangers))
        else:
            self._bid(ask, strangers)

    def _bid(self, ask: Ask, strangers: frozenset[str]) -> None:
        memory = self._memory
        if memory.spool_trouble:  # every launch would be declined
            no = _refusal(RefusalKind.WAIT, ReasonCode.LAUNCH_REFUSED, memory.spool_trouble[:500])
            refused = tuple(SiteAnswer(id=r.id, refusal=no) for r in ask.requests)
            memory.send(BidsMade(pass_id=ask.pass_id, answers=refused))
            return
        self._saves.evictable = frozenset(ask.victims)
        memory.scheduler.rank(ask.victims)
        memory.scheduler.expect(ask.predicted_ends, ask.prices, ask.cells)
        answers = memory.scheduler.bid(
            [r for r in ask.requests if r.user not in strangers],
            memory.now.unix_s,
            reserve=ask.reserve,
            reserving=ask.reserving,
            claims=ask.claims,
        )
        made = [*map(self._softened, answers)]
        for r in ask.requests:
            if r.user in strangers:
                no = _refusal(RefusalKind.REJECT, ReasonCode.UNKNOWN_USER, r.user)
                made.append(SiteAnswer(id=r.id, refusal=no))
        none = BidsMade(pass_id=ask.pass_id, answers=())  # better than no agent
        bids = BidsMade(
            pass_id=ask.pass_id,
            answers=tuple(made),
            freed=memory.scheduler.freed,
            keeps_claims=True,
            keeps_wishes=True,
            keeps_contiguous=True,
            keeps_data=True,
            keeps_outputs=True,
        )
        memory.send(bids, otherwise=none)

    def _softened(self, answer: SiteAnswer) -> SiteAnswer:
        """With nodes that could not be read, *never* cannot be said."""
        if answer.refusal is None or self._sweeper.sees_all_nodes:
            return answer
        waits = structs.replace(answer.refusal, kind=RefusalKind.WAIT)
        return structs.replace(answer, refusal=waits)

    def show(self, ask: SnapshotAsk) -> None:
        """Tell what would be bid on now."""
        memory = self._memory
        if not memory.scheduler.nodes:
            detail = "no sweep has been made yet"
            memory.send(SnapshotTaken(ask_id=ask.ask_id, snapshot=b"", detail=detail))
            return
        taken = memory.scheduler.snapshot(SiteName(memory.site), memory.now.unix_s)
        too_long = SnapshotTaken(ask_id=ask.ask_id, detail="the snapshot is beyond a frame")
        memory.send(
            SnapshotTaken(ask_id=ask.ask_id, snapshot=packed(taken), detail=""), otherwise=too_long
        )


def _refusal(kind: RefusalKind, code: ReasonCode, detail: str) -> Refusal:
    return Refusal(kind=kind, reasons=(Reason(code=code, detail=detail),))
