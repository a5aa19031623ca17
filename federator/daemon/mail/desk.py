"""Mails users as the configuration in force says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from federator.config_mail import MailConfig
from federator.daemon.mail.sending import MailSender
from federator.daemon.mail.tenant_notices import TenantNotices
from federator.daemon.mail.writing import LetterWriter
from federator.daemon.own_config import OwnConfig
from federator.model.event import LogRecord
from federator.sched.state.ledger import Ledger

log = structlog.get_logger()


class MailDesk:
    """Writes and sends mails while its daemon leads.

    Args:
        own: the daemon's configuration, which a reload may change.
        ledger: of the federation.
        act: calls what may block.
    """

    def __init__(self, own: OwnConfig, ledger: Ledger, act: Callable[..., Awaitable[Any]]) -> None:
        self._own = own
        self._ledger = ledger
        self._sender = MailSender(lambda: own.now.mail, own.now.federation, act)
        self._notices = TenantNotices(own, self._sender, act)
        self._config = MailConfig()
        self._writer: LetterWriter | None = None
        self.reconfigure()

    def is_on(self) -> bool:
        """Whether anything is mailed."""
        return self._own.now.mail.is_on

    def reconfigure(self) -> None:
        """Go by what the configuration says now."""
        if self._config != self._own.now.mail:
            self._config = self._own.now.mail
            self._writer = LetterWriter(self._ledger, self._config) if self.is_on() else None

    def note(self, records: Sequence[LogRecord], now_s: float) -> None:
        """Mail what these records say, which are durable and applied to the ledger."""
        if self._writer is None:
            return
        try:
            self._sender.post(self._writer.of(records), now_s)
            self._notices.note(records, now_s)
        except Exception:  # a fault of ours must not end the turn
            log.exception("mail_fault")

    async def run(self) -> None:
        """Send, for ever."""
        await asyncio.gather(self._sender.run(), self._notices.run())
