"""Says which messages may go to a site in shadow mode: those that are answered by reading alone.

What is not listed here is an order, so a kind of message that is new goes to no such site.
"""

from __future__ import annotations

from typing import Final

from federator.model.tagged import Message
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


def is_order(message: Message) -> bool:
    """Whether a site acts on it; a verification does if it has a user, as whom jobs are tried."""
    if isinstance(message, VerifyAsk):
        return bool(message.user)
    return not isinstance(message, _HARMLESS)
