"""Keeps orders from a site in shadow mode: it gets only what is answered by reading alone.

What is not listed here is an order, so a kind of message that is new goes to no such site.
"""

from __future__ import annotations

from typing import Final

import structlog

from federator.model.site_message import Ask
from federator.model.site_mode import SiteMode
from federator.model.tagged import Message
from federator.model.workload import SiteName
from federator.wire.agent_protocol import (
    CallAnswer,
    NodesAsk,
    Ping,
    RecoverAsk,
    SnapshotAsk,
    UsageAsk,
    VerifyAsk,
    Welcome,
)

_HARMLESS: Final = (Welcome, SnapshotAsk, NodesAsk, UsageAsk, RecoverAsk, CallAnswer, Ping)

log = structlog.get_logger()


def is_order(message: Message) -> bool:
    """Whether a site acts on it; a verification does if it has a user, as whom jobs are tried."""
    if isinstance(message, VerifyAsk):
        return bool(message.user)
    return not isinstance(message, _HARMLESS)


class ShadowFilter:
    """What may go to one site.

    Args:
        site: its name.
        mode: where the federation acts, everything may; an adviser is asked for bids, too.
    """

    def __init__(self, site: SiteName, mode: SiteMode) -> None:
        self._site, self.mode = site, mode
        self._logged: set[str] = set()  # kinds of orders

    @property
    def shadow(self) -> bool:
        """Whether nothing is done at the site."""
        return not self.mode.acts

    def refuses(self, message: Message) -> bool:
        """Whether the site must not get it."""
        advises = self.mode is SiteMode.ADVISORY and isinstance(message, Ask)
        return self.shadow and not advises and is_order(message)

    def passes(self, message: Message) -> bool:
        """Whether the site may get it; the first of each kind that is dropped is logged."""
        if not self.refuses(message):
            return True
        kind = type(message).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            log.info("shadow_order_dropped", site=self._site, order=kind)
        return False
