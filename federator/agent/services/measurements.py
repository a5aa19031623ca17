"""Tells the daemon what attempts have used, as the site's accounts and its nodes measured it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from federator.agent.base import SiteAccounts
from federator.agent.spool import Spool
from federator.errors import SiteUnavailable
from federator.model.tagged import Message
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob, UsageAsk, UsageTaken


class Measurements:
    """The answers to ``UsageAsk``, one at a time: slurmdbd has more to do.

    Args:
        accounts: of this site.
        spool: in which its nodes leave their reports.
        send: sends a message to the daemon.
    """

    def __init__(
        self, accounts: SiteAccounts, spool: Spool, send: Callable[[Message], None]
    ) -> None:
        self._accounts = accounts
        self._spool = spool
        self._send = send
        self._turn = asyncio.Lock()
        self._answered: set[int] = set()  # jobs whose reports go once the daemon asks about others

    async def tell(self, ask: UsageAsk) -> None:
        """Answer; of what cannot be asked now nothing is known."""
        async with self._turn:
            asked = {job.site_job_id for job in ask.jobs}
            await self._spool.remove_usage(self._answered - asked)
            accounts = await self._by_accounts(ask.jobs)
            nodes = await self._spool.usage_of(ask.jobs)
            self._answered = asked
        used = tuple(_joined(use, nodes, job) for use, job in zip(accounts, ask.jobs, strict=True))
        self._send(UsageTaken(ask_id=ask.ask_id, used=used))

    async def _by_accounts(self, jobs: Collection[EndedJob]) -> Sequence[MeasuredUse | None]:
        try:
            return await self._accounts.use_of(tuple(jobs))
        except SiteUnavailable:
            return (None,) * len(jobs)


def _joined(
    accounts: MeasuredUse | None, nodes: Mapping[int, MeasuredUse], job: EndedJob
) -> MeasuredUse | None:
    """Of GPUs the nodes know a mean over the time; Slurm knows the last look of each task."""
    seen = nodes.get(job.site_job_id)
    if accounts is None or seen is None:
        return accounts or seen
    gpus = {
        name: value
        for name in ("gpu_util_frac", "gpu_mem_mib")
        if (value := getattr(seen, name)) is not None
    }
    return msgspec.structs.replace(accounts, **gpus)
