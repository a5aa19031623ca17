"""The nodes of a simulated Slurm: their states, and what jobs and local users take of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from federator.model.gres import plus
from federator.model.plan import JobPlan
from federator.model.site import Node, NodeShare, NodeState


class SimulatedNodes:
    """The nodes of one cluster.

    Args:
        nodes: as they are when nothing runs.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._empty = {node.name: node for node in nodes}
        self._local: dict[str, NodeShare] = {}  # of local users' jobs, by node
        self._last: tuple[object, object, object, dict[str, Node]] | None = None

    def add(self, node: Node) -> None:
        self._empty[node.name] = node

    def fail(self, name: str) -> None:
        self._empty[name] = replace(self._empty[name], state=NodeState.DOWN)

    def drain(self, name: str, why: str) -> None:
        self._empty[name] = replace(self._empty[name], state=NodeState.DRAINED, drain_reason=why)

    def repair(self, name: str) -> None:
        self._empty[name] = replace(self._empty[name], state=NodeState.IDLE, drain_reason="")

    def repair_all(self) -> None:
        """All nodes work again, and local jobs are gone."""
        self._local.clear()
        for name in self._empty:
            self.repair(name)

    def take_locally(self, name: str, share: NodeShare) -> None:
        """A local user's job takes part of a node; an empty share ends it."""
        self._local[name] = share

    def used_by(self, plans: Iterable[JobPlan]) -> dict[str, Node]:
        """The nodes by name, as they are while jobs hold these plans."""
        held = [item for plan in plans for item in plan.nodes.items()]
        if self._last is not None and self._last[:3] == (held, self._empty, self._local):
            return dict(self._last[3])  # as most sweeps find them
        nodes = dict(self._empty)
        for name, share in [*held, *self._local.items()]:
            nodes[name] = _with(nodes[name], share)
        self._last = (held, dict(self._empty), dict(self._local), nodes)
        return dict(nodes)

    def have_room(self, wanted: Iterable[JobPlan], held: Iterable[JobPlan]) -> bool:
        """Whether a job of these plans can start where it is pinned, beside those that hold."""
        nodes = self.used_by(held)
        for plan in wanted:
            for name, share in plan.nodes.items():
                n = nodes[name]
                if not n.state.takes_jobs or n.gpus - n.gpus_alloc < share.gpus:
                    return False
                if n.cpus - n.cpus_alloc < share.cpus:
                    return False
                nodes[name] = _with(n, share)
        return True


def _with(node: Node, share: NodeShare) -> Node:
    as_it_was = not node.state.takes_jobs or share == NodeShare()
    return replace(
        node,
        state=node.state if as_it_was else NodeState.MIXED,
        gpus_alloc=node.gpus_alloc + share.gpus,
        cpus_alloc=node.cpus_alloc + share.cpus,
        mem_mib_alloc=node.mem_mib_alloc + share.mem_mib,
        gres_alloc=plus(node.gres_alloc, share.gres),
    )
