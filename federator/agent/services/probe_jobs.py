"""Runs probe jobs: a job on a node takes the whole way of a launch, so it proves that one can.

Ticket, lease, prologs. A probe's attempt is one of workload 0, which none has, so no probe is taken
for the federation's work; it may run for a minute, is not put back by Slurm, and is ended when its
question is answered. Should its agent die, Slurm gives it up after a few minutes. Nodes where
jobs run are left alone: a probe that waits there may take the place of a local job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from federator.agent.base import Probe, SiteInspector
from federator.agent.spool import Spool
from federator.errors import FederatorError
from federator.model.site import Node, SiteJob, SiteJobState
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.agent_protocol import VerifyAsk
from federator.wire.client_protocol import Finding, Verdict

PROBE_S: Final = 40.0  # for a probe to have ended
LOOK_EVERY_S: Final = 2.0  # at all probes together
PROBES_AT_ONCE: Final = 8
_OK, _WARN, _FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL


def found_of(check: str, verdict: Verdict, detail: str) -> Finding:
    """A finding whose detail is one printable line."""
    line = "".join(c if c.isprintable() else " " for c in detail)
    return Finding(check=check, verdict=verdict, detail=line[:500])


def probe_check(node: str) -> str:
    """The name of the finding of a node's probe."""
    return f"probe on {node}"


def words_of(node: Node) -> str:
    """The site's reason why it takes no jobs."""
    return node.drain_reason or "no reason is given"


class Probes:
    """Jobs that do nothing, to see whether one can.

    Args:
        site: its Slurm.
        spool: gives them tickets and leases.
        clock: returns Unix time.
    """

    def __init__(self, site: SiteInspector, spool: Spool, clock: Callable[[], float]) -> None:
        self._site = site
        self._spool = spool
        self._clock = clock
        self._slots = asyncio.Semaphore(PROBES_AT_ONCE)
        self._next = 0
        self._under_way: set[AttemptId] = set()
        self._polling = asyncio.Lock()
        self._polled_at_s = 0.0
        self._submitted: set[int] = set()  # job ids
        self._jobs: Mapping[int, SiteJob] = {}  # of the last poll
        self._nodes: Mapping[str, Node] = {}  # read after some of these had ended

    @property
    def under_way(self) -> frozenset[AttemptId]:
        """Probes that have a lease."""
        return frozenset(self._under_way)

    def attempt(self) -> AttemptId:
        """Never the same within ten days, so that no lease of old is met."""
        self._next = max(self._next + 1, int(self._clock()) % 900_000 * 1000 + 1)
        return AttemptId(workload=WorkloadId(0), attempt=self._next)

    async def on(
        self, ask: VerifyAsk, nodes: Mapping[str, Node | None], partitions: tuple[str, ...]
    ) -> AsyncGenerator[Finding, None]:
        """One finding for each node, as they come; who stops listening ends the probes.

        Args:
            ask: as whom.
            nodes: by name, as they were seen a moment ago; None: there is none.
            partitions: the federation's.
        """
        probes = [
            asyncio.create_task(self._one(ask, name, node, partitions))
            for name, node in nodes.items()
        ]
        try:
            for probe in asyncio.as_completed(probes):
                yield await probe
        finally:
            for each in probes:
                each.cancel()
            await asyncio.gather(*probes, return_exceptions=True)

    async def _one(
        self, ask: VerifyAsk, name: str, node: Node | None, partitions: tuple[str, ...]
    ) -> Finding:
        check = probe_check(name)
        if node is None:
            return found_of(check, _FAIL, "no node of the federation's partitions has this name")
        if not node.state.takes_jobs:
            return found_of(check, _FAIL, f"the node is {node.state.value}: {words_of(node)}")
        if node.gpus_alloc or node.cpus_alloc:
            return found_of(check, _WARN, "busy: jobs run there, so it was not tried")
        partition = next(p for p in partitions if p in node.partitions)
        try:
            async with self._slots, self._admitted(ask.user) as (attempt, ticket):
                probe = Probe(
                    attempt=attempt,
                    partition=partition,
                    account=ask.account,
                    node=name,
                    gpus=node.gpus,
                    ticket=ticket,
                )
                job_id = await self._site.probe(ask.user, probe)
                self._submitted.add(job_id)
                try:
                    return self._outcome(check, name, await self._ended(job_id))
                finally:
                    self._submitted.discard(job_id)
                    with suppress(FederatorError):
                        await self._site.cancel(ask.user, job_id, pending_only=False)
        except FederatorError as error:
            return found_of(check, _FAIL, str(error))

    def _outcome(self, check: str, name: str, job: SiteJob | None) -> Finding:
        now = self._nodes.get(name)
        if now is not None and not now.state.takes_jobs:
            return found_of(check, _FAIL, f"the node is {now.state.value} now: {words_of(now)}")
        if job is None:
            return found_of(check, _FAIL, "Slurm has no record of the probe; see MinJobAge")
        if job.state is SiteJobState.COMPLETED:
            return found_of(check, _OK, "a job ran there")
        if job.state is SiteJobState.PENDING:
            detail = f"busy: the probe did not start within {PROBE_S:.0f} s ({job.reason})"
            return found_of(check, _WARN, detail)
        return found_of(check, _FAIL, f"the probe ended as {job.state.value} ({job.reason})")

    async def _ended(self, job_id: int) -> SiteJob | None:
        """The probe once it has ended, or as it is when that takes too long."""
        until_s = self._clock() + PROBE_S
        while True:
            await asyncio.sleep(LOOK_EVERY_S)  # so a poll since it was submitted has asked for it
            await self._poll()
            job = self._jobs.get(job_id)
            if job is None or job.state.ended or self._clock() >= until_s:
                return job

    async def _poll(self) -> None:
        """Look at all probes, unless somebody has a moment ago."""
        async with self._polling:
            if 0 <= self._clock() - self._polled_at_s < LOOK_EVERY_S:
                return
            began_s, asked = self._clock(), frozenset(self._submitted)
            jobs = await self._site.jobs(asked)
            if any(id_ not in jobs or jobs[id_].state.ended for id_ in asked):
                self._nodes = {node.name: node for node in await self._site.nodes()}
            self._jobs, self._polled_at_s = jobs, began_s

    @asynccontextmanager
    async def _admitted(self, user: str) -> AsyncIterator[tuple[AttemptId, str]]:
        """A probe's attempt with its lease and its ticket, for as long as it is at work."""
        attempt = self.attempt()
        self._under_way.add(attempt)
        ticket = ""
        try:
            ticket = await self._spool.open(attempt, user)
            yield attempt, ticket
        finally:
            self._under_way.discard(attempt)
            await self._spool.shut(ticket)
            await self._spool.release(attempt)
