"""Keeps what comes free on claimed nodes for the workload whose claim it is, while a site bids.

A claim is the federation's: nodes of one site that are to come free for one gang that waits
(``passes.claims``). Nothing is held at the site between two messages; the claims come with each.
"""

from __future__ import annotations

from collections.abc import Sequence

from federator.model.plan import BidRequest, Shrink
from federator.model.site import NodeShare
from federator.model.site_message import SiteClaim
from federator.model.workload import WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.reservation import Held, lift
from federator.sched.bid.running_jobs import Occupants


class ClaimedNodes:
    """The claims at a site during one message; their nodes are fenced until ``close``.

    Args:
        claims: first to be served first.
        room: of the site; what is free of the claims is taken from it.
        occupants: whose victims are spared from all but the claimants.
    """

    def __init__(
        self, claims: Sequence[SiteClaim], room: FreeCapacity, occupants: Occupants
    ) -> None:
        self._claims = claims
        self._room = room
        self._occupants = occupants
        self._leaving = occupants.leaving
        self._held: dict[WorkloadId, Held] = {}
        for claim in claims:
            self._fence(claim)
        if claims:
            self._spare()

    @property
    def exist(self) -> bool:
        """Whether there are any claims."""
        return bool(self._claims)

    def binds(self, asked: BidRequest) -> bool:
        """Tell whether every claim keeps its nodes from this workload."""
        return not self._claims or not any(_is_open_to(claim, asked) for claim in self._claims)

    def open_for(self, asked: BidRequest) -> None:
        """Give back what is fenced for claims that do not bind a workload, until ``shut``."""
        for claim in self._claims:
            if _is_open_to(claim, asked):
                lift(self._held.pop(claim.id, []))
        self._spare(asked)

    def shut(self, asked: BidRequest, *, has_bid: bool) -> None:
        """Fence again what ``open_for`` gave back.

        ``has_bid``: the workload has what it was asked about; a claim of its own is used up.
        """
        for claim in self._claims:
            if claim.id not in self._held and not (has_bid and claim.id == asked.id):
                self._fence(claim)
        self._spare()

    def close(self) -> None:
        """The room is as it was."""
        if not self._claims:
            return
        for held in self._held.values():
            lift(held)
        self._held = {}
        self._occupants.leaving = self._leaving

    def _fence(self, claim: SiteClaim) -> None:
        held: Held = []
        for name, share in claim.nodes.items():
            f = self._room.by_name.get(name)
            if f is not None:
                free = _free_of(f, share)
                f.take(free)
                held.append((f, free))
        self._held[claim.id] = held

    def _spare(self, asked: BidRequest | None = None) -> None:
        """Let nobody evict the victims of a claim that binds a workload."""
        spared = {
            Shrink(victim, 0)
            for claim in self._claims
            if asked is None or not _is_open_to(claim, asked)
            for victim in claim.victims
        }
        self._occupants.leaving = self._leaving | spared if spared else self._leaving


def _is_open_to(claim: SiteClaim, asked: BidRequest) -> bool:
    may_evict = asked.preempt_gpus > 0
    return claim.id == asked.id or (may_evict and asked.priority < claim.priority)


def _free_of(f: FreeNode, share: NodeShare) -> NodeShare:
    """The part of a share that is free."""
    return NodeShare(
        gpus=max(0, min(f.gpus, share.gpus)),
        cpus=max(0, min(f.cpus, share.cpus)),
        mem_mib=max(0, min(f.mem_mib, share.mem_mib)),
        gres=tuple((name, max(0, min(f.gres.get(name, 0), amount))) for name, amount in share.gres),
    )
