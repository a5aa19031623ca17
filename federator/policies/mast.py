"""MAST's order: priority under quota, then credit; the default policy of the federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from federator.sched.queue.policy import Ranking
from federator.sched.queue.ranking import CreditRanking
from federator.sched.state.credit import CreditWeights
from federator.sched.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Mast:
    """The GMS-scan pass of MAST (OSDI'24) sec. 4.2.

    Args:
        weights: of the credit.
    """

    by_quota: ClassVar[bool] = True
    weights: CreditWeights = CreditWeights()

    def rank(self, ledger: Ledger, now_s: float) -> Ranking:
        return CreditRanking(ledger.backlog, ledger.holdings, self.weights, now_s)
