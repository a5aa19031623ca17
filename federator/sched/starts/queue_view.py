"""Sees the federation as a play needs it: pools of free GPUs, what runs on them, and who waits.

A pool are the nodes of one site with one type of GPU. Of GPUs that are in use beside the
federation's own only the number is known, by partition: they count as taken on the freest nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

from federator.model.license import Licenses
from federator.model.lifecycle import AT_SITE, WorkloadState
from federator.model.node_names import jobs_at, names_nodes, names_reservation
from federator.model.reason import ReasonCode, Refusal, RefusalKind
from federator.model.sizes import tried_sizes
from federator.model.start_estimate import NoEstimate
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import Job, SiteName, Workload, WorkloadId
from federator.sched.bid.closed_windows import START_TAKES_S
from federator.sched.passes.availability import takes_work
from federator.sched.passes.data_places import has_data
from federator.sched.passes.eviction import checkpoint_in_reach
from federator.sched.passes.federation import Federation
from federator.sched.passes.kept_off import KeptOff
from federator.sched.passes.site_view import SiteView, never_fits
from federator.sched.starts.calibration import COVERAGE
from federator.sched.starts.playout import Closure, Hold, PlayShape, Pool
from federator.sched.state.durations import Lasting
from federator.sched.state.fleet_licenses import asked_of_pools, beyond_pools
from federator.sched.state.learned_durations import LearnedDurations
from federator.sched.state.ledger import WorkloadRecord
from federator.sched.state.recent_runs import size_class

MOST_WAITING: Final = 2_000  # that are played, the first by rank
MOST_SEEN: Final = 2 * MOST_WAITING  # with those among them that cannot be
LEAVES_IN_S: Final = 30.0  # what is on its way out
_ROOM: Final = 1.1
_LEAVING: Final = (WorkloadState.PREEMPTING, WorkloadState.CANCELLING)


class Occupied(NamedTuple):
    """What holds GPUs of a pool, or the fleet's licences and no GPUs: then the pool is any."""

    id: WorkloadId
    pool: int
    hold: Hold
    lasting: Lasting | None  # None: nothing is known of its like
    leaving: bool
    licenses: Licenses = ()


class Queued(NamedTuple):
    """One that waits."""

    id: WorkloadId
    shape: PlayShape
    lasting: Lasting | None
    priority: int  # as ranked
    within_quota: bool
    classes: tuple[str, ...]
    since_s: float  # Unix time


