"""Defragmentation: whether it is worth it that small jobs move so that a gang fits.

A site plans the moves (``bid.moves``), in the round in which a blocked gang may have a claim. Here
it is decided: what the gang is spared of waiting, in GPU-seconds, must be more than the work that
the movers lose, by a margin. Movers are victims like others: of the eviction budget, told when the
site has accepted the gang, spared afterwards for the cooldown. Their places are held for them
(``state.moves``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

from federator.model.defragment import Defragment
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.auction import Award
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules

ADVISED_S: Final = 600.0  # advice is shown for so long
LONGEST_WAIT_S: Final = 86_400.0  # of a prediction no more is believed


class Defragmentation:
    """Decides about moves, and keeps the advice that was not followed.

    Args:
        sites: as they last were.
        ledger: which keeps who moves.
        rules: see ``Rules``.
    """

    def __init__(self, sites: Mapping[SiteName, SiteView], ledger: Ledger, rules: Rules) -> None:
        self._sites = sites
        self._ledger = ledger
        self._rules = rules
        self._advice: dict[WorkloadId, tuple[float, Refusal]] = {}  # with when it was given

    def begin_pass(self, now_s: float) -> None:
        """Forget advice that is old."""
        since_s = now_s - ADVISED_S
        self._advice = {id_: said for id_, said in self._advice.items() if said[0] > since_s}

    def moves_left(self, turn: Transaction) -> int:
        """The workloads that may move now."""
        quiet = self._rules.quiet_hours
        if quiet is not None and not quiet.has(turn.now_s):
            return 0
        moved = self._ledger.moves.since(turn.now_s - self._rules.preempt_window_s)
        return max(0, self._rules.defragment_moves - moved)

    def worth(self, turn: Transaction, offers: Sequence[Award]) -> list[Award]:
        """Those of a gang's offers for which others move, and that are worth it; best first.

        In mode advisory there are none: what would be worth it is kept as advice.
        ``offers``: nothing is against their victims and moves (``AwardChoice.claimable``).
        """
        found = [offer for offer in offers if offer.bid.moves and self._pays(offer, turn.now_s)]
        if found and self._rules.defragment is Defragment.ADVISORY:
            self._advice[found[0].id] = turn.now_s, self._said(found[0])
            return []
        return found

    def advice(self, id_: WorkloadId) -> Refusal | None:
        """The moves that would let a waiting workload start, in mode advisory; None: none known."""
        found = self._advice.get(id_)
        return None if found is None else found[1]

    def _pays(self, offer: Award, now_s: float) -> bool:
        saved_s = min(offer.bid.waits_s, LONGEST_WAIT_S) - self._rules.grace_s
        lost_gpu_s = offer.bid.score.lost_work_gpu_s
        if not (isfinite(lost_gpu_s) and saved_s > 0 and lost_gpu_s >= 0):
            return False
        if _gpus_of(offer) * saved_s <= lost_gpu_s * self._rules.defragment_margin:
            return False
        return all(self._may_have(offer, id_, node, now_s) for id_, node in offer.bid.moves)

    def _may_have(self, offer: Award, id_: int, node: str, now_s: float) -> bool:
        """Tell whether the federation has nothing against a mover's new node."""
        entry = self._ledger.entries.get(WorkloadId(id_))
        if entry is None or not self._sites[offer.site].has_node(node):
            return False
        is_drained = self._ledger.drains.of(offer.site, (node,)) is not None
        return not is_drained and node not in entry.bad_nodes.avoided(offer.site, now_s)

    def _said(self, offer: Award) -> Refusal:
        moved = sum(self._ledger.entries[WorkloadId(id_)].held_gpus for id_ in offer.bid.victims)
        reason = Reason(
            code=ReasonCode.DEFRAGMENT,
            needed=len(offer.bid.moves),
            free=moved,
            unit="GPUs",
            detail=offer.site,
            more=round(offer.bid.score.lost_work_gpu_s),
            more_in_s=min(offer.bid.waits_s, LONGEST_WAIT_S),
        )
        return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))


def _gpus_of(offer: Award) -> int:
    return sum(share.gpus for plan in offer.bid.jobs for share in plan.nodes.values())
