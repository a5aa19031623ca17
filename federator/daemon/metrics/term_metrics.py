"""The metrics of one term: what the loop counts, and what its views show."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from federator.config import FederationConfig
from federator.daemon.metrics.catalogue import Collected
from federator.daemon.metrics.counts import Counts
from federator.daemon.metrics.gauges import Gauges, HistoryState, LinkState
from federator.model.workload import SiteName
from federator.sched.passes.federation import Federation
from federator.wire.status_rows import StartsRow


class TermMetrics:
    """The counters of a term, which its loop feeds, and its gauges.

    Args:
        federation: read only.
        config: in force at the beginning.
        links: by site.
        history: None: there is none.
        elapsed: a clock in seconds that never runs backwards.
        wall: Unix time.
    """

    def __init__(
        self,
        federation: Federation,
        config: FederationConfig,
        links: Mapping[SiteName, LinkState],
        history: HistoryState | None,
        *,
        elapsed: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._wall = wall
        self.elapsed = elapsed
        self.counts = Counts(
            federation.ledger, config.sites, elapsed(), lambda: federation.rules.regions
        )
        self._gauges = Gauges(federation, links, history, elapsed, wall())

    def show_starts(self, starts: Callable[[], StartsRow]) -> None:
        """Show from now on how good estimated starts were."""
        self._gauges.starts = starts

    def show_findings(self, findings: Callable[[], Mapping[str, int]]) -> None:
        """Show from now on what the doctor has found, by kind."""
        self._gauges.findings = findings

    def show_training(self, ratios: Callable[[], Mapping[str, float]]) -> None:
        """Show from now on the effective training time ratio of sites."""
        self._gauges.ratios = ratios

    def collect(self, config: FederationConfig) -> list[Collected]:
        """All metrics, as they are now, by the configuration in force."""
        return [*self._gauges.metrics(config, self._wall()), *self.counts.metrics()]
