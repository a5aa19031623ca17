"""Tells which jobs are kept off the slow nodes of a site: gangs that have enough others there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from msgspec import structs

from federator.model.reason import Reason, ReasonCode, Refusal
from federator.model.workload import Job, SiteName
from federator.sched.bid.placement import suitable_nodes
from federator.sched.passes.site_view import SiteView
from federator.sched.state.drains import DrainedSites

Jobs = tuple[Job, ...]
Names = tuple[str, ...]


class KeptOff:
    """The slow nodes of one site as of one round. What is worked out once is remembered.

    Args:
        names: of the slow nodes, sorted.
        away: names of nodes that nothing starts on.
        view: of the site; None only where there are no slow nodes.
    """

    def __init__(
        self, names: Names = (), away: Iterable[str] = (), view: SiteView | None = None
    ) -> None:
        self.names = names
        self._slow = frozenset(names)
        self._lacking = self._slow.union(away)
        self._view = view
        capacity = None if view is None else view.capacity
        self._most_gpus = max((n.gpus for n in capacity.nodes), default=0) if capacity else 0
        self._avoided: dict[tuple[Jobs, Names, bool], tuple[Names, ...]] = {}
        self._said: dict[tuple[int, Names], tuple[Refusal, Refusal]] = {}

    @classmethod
    def at(cls, site: SiteName, view: SiteView, drains: DrainedSites) -> KeptOff:
        """Those of a site now."""
        names = drains.limping_at(site)
        return cls(names, drains.nodes.get(site, ()), view) if names else NO_SLOW_NODES

    def __bool__(self) -> bool:
        return bool(self.names)

    def jobs(self, jobs: Jobs, failed: Names = (), sizes: Iterable[int] = ()) -> Jobs:
        """The jobs as the site is asked for them; the same object where nothing is avoided.

        Args:
            jobs: of one workload; nodes that they name are those of the site.
            failed: nodes that failed the workload, sorted; all of its jobs avoid them.
            sizes: numbers of nodes on which an elastic job may start.
        """
        grows = any(size > 1 for size in sizes)
        key = jobs, failed, grows  # equal jobs may be another user's, with names of their own
        if key not in self._avoided:
            self._avoided[key] = tuple(
                self._all(failed) if self._avoids(job, grows) else failed for job in jobs
            )
        avoided = self._avoided[key]
        if not any(avoided):
            return jobs
        return tuple(replace(j, avoid=a) for j, a in zip(jobs, avoided, strict=True))

    def _all(self, failed: Names) -> Names:
        return tuple(sorted({*self.names, *failed})) if failed else self.names

    def _avoids(self, job: Job, grows: bool) -> bool:
        """Whether a job is kept off: it spans nodes, whose links it depends on."""
        spans = grows or (job.nodes or 1) > 1
        if job.nodes is None:  # the fewest that hold its GPUs
            spans = job.total_gpus > self._most_gpus > 0
        return bool(self.names) and spans and self._has_enough_others(job)

    def _has_enough_others(self, job: Job) -> bool:
        """Whether the empty site could start it elsewhere; else it would wait for a quarantine."""
        if self._view is None or self._view.empty is None:
            return True
        if not self._lacking.isdisjoint(job.nodelist):
            return False
        room = self._view.empty.room
        for partition in self._view.partitions:
            if job.partitions and partition not in job.partitions:
                continue
            nodes = [f.node for f in suitable_nodes(replace(job, avoid=()), room, partition)]
            others = [node.gpus for node in nodes if node.name not in self._lacking]
            if len(others) >= (job.nodes or 1) and sum(others) >= job.total_gpus:
                return True
        return False

    def said(self, refusal: Refusal, failed: Names) -> Refusal:
        """A refusal of the site, which cannot tell nodes that failed from slow ones."""
        key = id(refusal), failed
        if key not in self._said:  # the refusal is kept as well, so that its id stays its own
            reasons = tuple(r for reason in refusal.reasons for r in self._apart(reason, failed))
            found = refusal
            if reasons != refusal.reasons:
                found = structs.replace(refusal, reasons=reasons)
            self._said[key] = refusal, found
        return self._said[key][1]

    def _apart(self, reason: Reason, failed: Names) -> tuple[Reason, ...]:
        if reason.code is not ReasonCode.NODE_FAILED:
            return (reason,)
        named = reason.detail.split(",")
        slow = [name for name in named if name in self._slow and name not in failed]
        if not slow:
            return (reason,)
        of_slow = structs.replace(reason, code=ReasonCode.SLOW_NODES, detail=",".join(slow))
        rest = [name for name in named if name not in self._slow or name in failed]
        return (structs.replace(reason, detail=",".join(rest)), of_slow) if rest else (of_slow,)


NO_SLOW_NODES = KeptOff()
