"""Reads how a real Slurm is set up, for the checks of a site; also sends their probe jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from federator.agent.base import CheckpointStatus, Partition, Probe
from federator.model.site import Node, NodeState, SiteJob
from federator.slurm.client import SlurmClient
from federator.slurm.render import probe_call
from federator.wire.agent_protocol import EndedJob, PreemptOrder


class SlurmInspector:
    """One Slurm, as ``federator.agent.base.SiteInspector``: shows how its site is set up.

    Args:
        client: asks its Slurm.
    """

    def __init__(self, client: SlurmClient) -> None:
        self._client = client
        self._helper = client.helper

    async def version(self) -> str:
        return await self._client.version()

    async def settings(self) -> Mapping[str, str]:
        return await self._client.settings()

    async def partitions(self) -> Sequence[Partition]:
        return (await self._client.partitions()).records

    async def nodes(self) -> Sequence[Node]:
        nodes = (await self._client.nodes()).records
        return [replace(n, state=NodeState.DRAINED) if n.reserved else n for n in nodes]

    async def jobs(self, job_ids: Collection[int]) -> Mapping[int, SiteJob]:
        return {job.job_id: job for job in await self._client.some_jobs(job_ids)}

    async def probe(self, user: str, probe: Probe) -> int:
        return (await self._helper.submit(user, probe_call(probe))).job_id

    async def missing_names(self) -> Sequence[str] | None:
        return None

    async def is_loose(self, user: str) -> bool:
        return await self._helper.is_loose(user)

    async def read_checkpoint_status(
        self, user: str, orders: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        return await self._helper.read_checkpoint_status(user, orders)

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:
        return await self._helper.cancel(user, job_id, pending_only=pending_only)
