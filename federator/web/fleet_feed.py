"""Nodes of all sites, asked for some sites at a time: of 200 sites no one answer holds all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from federator.model.unreadable import UNREADABLE
from federator.web.topic import Topic
from federator.wire.client_protocol import NodesCall, NodesReply
from federator.wire.holdings_rows import HoldingsCall, HoldingsReply, SiteHoldings
from federator.wire.node_rows import NodeRow

AT_ONCE: Final = 20  # sites of one question
EVERY_S: Final = 5.0  # between two looks at all sites, or where they are many
SLICE_S: Final = 2.0  # between two questions about some of them


class _Listed(msgspec.Struct, frozen=True):
    """The parts of a ``SiteNodes``; its nodes are kept packed, a fifth of their size."""

    at_s: float
    nodes: msgspec.Raw = msgspec.Raw(b"\x90")


_decode: Final = msgspec.msgpack.Decoder(_Listed).decode
_decode_nodes: Final = msgspec.msgpack.Decoder(tuple[NodeRow, ...]).decode


class SiteSeen:
    """What is known of one site's nodes.

    Attributes:
        at_s: Unix time of the site's last list; 0: it gave none.
        detail: why it gave none when it was last asked; "": it did.
        holdings: of the federation there.
        version: another number whenever the nodes or the holdings are others.
    """

    __slots__ = ("_nodes", "at_s", "detail", "holdings", "version")

    def __init__(self, name: str) -> None:
        self.at_s = 0.0
        self.detail = "it has not been asked yet"
        self.holdings = SiteHoldings(site=name)
        self.version = 0
        self._nodes = b"\x90"

    def nodes(self) -> tuple[NodeRow, ...]:
        """Its nodes, in its order.

        Raises:
            *UNREADABLE: an agent's list cannot be read.
        """
        return _decode_nodes(self._nodes)

    def take_nodes(self, raw: bytes, detail: str) -> None:
        """Take in a site's list, or why there is none; then the last one stays."""
        self.detail = detail
        if not raw:
            return
        try:
            listed = _decode(raw)
        except UNREADABLE:
            self.detail = "its list of nodes cannot be read"
            return
        self.at_s = listed.at_s
        if bytes(listed.nodes) != self._nodes:
            self._nodes = bytes(listed.nodes)
            self.version += 1

    def take_holdings(self, held: SiteHoldings) -> None:
        """Take in what the federation holds there."""
        if held != self.holdings:
            self.holdings = held
            self.version += 1


class FleetFeed:
    """The nodes of all sites, which are those that the daemon names.

    Attributes:
        sites: what is known of each, in the daemon's order.
        holdings, nodes: the two questions, each of which goes through all sites.
    """

    def __init__(self) -> None:
        self.sites: dict[str, SiteSeen] = {}
        self._turns = {"holdings": 0, "nodes": 0}
        self.holdings: Topic[HoldingsReply] = Topic(
            "fleet",
            lambda: HoldingsCall(clusters=self._next("holdings")),
            HoldingsReply,
            EVERY_S,
            heard=self._take_holdings,
        )
        self.nodes: Topic[NodesReply] = Topic(
            "fleet",
            lambda: NodesCall(clusters=self._next("nodes")),
            NodesReply,
            EVERY_S,
            heard=self._take_nodes,
        )

    def know(self, sites: Sequence[str]) -> None:
        """Take in which sites there are."""
        if list(sites) != list(self.sites):
            self.sites = {name: self.sites.get(name) or SiteSeen(name) for name in sites}
            every_s = max(SLICE_S, min(EVERY_S, EVERY_S * AT_ONCE / max(1, len(sites))))
            self.holdings.every_s = self.nodes.every_s = every_s

    @property
    def topics(self) -> tuple[Topic[Any], ...]:
        """The holdings first: they are at hand, while a site's nodes take a moment."""
        return self.holdings, self.nodes

    def _take_nodes(self, reply: NodesReply) -> None:
        for row in reply.sites:
            if row.site in self.sites:
                self.sites[row.site].take_nodes(row.nodes, row.detail)

    def _take_holdings(self, reply: HoldingsReply) -> None:
        for row in reply.sites:
            if row.site in self.sites:
                self.sites[row.site].take_holdings(row)

    def _next(self, what: str) -> tuple[str, ...]:
        """The sites whose turn it is; () means all to the daemon, which are none yet, or few."""
        names = tuple(self.sites)
        first = self._turns[what] if self._turns[what] < len(names) else 0
        self._turns[what] = first + AT_ONCE
        return names[first : first + AT_ONCE]
