"""Answers what users ask of a site: its nodes; a signal to a job of theirs, or a lower limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from federator.agent.base import AgentDriver, Partition
from federator.errors import SiteRefused, SiteUnavailable
from federator.model.site import Node
from federator.model.tagged import Message
from federator.wire.agent_protocol import (
    LimitAsk,
    LimitDone,
    NodesAsk,
    NodesTaken,
    SignalAsk,
    SignalDone,
)
from federator.wire.node_rows import NodeRow, PartitionRow, SiteNodes, packed_nodes

ANSWERS: Final = (
    *("checkpoint", "copy", "limit", "names", "nodes", "objects", "output", "remove"),
    *("shadow", "signal", "tenure", "usage", "usage-end", "users"),
)
"""As in ``Hello``."""
NODES_FRESH_S: Final = 5.0  # so long one look at the nodes is the answer for everybody
AT_ONCE: Final = 8  # signals and limits
MAX_BYTES: Final = 16 * 2**20  # of an answer


class UserQuestions:
    """The answers to ``NodesAsk``, ``SignalAsk`` and ``LimitAsk``.

    Args:
        driver: this site's Slurm.
        clock: returns Unix time.
        send: sends a message to the daemon.
    """

    def __init__(
        self, driver: AgentDriver, clock: Callable[[], float], send: Callable[[Message], None]
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._send = send
        self._kept: tuple[tuple[str, ...], SiteNodes] = ((), SiteNodes(at_s=0.0))
        self._looking = asyncio.Lock()
        self._acting = asyncio.Semaphore(AT_ONCE)

    async def nodes(self, ask: NodesAsk) -> None:
        """List the nodes of the federation's partitions."""
        try:
            listed = packed_nodes(await self._listed(ask.partitions))
        except (SiteRefused, SiteUnavailable) as error:
            self._send(NodesTaken(ask_id=ask.ask_id, detail=str(error)[:300]))
            return
        if len(listed) > MAX_BYTES:
            self._send(NodesTaken(ask_id=ask.ask_id, detail="the list is beyond a frame"))
        else:
            self._send(NodesTaken(ask_id=ask.ask_id, nodes=listed))

    async def signal(self, ask: SignalAsk) -> None:
        """Send a job a signal, as its user."""
        sent = partial(self._driver.signal, ask.user, ask.site_job_id, ask.signal, ask.to)
        self._send(SignalDone(ask_id=ask.ask_id, detail=await self._why_not(sent)))

    async def limit(self, ask: LimitAsk) -> None:
        """Lower the time limit of a job, as its user."""
        lowered = partial(self._driver.limit, ask.user, ask.site_job_id, ask.minutes)
        self._send(LimitDone(ask_id=ask.ask_id, detail=await self._why_not(lowered)))

    async def _why_not(self, act: Callable[[], Awaitable[None]]) -> str:
        """Act; return why that was not possible."""
        try:
            async with self._acting:
                await act()
        except (SiteRefused, SiteUnavailable) as error:
            return (str(error) or type(error).__name__)[:300]
        return ""

    async def _listed(self, partitions: tuple[str, ...]) -> SiteNodes:
        async with self._looking:  # who asks meanwhile gets the same answer
            return await self._look(partitions)

    async def _look(self, partitions: tuple[str, ...]) -> SiteNodes:
        now_s = self._clock()
        asked, listed = self._kept
        if asked == partitions and 0 <= now_s - listed.at_s < NODES_FRESH_S:
            return listed
        known = await self._driver.partitions()
        nodes = await self._driver.nodes()
        listed = SiteNodes(
            at_s=now_s,
            nodes=node_rows(nodes, partitions),
            partitions=tuple(_partition_row(p) for p in known if p.name in partitions),
        )
        self._kept = (partitions, listed)
        return listed


def node_rows(nodes: Sequence[Node], partitions: Sequence[str]) -> tuple[NodeRow, ...]:
    """The nodes of these partitions, in their order, and of each those partitions alone."""
    rows = []
    for node in nodes:
        mine = tuple(p for p in node.partitions + node.closed_partitions if p in partitions)
        if mine:
            rows.append(_node_row(node, mine))
    return tuple(rows)


def _node_row(node: Node, partitions: tuple[str, ...]) -> NodeRow:
    return NodeRow(
        name=node.name,
        state=node.state.value,
        partitions=partitions,
        cpus=node.cpus,
        cpus_alloc=node.cpus_alloc,
        mem_mib=node.mem_mib,
        mem_mib_alloc=node.mem_mib_alloc,
        gpu_type=node.gpu_type,
        gpus=node.gpus,
        gpus_alloc=node.gpus_alloc,
        features=node.features,
        gres=dict(node.gres),
        gres_alloc=dict(node.gres_alloc),
        reason=node.drain_reason,
        reason_by=node.drained_by,
        reason_at_s=node.drained_at_s,
        reserved=node.reserved,
        maintenance=node.maintenance,
        switch=node.switch,
        shape=node.shape,
        weight=node.weight,
    )


def _partition_row(partition: Partition) -> PartitionRow:
    return PartitionRow(
        name=partition.name,
        up=partition.up,
        is_default=partition.is_default,
        max_time_s=partition.max_time_s,
        default_time_s=partition.default_time_s,
        min_nodes=partition.min_nodes,
        max_nodes=partition.max_nodes,
        priority_tier=partition.priority_tier,
        preempt_mode=partition.preempt_mode,
        root_only=partition.root_only,
        over_subscribe=partition.over_subscribe,
        groups=partition.groups,
    )
