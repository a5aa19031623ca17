"""The federation's part of each node of a site, in GPUs, with its call; nobody's name is in it."""

from __future__ import annotations

import msgspec

from federator.model.tagged import Message


class NodeHoldings(msgspec.Struct, frozen=True, array_like=True):
    """The GPUs of one node that are not just anybody's; packed without field names."""

    owner: int = 0  # held by workloads within quota
    guest: int = 0  # held by workloads over quota, or away from home
    claimed: int = 0  # that a claim wants, whoever holds them now


class SiteHoldings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One site's nodes on which the federation holds or claims something."""

    site: str
    nodes: dict[str, NodeHoldings] = {}
    drained: bool = False  # the federation starts nothing there, as for ``drained_nodes``
    drained_nodes: tuple[str, ...] = ()
    limping_nodes: dict[str, str] = {}  # slow ones, where no job of several nodes starts; and why
    left_off: bool = False  # ``nodes`` is empty: one answer does not hold them; ask for fewer sites


class HoldingsCall(Message, frozen=True, kw_only=True, tag="holdings"):
    """Asks what the federation's workloads hold of each node, and what claims want of it."""

    clusters: tuple[str, ...] = ()  # as of ``QueueCall``


class HoldingsReply(Message, frozen=True, kw_only=True, tag="holdings_are"):
    sites: tuple[SiteHoldings, ...]
    now_s: float
