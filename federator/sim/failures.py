"""Draws what strikes simulated sites from outside: failing nodes, and local users.

Each site draws from a generator of its own, so its failures are the same whatever is scheduled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from math import isfinite
from typing import Protocol

import numpy as np

from federator.model.message import Observation, SiteSent
from federator.model.partition import PartitionSummary
from federator.model.site_message import Report
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.sim.physics import Draws, Physics
from federator.sim.site_state import SimulatedAttempt, SiteState


class SimEventKind(IntEnum):
    """Of what happens at one instant: in this order."""

    END = 0
    LEAVE = 1
    NODE = 2
    LOCAL = 3
    PLAN = 4


class Stage(Protocol):
    """The simulation, as what happens at its sites sees it."""

    now_s: float

    @property
    def sites(self) -> Mapping[SiteName, SiteState]: ...

    def later(self, at_s: float, occasion: SimEventKind, act: Callable[[], None]) -> None: ...

    def see(self, observation: Observation) -> None: ...

    def came_free(self, name: SiteName) -> None: ...

    def break_off(self, attempt: SimulatedAttempt) -> None: ...

    def usage_of(self, site: SiteState) -> tuple[PartitionSummary, ...]: ...


class SiteFailures:
    """Failures and local jobs of all sites.

    Args:
        stage: where they happen.
        physics: how often.
        seed: of the draws.
    """

    def __init__(self, stage: Stage, physics: Physics, seed: int) -> None:
        self._stage = stage
        self._physics = physics
        self._seed = seed
        self._queues: dict[SiteName, deque[tuple[AttemptId, int, float]]] = {}

    def begin(self) -> None:
        physics = self._physics
        for number, (name, site) in enumerate(self._stage.sites.items()):
            self._queues[name] = deque()
            if isfinite(physics.node_mtbf_s):
                self._next_failure(name, self._rng(number, SimEventKind.NODE))
            if physics.local_load and site.site.gpus:
                self._next_local(name, self._rng(number, SimEventKind.LOCAL), 0)

    def _rng(self, site: int, occasion: SimEventKind) -> np.random.Generator:
        return np.random.default_rng([Draws.FAILURES, self._seed, site, occasion])

    # ---- nodes ----

    def _next_failure(self, name: SiteName, rng: np.random.Generator) -> None:
        nodes = self._stage.sites[name].site.nodes
        gap_s = float(rng.exponential(self._physics.node_mtbf_s / len(nodes)))
        node = nodes[int(rng.integers(len(nodes)))].name

        def fail() -> None:
            self._next_failure(name, rng)
            self._fail(name, node)

        self._stage.later(self._stage.now_s + gap_s, SimEventKind.NODE, fail)

    def _fail(self, name: SiteName, node: str) -> None:
        site = self._stage.sites[name]
        if node in site.down:
            return
        site.set_node(node, up=False)
        for attempt in site.on_node(node):
            self._stage.break_off(attempt)
        self._tell(name)

        def repair() -> None:
            site.set_node(node, up=True)
            self._stage.came_free(name)
            self._tell(name)

        self._stage.later(
            self._stage.now_s + self._physics.node_repair_s, SimEventKind.NODE, repair
        )

    # ---- local users ----

    def _next_local(self, name: SiteName, rng: np.random.Generator, number: int) -> None:
        physics, stage = self._physics, self._stage
        largest = min(physics.local_gpus, max(n.gpus for n in stage.sites[name].site.nodes))
        work_gpu_s = physics.local_duration_s * (1 + largest) / 2  # of a mean job
        gap_s = float(rng.exponential(work_gpu_s / (physics.local_load * stage.sites[name].gpus)))
        gpus = int(rng.integers(1, largest, endpoint=True))
        duration_s = float(rng.exponential(physics.local_duration_s))
        key = AttemptId(workload=WorkloadId(-1 - number), attempt=1)

        def arrive() -> None:
            self._next_local(name, rng, number + 1)
            self._queues[name].append((key, gpus, duration_s))
            self.start_local(name)

        stage.later(stage.now_s + gap_s, SimEventKind.LOCAL, arrive)

    def start_local(self, name: SiteName) -> None:
        """Something came free: local users' jobs come first, in order of submission."""
        site, queue = self._stage.sites[name], self._queues[name]
        while queue and site.take_locally(queue[0][0], queue[0][1]):
            key, _, duration_s = queue.popleft()
            self._stage.later(
                self._stage.now_s + duration_s, SimEventKind.LOCAL, self._end(name, key)
            )
            self._tell(name)

    def _end(self, name: SiteName, key: AttemptId) -> Callable[[], None]:
        def end() -> None:
            site = self._stage.sites[name]
            site.give_locally(key)
            self.start_local(name)
            self._tell(name)

        return end

    def _tell(self, name: SiteName) -> None:
        """The federation looks at its queue again when a site tells something else than before."""
        site = self._stage.sites[name]
        report = Report(
            attempts=(),
            partitions=self._stage.usage_of(site) or site.summary(),
            freed=site.scheduler.freed,
        )
        self._stage.see(SiteSent(site=name, message=report))
