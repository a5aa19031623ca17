"""Mails a tenant's admins that its quota is hardly used, and that it is lent.

Who is an admin is asked of this host's groups, in a thread: a directory may be slow. What waits is
lost with the process, as all mail.
"""

from __future__ import annotations

import asyncio
import grp
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from federator.config import FederationConfig
from federator.config_tenants import chain_of
from federator.daemon.mail.letters import Letter, plain
from federator.daemon.mail.sending import MailSender
from federator.daemon.own_config import OwnConfig
from federator.model.event import LogRecord, QuotaLoan
from federator.model.quota_loan import LoanStep

MOST_ADDRESSED: Final = 50
"""By one notice."""
_MAILED: Final = frozenset({LoanStep.NOTICED, LoanStep.LENT})

log = structlog.get_logger()


def members_on_this_host(group: str) -> list[str]:
    """The users who are listed as members of a group; none of one that is not known."""
    try:
        return list(grp.getgrnam(group).gr_mem)
    except KeyError:
        return []


class TenantNotices:
    """Notices of loans, as records tell of them.

    Args:
        own: the daemon's configuration, which a reload may change.
        sender: sends them.
        act: calls what may block.
        members: the users of a group.
    """

    def __init__(
        self,
        own: OwnConfig,
        sender: MailSender,
        act: Callable[..., Awaitable[Any]],
        members: Callable[[str], Sequence[str]] = members_on_this_host,
    ) -> None:
        self._own, self._sender, self._act = own, sender, act
        self._members = members
        self._waiting: asyncio.Queue[tuple[QuotaLoan, float]] = asyncio.Queue()

    def note(self, records: Sequence[LogRecord], now_s: float) -> None:
        """Mail what these say of quotas, which are durable."""
        for record in records:
            if isinstance(record, QuotaLoan) and record.step in _MAILED:
                self._waiting.put_nowait((record, now_s))

    async def run(self) -> None:
        """Make them, one after another, for ever."""
        while True:
            await self.make_next()

    async def make_next(self) -> None:
        """Wait for one, and make its mails."""
        record, now_s = await self._waiting.get()
        try:
            people = await self._act(self._people, record)
        except Exception as error:  # whatever a directory's library raises
            log.warning("quota_notice_unsent", tenant=record.tenant, detail=str(error)[:300])
            return
        if not people:
            detail = "it has neither admins nor users"
            log.warning("quota_notice_unsent", tenant=record.tenant, detail=detail)
        config = self._own.now
        self._sender.post([_letter(record, user, config) for user in people], now_s)

    def _people(self, record: QuotaLoan) -> list[str]:
        """The admins of the tenant, or of the nearest above it that has some; else its users."""
        tenants = self._own.now.tenants
        if record.tenant not in tenants:
            return []
        for name in chain_of(record.tenant, tenants):
            groups = tenants[name].admin_groups
            found = dict.fromkeys(user for group in groups for user in self._members(group))
            if found:
                return [*found][:MOST_ADDRESSED]
        return list(tenants[record.tenant].users[:MOST_ADDRESSED])


def _letter(record: QuotaLoan, user: str, config: FederationConfig) -> Letter:
    domain = config.mail.domain
    to = f"{user}@{domain}" if domain and "@" not in user else user
    tenant = plain(record.tenant)
    lent = record.step is LoanStep.LENT
    what = "is lent" if lent else f"is lent from {_clock(record.lends_at_s)} on, unless it is used"
    subject = f"Federator {config.federation}: the quota of {tenant} {what}"
    known = f", on each of the last {record.days} days" if record.days else ""
    body = (
        f"Tenant {tenant} used at most {record.used_frac:.0%} of its quota{known}. "
        f"Its unused quota {what}.\n\n"
        "The guarantee stays: jobs within the quota start as before, and what they wait for is\n"
        "kept free for them. Only what is held back for jobs that are forecast is lent to others,\n"
        "and others may run there when such jobs come.\n\n"
        f"It ends by itself as soon as {config.policy.unused_quota.below_frac:.0%} of the quota is "
        "in use or waited for.\n"
        f"An operator can end it now: federator quotas keep {tenant}\n"
    )
    return Letter(user, to, subject, body, f"quota.{tenant}.{record.at_s:.0f}.{plain(user)}")


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
