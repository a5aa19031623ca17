"""A simulated federation with the metrics of its daemon, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client.core import Metric

from federator.config import FederationConfig
from federator.daemon.metrics.catalogue import as_metrics
from federator.daemon.metrics.term_metrics import TermMetrics
from federator.model.message import Observation, Record
from federator.model.site import Node
from federator.model.workload import SiteName
from tests.fakes.loopback import Loopback

Values = dict[tuple[str, ...], float]


class FakeLink:
    """A channel whose agent has just looked."""

    connections = 1

    def sweep_age_s(self) -> float:
        return 0.5


class FakeHistory:
    """A history that is up to date with a time."""

    def __init__(self, at_s: float, went_back: Mapping[str, float] = MappingProxyType({})) -> None:
        self.at_s, self.went_back_at_s = at_s, went_back


class Counted(Loopback):
    """A ``Loopback`` whose turns are counted as the daemon's loop counts them."""

    metrics: TermMetrics | None = None

    def __init__(self, sites: Mapping[str, Sequence[Node]], *args: Any, **more: Any) -> None:
        super().__init__(sites, *args, **more)
        self.links = {SiteName(name): FakeLink() for name in sites}
        self.history_at_s = FakeHistory(0.0)
        self.config = config_of(*sites)
        self.metrics = TermMetrics(
            self.federation,
            self.config,
            self.links,
            None,
            elapsed=self.clock,
            wall=self.clock,
        )

    def observe(self, observation: Observation) -> None:
        if self.metrics is None:
            super().observe(observation)
            return
        counts, now_s = self.metrics.counts, self.clock.now_s
        counts.turn_begins(now_s)
        commands = self.federation.handle(observation, now_s)
        counts.decided(observation, commands, self.federation.rounds.last_pass)
        events = [c.event for c in commands if isinstance(c, Record)]
        if events:
            counts.recorded(events, 0.003)
        self.history.append((observation, now_s))
        self._carry_out(commands)
        counts.turn_took(0.004)

    def collected(self) -> list[Metric]:
        assert self.metrics is not None
        return as_metrics(self.metrics.collect(self.config))

    def values(self, name: str) -> Values:
        """The samples of one name, by their labels' values; of a histogram name its parts."""
        return values_of(self.collected(), name)

    def value(self, name: str, *labels: str) -> float:
        return self.values(name)[labels]


def values_of(found: Sequence[Metric], name: str) -> Values:
    samples = (sample for metric in found for sample in metric.samples)
    return {tuple(s.labels.values()): s.value for s in samples if s.name == name}


def config_of(*sites: str) -> FederationConfig:
    """The configuration of a federation of these sites."""
    return FederationConfig.model_validate(
        {
            "federation": "demo",
            "store": "memory:",
            "regions": {"west": {"shared": Path("/shared")}},
            "sites": {
                name: {"region": "west", "command": ["/bin/false"], "partitions": ["gpu"]}
                for name in sites
            },
        }
    )
