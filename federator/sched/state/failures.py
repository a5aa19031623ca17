"""Node failure rates, learned from the log, and the checkpoint interval they call for.

A rate is the mean of a Gamma distribution: what is known from elsewhere, as if it had been seen in
so many node-days here, and what the federation's own jobs have met at the site.

Source:
    The prior is that of Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning
    Research Clusters" (2024): 6.5 failures in 1,000 node-days of Meta's RSC-1. Its weight, 100
    node-days, is our choice: a site that has had as many counts as much as the prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Final

from federator.model.workload import SiteName

DAY_S: Final = 86_400.0
PRIOR_FAILURES_PER_NODE_DAY: Final = 6.5 / 1000
PRIOR_NODE_DAYS: Final = 100.0


@dataclass(slots=True)
class _Seen:
    failures: int = 0
    node_s: float = 0.0


class NodeFailures:
    """Failures of nodes under the federation's jobs, and the time that these ran; none at first."""

    def __init__(self) -> None:
        self._seen: dict[SiteName, _Seen] = {}

    def saved(self) -> dict[SiteName, tuple[int, float]]:
        """Failures and node-seconds seen at each site."""
        return {site: (seen.failures, seen.node_s) for site, seen in self._seen.items()}

    def restore(self, seen: Mapping[SiteName, tuple[int, float]]) -> None:
        """Know what was ``saved``."""
        self._seen = {site: _Seen(failures, node_s) for site, (failures, node_s) in seen.items()}

    def ran(self, site: SiteName, nodes: int, run_s: float, *, failed: bool) -> None:
        """Count an attempt that has left its nodes.

        Args:
            site: where it ran.
            nodes: on how many.
            run_s: for how long; less than 0, by clocks that differ, counts as 0.
            failed: whether nodes ended it; several at once are one failure.
        """
        seen = self._seen.setdefault(site, _Seen())
        seen.node_s += nodes * max(0.0, run_s)
        seen.failures += failed

    def per_node_s(self, site: SiteName) -> float:
        """The rate at a site: failures in a second of one node; above 0."""
        seen = self._seen.get(site, _Seen())
        failures = PRIOR_FAILURES_PER_NODE_DAY * PRIOR_NODE_DAYS + seen.failures
        return failures / (PRIOR_NODE_DAYS * DAY_S + seen.node_s)


def mtbf_s(nodes: int, per_node_s: float) -> float:
    """The mean time until any of so many nodes fails; inf where none ever does."""
    rate = nodes * per_node_s
    return 1.0 / rate if rate > 0.0 else inf


def checkpoint_interval_s(save_s: float, mean_s: float) -> float:
    """The time to work between two checkpoints, so that the least time is lost.

    Args:
        save_s: what a checkpoint takes; 0: not known; inf: longer than anybody has waited.
        mean_s: between failures, see ``mtbf_s``.

    Returns:
        Seconds; 0 where nothing can be suggested.

    Source:
        J. W. Young, "A first order approximation to the optimum checkpoint interval" (1974):
        sqrt(2 C M). Daly's higher orders matter where a save takes as long as a failure is away.
    """
    if save_s <= 0.0 or not isfinite(save_s * mean_s):
        return 0.0
    return sqrt(2.0 * save_s * mean_s)
