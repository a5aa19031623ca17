"""Accounts for every GPU: one job at a time, and its GPU-seconds for every job."""

from __future__ import annotations

from operator import mul

from federator.sim.fast.flat_site import FlatPlan
from federator.sim.trace import Trace


class Books:
    """What each job holds on each node, kept apart from the sites and trusting nothing.

    Args:
        trace: pools and jobs.

    Raises:
        AssertionError: from any method: a GPU is given to two jobs, a job gets more or fewer than
            it asked for, runs too early, twice or not as long as it lasts.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._used = [[0] * pool.nodes for pool in trace.pools]
        self._running: dict[int, tuple[int, FlatPlan, int]] = {}  # site, plan, since when
        self._gpu_s = 0
        self._ended: set[int] = set()

    def start(self, row: int, site: int, plan: FlatPlan, at_s: int) -> None:
        trace, used = self._trace, self._used[site]
        assert row not in self._running, f"row {row} runs already"
        assert row not in self._ended, f"row {row} has ended already"
        assert at_s >= trace.submit_s[row], f"row {row} starts before it comes"
        assert sum(plan.shares) == trace.gpus[row], f"{plan} is not {trace.gpus[row]} GPUs"
        assert len(set(plan.nodes)) == len(plan.nodes), f"{plan} names a node twice"
        for node, share in zip(plan.nodes, plan.shares, strict=True):
            used[node] += share
            assert used[node] <= trace.pools[site].gpus_per_node, f"node {node} is used twice"
        self._running[row] = (site, plan, at_s)

    def end(self, row: int, at_s: int) -> None:
        site, plan, since_s = self._running.pop(row)
        for node, share in zip(plan.nodes, plan.shares, strict=True):
            self._used[site][node] -= share
        self._gpu_s += (at_s - since_s) * sum(plan.shares)
        self._ended.add(row)

    def close(self) -> None:
        """Every job has ended, and the GPU-seconds add up."""
        trace = self._trace
        asked_gpu_s = sum(map(mul, trace.gpus, trace.duration_s))
        assert len(self._ended) == len(trace), f"{len(trace) - len(self._ended)} jobs never ran"
        assert self._gpu_s == asked_gpu_s, f"{self._gpu_s} GPU-seconds instead of {asked_gpu_s}"
        assert not any(map(any, self._used)), "GPUs are held by nobody"
