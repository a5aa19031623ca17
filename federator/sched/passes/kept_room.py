"""Decides in a pass for which blocked workload each site keeps room.

A site keeps room for one workload, to the end of the pass. While it was not yet known for whom,
each site kept it for the first that it had to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from federator.model.plan import BidRequest
from federator.model.reason import ReasonCode, Refusal
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.round import Round


class KeptRoom:
    """The room that is kept in one pass.

    Attributes:
        at: for whom each site keeps room.
    """

    def __init__(self) -> None:
        self.at: dict[SiteName, BidRequest] = {}
        self._asked_in_vain: set[WorkloadId] = set()

    def assign(
        self, refused: Sequence[WorkloadId], sites: Sequence[SiteName], round_: Round
    ) -> list[WorkloadId]:
        """Let each blocked workload have room kept at the site where it could start first.

        Args:
            refused: those that found no room in this round, in rank order.
            sites: in the order that breaks ties.
            round_: with what the sites say of when they could start.

        Returns:
            Those refused for the sake of one that has its room elsewhere: to be asked again. Once
            in a pass is enough, whatever sites say: so the rounds come to an end.
        """
        later = [(s, round_.until_later[s]) for s in sites if s in round_.until_later]
        if not later:
            return []
        kept = {request.id for request in self.at.values()}
        for id_ in refused:
            predicted = [
                (by_id[id_].starts_in_s or 0.0, sites.index(site), site)
                for site, by_id in later
                if id_ in by_id
                and id_ not in kept
                and by_id[id_].starts_in_s is not None
                and site not in self.at
            ]
            if predicted:
                self.at[min(predicted)[2]] = round_.requests[id_]
        in_vain = [
            id_ for id_ in refused if id_ not in self._asked_in_vain and self._in_vain(id_, later)
        ]
        self._asked_in_vain.update(in_vain)
        return in_vain

    def _in_vain(
        self, id_: WorkloadId, later: Sequence[tuple[SiteName, Mapping[WorkloadId, Refusal]]]
    ) -> bool:
        """Refused somewhere for the sake of another that has no room kept there."""
        for site, by_id in later:
            kept = self.at.get(site)
            for reason in by_id[id_].reasons if id_ in by_id else ():
                is_other = kept is None or reason.detail != str(kept.id)
                if reason.code is ReasonCode.RESERVED and is_other:
                    return True
        return False

    def was_awarded(self, id_: WorkloadId) -> None:
        """No room is kept for one that starts."""
        self.at = {site: request for site, request in self.at.items() if request.id != id_}
