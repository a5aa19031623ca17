"""Keeps orders from a site in shadow mode: it gets only what is answered by reading alone.

What is not listed here is an order, so a kind of message that is new goes to no such site.
"""

from __future__ import annotations

from typing import Final

import structlog

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
        shadow: whether it is in shadow mode; else everything may.
    """

    def __init__(self, site: SiteName, *, shadow: bool) -> None:
        self._site = site
        self.shadow = shadow
        self._logged: set[str] = set()  # kinds of orders

    def refuses(self, message: Message) -> bool:
        """Whether the site must not get it."""
        return self.shadow and is_order(message)

    def passes(self, message: Message) -> bool:
        """Whether the site may get it; the first of each kind that is dropped is logged."""
        if not self.refuses(message):
            return True
        kind = type(message).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            log.info("shadow_order_dropped", site=self._site, order=kind)
        return False