class _Places:
    """The pools, and where their nodes are."""

    def __init__(self, federation: Federation) -> None:
        self._sites = federation.sites
        self._ledger = federation.ledger
        self._rules = federation.rules
        self._licenses = federation.rules.licenses
        held = federation.ledger.counts.licenses
        self.licenses_free = {name: n - held[name] for name, n in self._licenses.items()}
        self.names: list[tuple[SiteName, str]] = []
        self._node_at: dict[tuple[SiteName, str], tuple[int, int]] = {}
        self.free: list[list[int]] = []
        self.slow: list[set[int]] = []  # of each pool: nodes that gangs are kept off
        self._kept_off: dict[SiteName, KeptOff] = {}
        self._groups: list[list[set[str]]] = []  # of each pool: partitions that share nodes
        self._known: dict[tuple[Job, ...], tuple[int, ...]] = {}
        self.closures: tuple[tuple[Closure, ...], ...] = ()
        for site, view in federation.sites.items():
            if view.empty is not None and takes_work(site, view, federation.ledger):
                self._add(site, view, set(federation.ledger.drains.nodes_at(site)))

    def _add(self, site: SiteName, view: SiteView, drained: set[str]) -> None:
        of_type: dict[str, int] = {}
        kept_off = self._kept_off[site] = KeptOff.at(site, view, self._ledger.drains)
        slow = frozenset(kept_off.names)
        for free in view.empty.room.nodes if view.empty is not None else ():
            node = free.node
            if not node.gpus or node.name in drained:
                continue
            if node.gpu_type not in of_type:
                of_type[node.gpu_type] = len(self.names)
                self.names.append((site, node.gpu_type))
                self.free.append([])
                self.slow.append(set())
                self._groups.append([])
            pool = of_type[node.gpu_type]
            self._node_at[site, node.name] = pool, len(self.free[pool])
            if node.name in slow:
                self.slow[pool].add(len(self.free[pool]))
            self.free[pool].append(node.gpus)
            if node.partitions or node.closed_partitions:
                _join(self._groups[pool], {*node.partitions, *node.closed_partitions})

    def hold(self, entry: WorkloadRecord) -> dict[int, list[tuple[int, int]]]:
        """What a workload at a site holds, by pool, taken from what is free."""
        found: dict[int, list[tuple[int, int]]] = {}
        for plan in entry.plan:
            for name, share in plan.nodes.items():
                at = self._node_at.get((entry.site, name))
                if at is not None and share.gpus:
                    pool, node = at
                    gpus = min(share.gpus, self.free[pool][node])
                    self.free[pool][node] -= gpus
                    found.setdefault(pool, []).append((node, gpus))
        return found

    def take_unknown(self, own: Sequence[int]) -> None:
        """Take what is in use beside the federation's own, or not to be had; ``own``: by pool."""
        for pool, (site, kind) in enumerate(self.names):
            rows = [r for r in self._sites[site].summary if r.gpu_type == kind]
            if not rows:
                continue
            taken = {row.partition: row.gpus_alloc + row.gpus_out for row in rows}
            # Partitions that share nodes may count the same GPUs: the one with most counts.
            used = sum(max(taken.get(name, 0) for name in group) for group in self._groups[pool])
            _take_freest(self.free[pool], max(used, *taken.values()) - own[pool])

    def close(self, now_s: float) -> None:
        """Know the windows that close whole pools; one that closes some nodes of it counts not."""
        nodes: list[set[str]] = [set() for _ in self.names]
        for (_, name), (pool, _node) in self._node_at.items():
            nodes[pool].add(name)
        found = tuple(
            tuple(
                Closure(window.starts_at_s - now_s - START_TAKES_S, window.ends_at_s - now_s)
                for window in self._sites[site].windows
                if window.ends_at_s > now_s and not window.cpus and nodes[k] <= {*window.nodes}
            )
            for k, (site, _) in enumerate(self.names)
        )
        self.closures = found if any(found) else ()

    def shape(self, workload: Workload) -> PlayShape | NoEstimate:
        """What it needs, and where it may have that."""
        jobs = workload.jobs
        if not workload.total_gpus:
            return NoEstimate.NO_GPUS
        if beyond_pools(jobs, self._licenses) is not None:
            return NoEstimate.MAY_NOT_START
        if jobs not in self._known:
            self._known[jobs] = tuple(self._pools_for(jobs))
        pools = tuple(
            p
            for p in self._known[jobs]
            if self._sites[self.names[p][0]].knows.get(workload.user, True)
            and has_data(self._ledger, workload, self.names[p][0])
        )
        if not pools:
            return NoEstimate.NO_PLACE
        closes = any(self.closures[p] for p in pools) if self.closures else False
        limit_s = workload.time_limit_s if closes and not names_reservation(jobs) else 0.0
        job, gpus, licenses = jobs[0], workload.total_gpus, asked_of_pools(jobs)
        if len(jobs) == 1 and job.nodes and not gpus % job.nodes:
            nodes, per_node = job.nodes, gpus // job.nodes
        else:
            nodes, per_node = 0, 0
        off_slow = tuple(p for p in pools if self.slow[p] and self._avoids_slow(workload, p))
        return PlayShape(gpus, nodes, per_node, pools, limit_s, licenses, off_slow)

    def _avoids_slow(self, workload: Workload, pool: int) -> bool:
        """Whether it is kept off the slow nodes of this pool's site, as in a pass."""
        site, _ = self.names[pool]
        jobs = workload.jobs
        here = jobs_at(jobs, site) if names_nodes(jobs) else jobs
        return self._kept_off[site].jobs(here, sizes=tried_sizes(workload)) is not here

    def in_reach(self, entry: WorkloadRecord, shape: PlayShape) -> PlayShape | NoEstimate:
        """The shape at the sites that can read the checkpoint of one that has saved."""
        if not entry.saved_at:
            return shape
        pools = tuple(
            p for p in shape.pools if checkpoint_in_reach(entry, self.names[p][0], self._rules)
        )
        return shape._replace(pools=pools) if pools else NoEstimate.NO_PLACE

    def _pools_for(self, jobs: tuple[Job, ...]) -> Iterable[int]:
        for pool, (site, kind) in enumerate(self.names):
            right = all(not job.gpu_types or kind in job.gpu_types for job in jobs)
            if right and never_fits(self._sites, site, jobs) is None:
                yield pool


