"""Tells the daemon what attempts have used, as the site's accounts and its nodes measured it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from federator.agent.base import CheckpointFolders, CheckpointStatus, SiteAccounts
from federator.agent.spool import Spool
from federator.errors import FederatorError, SiteUnavailable
from federator.model.tagged import Message
from federator.model.workload import AttemptId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob, UsageAsk, UsageTaken

NODES_TELL_S: Final = 30.0  # after a job's end: its epilogs may still be at work
_OF_RANKS: Final = ("ranks", "step_s", "load_s", "own_least_s", "own_most_s")
FOLDERS_TAKE_S: Final = 30.0  # all of them; an answer after 120 s is of no use to the daemon


class _Progress(NamedTuple):
    """What folders have told, and of which attempts one did not answer in time."""

    seen: dict[AttemptId, CheckpointStatus]
    silent: set[AttemptId]


class Measurements:
    """The answers to ``UsageAsk``, one at a time: slurmdbd has more to do.

    Args:
        accounts: of this site.
        folders: reads what jobs have left in their checkpoint folders.
        spool: in which its nodes leave their reports.
        send: sends a message to the daemon.
        clock: Unix time.
    """

    def __init__(
        self,
        accounts: SiteAccounts,
        folders: CheckpointFolders,
        spool: Spool,
        send: Callable[[Message], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._accounts = accounts
        self._folders = folders
        self._spool = spool
        self._send, self._clock = send, clock
        self._turn = asyncio.Lock()
        self._newest: UsageAsk | None = None
        # Their reports go once the daemon asks about others.
        self._answered: dict[AttemptId, EndedJob] = {}

    async def tell(self, ask: UsageAsk) -> None:
        """Answer; of what cannot be asked now nothing is known.

        The daemon takes only the answer to what it asked last.
        """
        self._newest = ask
        async with self._turn:
            if self._newest is not ask:
                return
            asked = {job.attempt for job in ask.jobs}
            over = [job for attempt, job in self._answered.items() if attempt not in asked]
            await self._spool.remove_usage(over)
            accounts = await self._by_accounts(ask.jobs)
            nodes = await self._spool.usage_of(ask.jobs)
            progress = await self._progress_of(ask.jobs)
        used = tuple(
            _with_progress(_joined(use, nodes, job), progress.seen.get(job.attempt), job)
            for use, job in zip(accounts, ask.jobs, strict=True)
        )
        again = tuple(
            k
            for k, (use, job) in enumerate(zip(accounts, ask.jobs, strict=True))
            if use is None or job.attempt in progress.silent or self._awaits_nodes(job, nodes)
        )
        unsure = {ask.jobs[k].attempt for k in again}
        self._answered = {job.attempt: job for job in ask.jobs if job.attempt not in unsure}
        self._send(UsageTaken(ask_id=ask.ask_id, used=used, again=again))

    def _awaits_nodes(self, job: EndedJob, nodes: Mapping[AttemptId, MeasuredUse]) -> bool:
        """Whether a node may still report how it used its GPUs."""
        report = nodes.get(job.attempt)
        silent = job.gpus > 0 and (report is None or report.gpu_util_frac is None)
        return silent and self._clock() < job.ended_at_s + NODES_TELL_S

    async def _by_accounts(self, jobs: Collection[EndedJob]) -> Sequence[MeasuredUse | None]:
        try:
            return await self._accounts.use_of(tuple(jobs))
        except SiteUnavailable:
            return (None,) * len(jobs)

    async def _progress_of(self, jobs: Collection[EndedJob]) -> _Progress:
        """The notes that jobs have left of their steps and saves; a folder may not answer."""
        by_user: dict[str, list[EndedJob]] = {}
        for job in jobs:
            if job.checkpoint_dir:
                by_user.setdefault(job.user, []).append(job)
        found = _Progress({}, {job.attempt for theirs in by_user.values() for job in theirs})
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLDERS_TAKE_S):
                for user, theirs in by_user.items():
                    await self._look(user, theirs, found)
        return found

    async def _look(self, user: str, theirs: list[EndedJob], found: _Progress) -> None:
        attempts = [job.attempt for job in theirs]
        try:
            seen = await self._folders.read_checkpoint_status(user, theirs)
        except SiteUnavailable:
            return
        except FederatorError:  # nor will it be allowed the next time
            seen = []
        found.seen.update(zip(attempts, seen, strict=False))
        found.silent.difference_update(attempts)


def _with_progress(
    use: MeasuredUse | None, seen: CheckpointStatus | None, job: EndedJob
) -> MeasuredUse | None:
    """A note from before its start is of an earlier run of the same attempt."""
    if seen is None or seen.ready_at_s < job.started_at_s:
        return use
    more: dict[str, float] = {"ready_s": seen.ready_at_s - job.started_at_s, "save_s": seen.save_s}
    if (ranks := seen.ranks) is not None:
        more |= {name: float(getattr(ranks, name)) for name in _OF_RANKS}
        more["slow_rank"] = float(ranks.slowest)
    return msgspec.structs.replace(use or MeasuredUse(), **more)


def _joined(
    accounts: MeasuredUse | None, nodes: Mapping[AttemptId, MeasuredUse], job: EndedJob
) -> MeasuredUse | None:
    """Of GPUs the nodes know a mean over the time; Slurm knows the last look of each task."""
    seen = nodes.get(job.attempt)
    if accounts is None or seen is None:
        return accounts or seen
    gpus = {
        name: value
        for name in MeasuredUse.__struct_fields__
        if (value := getattr(seen, name)) is not None
    }
    return msgspec.structs.replace(accounts, **gpus)