def _join(groups: list[set[str]], partitions: set[str]) -> None:
    """A node is in these partitions: they are one group from now on."""
    if any(partitions <= group for group in groups):
        return
    apart = [group for group in groups if not group & partitions]
    groups[:] = [*apart, partitions.union(*(g for g in groups if g & partitions))]


def _take_freest(free: list[int], gpus: int) -> None:
    """Take so many GPUs, those of the freest nodes first."""
    for node in sorted(range(len(free)), key=free.__getitem__, reverse=True):
        if gpus <= 0:
            return
        taken = min(gpus, free[node])
        free[node] -= taken
        gpus -= taken


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedQueue:
    """The federation at one instant.

    Attributes:
        queued: in rank order.
        without: those that wait before the last of them and are not played.
        is_cut: others wait behind them, and were not looked at.
    """

    at_s: float
    pools: tuple[Pool, ...]
    occupied: tuple[Occupied, ...]
    queued: tuple[Queued, ...]
    without: dict[WorkloadId, NoEstimate]
    is_cut: bool
    places: _Places
    durations: LearnedDurations

    @property
    def closures(self) -> tuple[tuple[Closure, ...], ...]:
        """When each pool is closed; (): none ever is."""
        return self.places.closures

    def passing_s(self, queued: Queued) -> float:
        """A time limit with which one that waits may be over before a window; 0: none is known.

        Nine in ten of its like would be over with some time left; where none are known it is half
        the time that there is.
        """
        if not queued.shape.limit_s:
            return 0.0
        opens = [self.closures[p] for p in queued.shape.pools]
        open_s = max(min((c.from_s for c in some), default=0.0) for some in opens)
        lasting = queued.lasting
        known = lasting is not None and lasting.longer is not None
        limit_s = open_s / 2
        if lasting is not None and known:
            limit_s = _ROOM * lasting.left_s(COVERAGE)
        return limit_s if limit_s < open_s else 0.0

    def like(self, workload: Workload) -> tuple[PlayShape, Lasting | None] | None:
        """What one that comes would need, and how long it may run; None: it can start nowhere."""
        shape = self.places.shape(workload)
        if isinstance(shape, NoEstimate):
            return None
        return shape, self.durations.lasting_like(workload)

    def with_change(self, changed: Workload) -> PlayedQueue | None:
        """The same where one that is played asks for something else; None: nowhere is a place."""
        shape = self.places.shape(changed)
        if isinstance(shape, NoEstimate):
            return None
        limit_s = changed.time_limit_s
        queued = tuple(
            q._replace(shape=shape, lasting=_within(q.lasting, limit_s))
            if q.id == changed.id
            else q
            for q in self.queued
        )
        return replace(self, queued=queued)

    def with_trial(self, workload: Workload, priority: int) -> PlayedQueue | NoEstimate:
        """The same with one more, which comes after all of its priority.

        It is taken to be within quota unless others of its tenant wait over quota.

        Args:
            workload: not queued; no other has its id.
            priority: at which it would rank within quota.
        """
        shape = self.places.shape(workload)
        if isinstance(shape, NoEstimate):
            return shape
        own = f"tenant {workload.tenant}"
        within = all(q.within_quota for q in self.queued if own in q.classes)
        priority = priority if within else LOWEST_PRIORITY
        at = next((k for k, q in enumerate(self.queued) if q.priority > priority), len(self.queued))
        if at >= MOST_WAITING or (self.is_cut and at == len(self.queued)):
            return NoEstimate.TOO_DEEP
        trial = Queued(
            workload.id,
            shape,
            self.durations.lasting_like(workload),
            priority,
            within,
            classes_of(workload, within),
            self.at_s,
        )
        return replace(self, queued=(*self.queued[:at], trial, *self.queued[at:]))


def queue_view(federation: Federation, now_s: float) -> PlayedQueue:
    """The federation as it is now."""
    ledger, places = federation.ledger, _Places(federation)
    occupied, own = [], [0] * len(places.names)
    for entry in ledger.in_state(*AT_SITE):
        lasting, leaving = ledger.durations.lasting(entry, now_s), entry.state in _LEAVING
        licenses = asked_of_pools(entry.workload.jobs)
        held = places.hold(entry) or ({0: []} if licenses and places.names else {})
        for pool, hold in held.items():
            own[pool] += sum(gpus for _, gpus in hold)
            id_ = entry.workload.id
            occupied.append(Occupied(id_, pool, tuple(hold), lasting, leaving, licenses))
            licenses = ()
    places.take_unknown(own)
    places.close(now_s)
    queued, without, is_cut = _queued(federation, places, now_s)
    return PlayedQueue(
        at_s=now_s,
        pools=tuple(map(Pool, places.free, places.slow)),
        occupied=tuple(occupied),
        queued=tuple(queued),
        without=without,
        is_cut=is_cut,
        places=places,
        durations=ledger.durations,
    )


def _queued(
    federation: Federation, places: _Places, now_s: float
) -> tuple[list[Queued], dict[WorkloadId, NoEstimate], bool]:
    """Those that are played, why others are not, and whether there are more behind them."""
    ledger = federation.ledger
    found: list[Queued] = []
    without: dict[WorkloadId, NoEstimate] = {}
    with ledger.backlog.unchanged():
        for standing in federation.ranked_one_by_one(now_s):
            if len(found) >= MOST_WAITING or len(found) + len(without) >= MOST_SEEN:
                return found, without, True
            entry = ledger.entries[standing.id]
            shape = places.shape(entry.workload)
            if isinstance(shape, PlayShape):
                shape = not_played(federation, entry) or places.in_reach(entry, shape)
            if isinstance(shape, NoEstimate):
                without[standing.id] = shape
                continue
            lasting = ledger.durations.lasting(entry, now_s)
            classes = classes_of(entry.workload, standing.within_quota)
            since_s = max(entry.queued_since_s, entry.ended_at_s)
            found.append(
                Queued(
                    standing.id,
                    shape,
                    lasting,
                    standing.priority,
                    standing.within_quota,
                    classes,
                    since_s,
                )
            )
    return found, without, False


def _within(lasting: Lasting | None, limit_s: float) -> Lasting | None:
    """The same with another limit of what waits."""
    if lasting is None:
        return None if limit_s == inf else Lasting(None, 0.0, limit_s)
    return lasting._replace(limit_s=limit_s)


def not_played(federation: Federation, entry: WorkloadRecord) -> NoEstimate | None:
    """Why sites' refusals keep it out of a play; None: they do not.

    Of a site's own licences only its Slurm knows how many others hold.
    """
    refusals = federation.refusals_of(entry).values()
    waits = [refusal for refusal in refusals if refusal.kind is RefusalKind.WAIT]
    of_tenant = any(reason.code is ReasonCode.TENANT_MODE for r in waits for reason in r.reasons)
    if (refusals and not waits) or of_tenant:
        return NoEstimate.MAY_NOT_START
    of_sites = any(job.licenses for job in entry.workload.jobs)
    if of_sites and waits and all(_wants_licenses(refusal) for refusal in waits):
        return NoEstimate.LICENSES
    return None


def _wants_licenses(refusal: Refusal) -> bool:
    return any(reason.code is ReasonCode.LICENSES for reason in refusal.reasons)


def classes_of(workload: Workload, within_quota: bool) -> tuple[str, ...]:
    """In which a workload is: of its size, its quota (see ``rated_class``) and its tenant."""
    return (
        f"size {size_class(workload.total_gpus)}",
        "within quota" if within_quota else "over quota",
        f"tenant {workload.tenant}",
    )
