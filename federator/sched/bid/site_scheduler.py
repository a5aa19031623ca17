"""Makes a site's bids: nodes in, bids and refusals out; the same for agent and simulator.

Nodes come from the last sweep. What the federation has ordered and Slurm does not show yet is a
*hold*, so the site never offers the same GPUs twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from federator.model.gres import covers, plus, positive
from federator.model.license import SiteLicense, free, left_of, totals
from federator.model.mappings import NOTHING
from federator.model.partition import PartitionSummary
from federator.model.plan import BidRequest, JobPlan, Shrink, shared_node
from federator.model.reason import Reason, ReasonCode
from federator.model.site import (
    Capacity,
    GpuModel,
    LocalJob,
    Node,
    NodeState,
    RunningJob,
    Snapshot,
    VictimTerms,
)
from federator.model.site_message import SiteAnswer, SiteClaim
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.sched.bid.answer_memory import AnswerMemory
from federator.sched.bid.bids import Bidding, Premises
from federator.sched.bid.claimed_nodes import ClaimedNodes
from federator.sched.bid.closed_windows import ClosedWindows
from federator.sched.bid.empty_site import EmptySite, capacity_of
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.fragmentation import REMEMBERED, RequestMix
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.holds import Holds
from federator.sched.bid.known_terms import KnownTerms
from federator.sched.bid.reservation import Ending, KnownEndings, endings_of
from federator.sched.bid.running_jobs import Occupants
from federator.sched.bid.score import Prices


def described(nodes: Iterable[Node], gpus: Mapping[str, GpuModel]) -> tuple[Node, ...]:
    """The nodes, with what is known of their GPU types."""
    return tuple(
        replace(n, gpu_mem_gib=known.mem_gib, nvlink=known.nvlink, gpu_weight=known.weight)
        if n.gpus and (known := gpus.get(n.gpu_type)) is not None
        else n
        for n in nodes
    )


class SiteScheduler:
    """One site's view of itself, and its bids.

    Args:
        partitions: those the federation may use, in order of preference on equal scores.
        mix: of the requests so far; by default there were none.

    Attributes:
        freed: a number that grows whenever something may have come free; what is refused for want
            of hardware would be refused again while it stays the same.
    """

    def __init__(self, partitions: Sequence[str], mix: RequestMix | None = None) -> None:
        self.partitions = tuple(partitions)
        self.nodes: tuple[Node, ...] = ()
        self.capacity = Capacity(nodes=())
        self.mix = RequestMix() if mix is None else mix
        self._fabric = Fabric()
        self._room = FreeCapacity(())  # what is free now, less the holds; kept from sweep to sweep
        self._empty = EmptySite(self.capacity)
        self._memory = AnswerMemory(lambda jobs: self._empty.never_fits(jobs, self.partitions))
        self._mix_epoch = 0  # for which it holds
        self._holds = Holds()
        self._occupants = Occupants(self._room)
        self._terms = KnownTerms()
        self._local: tuple[LocalJob, ...] = ()
        self.freed = 1
        self._endings = KnownEndings(self._endings_by)  # of all of these
        self._claims: tuple[SiteClaim, ...] = ()  # of the last message
        self.licenses: tuple[SiteLicense, ...] = ()
        self._qos: frozenset[str] | None = None
        self.windows: tuple[SiteWindow, ...] = ()  # that were on, or to come, when last looked

    def update(
        self,
        nodes: Iterable[Node],
        visible: Collection[AttemptId],
        *,
        switches: Mapping[str, str] | None = None,
        running: Iterable[RunningJob] | None = None,
        local: Iterable[LocalJob] = (),
        windows: tuple[SiteWindow, ...] = (),
    ) -> None:
        """Take what a sweep has seen.

        Args:
            nodes: all of the site.
            visible: attempts that are counted in the nodes, so that their holds end.
            switches: the switch above each switch; None: as before.
            running: all of the federation that runs here; None: as ``started`` and ``ended`` say.
            local: everything else that runs here.
            windows: in which nodes are not to be had, in order of their starts.
        """
        before, self.nodes = self.nodes, tuple(nodes)
        shown = [a for a in self._holds if a in visible]
        changed = changed_nodes(before, self.nodes)
        names = {node.name for node in changed or ()}
        names.update(name for attempt in shown for name in self.held_nodes(attempt))
        was_free, freed = _free_on(self._room, names), self.freed
        for attempt in shown:
            self.release(attempt)
        fabric = self._fabric if switches is None else Fabric(switches)
        if changed is None or fabric.parents != self._fabric.parents:
            self._fabric = fabric
            self._rebuild()
        elif names:
            self._has_changed()
            self._room.renew(changed)
            self._holds.take_again(self._room, {node.name for node in changed})
            # A hold that ends because its job is seen to run frees nothing.
            self.freed = freed + _is_more(_free_on(self._room, names), was_free)
        self._close(windows)
        others = tuple(local)
        if others != self._local:
            self._local = others
            self._has_freed()
        if running is not None:
            seen = {job.id: self._terms.of(job) for job in running}
            frees, changes = self._occupants.replace(seen)
            if frees:
                self._has_freed()
            elif changes:
                self._has_changed()

    def count_licenses(self, licenses: tuple[SiteLicense, ...]) -> None:
        """Take over the licences that the sweep of the last ``update`` has seen."""
        had, self.licenses = self.licenses, licenses
        if totals(had) != totals(licenses):
            self._rebuild()
        elif had != licenses:
            for before, now in zip(had, licenses, strict=True):
                self._room.licenses[now.name] += now.free - before.free
            more = any(now.free > then.free for then, now in zip(had, licenses, strict=True))
            (self._has_freed if more else self._has_changed)()

    def know_qos(self, names: frozenset[str] | None) -> None:
        """Take over the QOS of the site; None: it does not say."""
        if names != self._qos:
            self._qos = names
            self._rebuild()

    def _close(self, windows: tuple[SiteWindow, ...]) -> None:
        if windows != self.windows:
            self.windows = windows
            self._has_freed()

    def _has_changed(self) -> None:
        """Less is free than there was, or others will end when."""
        self._endings.forget()
        self._memory.forget()

    def _has_freed(self) -> None:
        """More may be free than there was."""
        self.freed += 1
        self._has_changed()

    def hold(
        self,
        attempt: AttemptId,
        jobs: tuple[JobPlan, ...],
        ends_by_s: float = inf,
        victims: tuple[int, ...] = (),
        shrinks: tuple[Shrink, ...] = (),
    ) -> None:
        """Keep what a launch order takes until a sweep shows it.

        Args:
            attempt: whose launch.
            jobs: its plans.
            ends_by_s: when its time limit will be over, if it starts now.
            victims: workloads that leave for it, and hold part of its nodes until they have.
            shrinks: optional jobs of others, of which the same holds.
        """
        self.release(attempt)
        clearing = frozenset([*shrinks, *(Shrink(id_, 0) for id_ in victims)])
        self._holds.add(attempt, jobs, ends_by_s, clearing)
        self._has_changed()
        for plan in jobs:
            self._room.take(plan)
        if clearing:
            self._occupants.leaving = self._holds.leaving

    def release(self, attempt: AttemptId) -> None:
        """Forget a hold; harmless when there is none."""
        if attempt not in self._holds:
            return
        for plan in self._holds.remove(attempt):
            self._room.release(plan)
        self._has_freed()
        self.cleared(attempt)

    def cleared(self, attempt: AttemptId) -> None:
        """Those who had to leave for a hold have left; if they come back they may be evicted."""
        if self._holds.cleared(attempt):
            self._occupants.leaving = self._holds.leaving

    def held_nodes(self, attempt: AttemptId) -> tuple[str, ...]:
        """The nodes of a hold; none where there is none."""
        return self._holds.nodes_of(attempt)

    def holds(
        self, jobs: Iterable[JobPlan], victims: Iterable[int] = (), shrinks: Iterable[Shrink] = ()
    ) -> Reason | None:
        """Check that a plan still fits; None when it does, else what is in its way.

        Args:
            jobs: the plan.
            victims: workloads that will have left by then.
            shrinks: optional jobs of others that will have.
        """
        plans = tuple(jobs)
        shared = shared_node(plans)
        if shared:
            twice = f"node {shared} is planned for two jobs of one workload"
            return Reason(code=ReasonCode.LAUNCH_REFUSED, detail=twice)
        gone = self._occupants.going(victims, shrinks)
        for occupant in gone:
            occupant.release()
        taken: list[JobPlan] = []
        wrong = None
        for plan in plans:
            wrong = _in_the_way(plan, self._room)
            if wrong is not None:
                break
            self._room.take(plan)
            taken.append(plan)
        for plan in taken:
            self._room.release(plan)
        for occupant in gone:
            occupant.restore()
        return wrong

    def rank(self, terms: Mapping[WorkloadId, VictimTerms]) -> None:
        """Take over on which terms those who run here may be evicted; who has none may not be.

        They hold until the next word, also for those that sweeps show later.
        """
        for job in self._terms.renew(terms, self._occupants.jobs):
            self._occupants.add(job)
            self._endings.forget()  # optional jobs end one by one

    def expect(
        self, ends: Mapping[WorkloadId, float], prices: Prices = NOTHING, cells: bool = False
    ) -> None:
        """Take over what the federation expects, until the next word.

        What is remembered does not depend on predicted ends, see ``RefusalDetails.said_again``.

        Args:
            ends: when those who run here are predicted to be over.
            prices: what GPUs cost here.
            cells: whether jobs break the smallest cells that hold them.
        """
        self._endings.expect(ends)
        if prices != self._room.prices:
            self._room.prices = prices
            self._memory.forget()
        if cells != self._room.cells:
            self._room.keep_cells(cells)
            self._memory.forget()

    def started(self, job: RunningJob) -> None:
        """A workload of the federation runs here; its nodes' ``*_alloc`` count it already."""
        self._occupants.add(self._terms.of(job))
        self._has_changed()

    def ended(self, id_: int) -> None:
        """It runs no more; harmless when it is not known."""
        self._occupants.remove(id_)
        self._has_freed()

    def bid(
        self,
        requests: Iterable[BidRequest],
        now_s: float = 0.0,
        *,
        reserve: BidRequest | None = None,
        reserving: bool = False,
        claims: tuple[SiteClaim, ...] = (),
    ) -> tuple[SiteAnswer, ...]:
        """Answer each request in order, as if all bids made before it had won.

        A bid stays valid when one made before it loses.

        Args:
            requests: in rank order.
            now_s: Unix time.
            reserve: a blocked workload for which room is kept here, so that what is bid for may
                not delay it.
            reserving: without ``reserve``, whether room is kept for the first of the requests that
                finds none.
            claims: nodes that are to come free for workloads that wait.
        """
        self._memory.bound()
        if claims != self._claims:  # with others, other answers
            self._claims = claims
            self._memory.forget()
        self._close(tuple(w for w in self.windows if w.ends_at_s > now_s))
        premises = Premises(
            room=self._room,
            partitions=self.partitions,
            occupants=self._occupants,
            memory=self._memory,
            endings=self._endings,
            claims=ClaimedNodes(claims, self._room, self._occupants),
            windows=ClosedWindows(self.windows, self._room),
        )
        bidding = Bidding(premises, now_s, reserving=reserving and reserve is None)
        if reserve is not None:
            bidding.reserve_for(reserve)
        asked = tuple(requests)
        for request in asked[-REMEMBERED:]:  # those before would be forgotten for them
            self.mix.note(request.id, request.jobs)
        if self._mix_epoch != self.mix.epoch:
            self._mix_epoch = self.mix.epoch
            self._memory.forget()
        answers = tuple(bidding.answer(request) for request in asked)
        bidding.close()
        return answers

    def snapshot(self, site: SiteName, now_s: float) -> Snapshot:
        """The state that bids are made on now: the last sweep, and on top of it what is held.

        Nodes that the sweep could not read are left out, also of what runs on them.
        """
        nodes = (
            _with_holds(node, self._room.by_name[node.name])
            if node.name in self._room.by_name
            else node
            for node in self.nodes
        )
        names = {node.name for node in self.nodes}
        running = (
            replace(
                job,
                nodes={n: share for n, share in job.nodes.items() if n in names},
                components={
                    k: {n: share for n, share in held.items() if n in names}
                    for k, held in job.components.items()
                },
            )
            for job in self._occupants.jobs
        )
        local = (replace(j, nodes=tuple(n for n in j.nodes if n in names)) for j in self._local)
        return Snapshot(
            site=site,
            now_s=now_s,
            nodes=tuple(nodes),
            running=tuple(job for job in running if job.nodes),
            local=tuple(job for job in local if job.nodes),
            switches=self._fabric.parents,
            windows=self.windows,
            licenses=left_of(self.licenses, self._room.licenses),
        )

    def _endings_by(self, predicted: Mapping[WorkloadId, float]) -> list[Ending]:
        held = self._holds.endings()
        return endings_of(self._room, self._occupants, self._local, held, predicted)

    def _rebuild(self) -> None:
        """The site is built differently, or a node has come or gone."""
        self._has_freed()
        capacity = capacity_of(self.nodes, self.licenses, self._qos)
        if capacity != self.capacity:
            self.capacity = capacity
            self._empty = EmptySite(capacity)
            self._memory.forget_never()
        nodes = (n for n in self.nodes if n.state.takes_jobs)
        order = {node.name: k for k, node in enumerate(self.nodes)}
        prices, cells = self._room.prices, self._room.cells
        self._room = FreeCapacity(nodes, self._fabric, self.mix, free(self.licenses), order)
        self._room.prices = prices
        self._room.keep_cells(cells)
        self._occupants = Occupants(self._room, self._occupants.jobs, self._holds.leaving)
        self._holds.take_from(self._room)


def _free_on(room: FreeCapacity, names: Iterable[str]) -> dict[str, dict[str, int]]:
    """The amounts that are free on some nodes, by node and resource."""
    return {
        name: {"gpus": f.gpus, "cpus": f.cpus, "mem_mib": f.mem_mib, **f.gres}
        for name in names
        if (f := room.by_name.get(name)) is not None
    }


def _is_more(now: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether anything is free on a node that was not."""
    return any(
        amount > before.get(name, {}).get(resource, 0)
        for name, free in now.items()
        for resource, amount in free.items()
    )


def _with_holds(node: Node, f: FreeNode) -> Node:
    gpus, cpus, mem_mib = node.gpus - f.gpus, node.cpus - f.cpus, node.mem_mib - f.mem_mib
    gres = positive(plus(node.gres, f.left.gres, -1)) if node.gres else node.gres_alloc
    held = (gpus, cpus, mem_mib, gres)
    if held == (node.gpus_alloc, node.cpus_alloc, node.mem_mib_alloc, node.gres_alloc):
        return node
    return replace(node, gpus_alloc=gpus, cpus_alloc=cpus, mem_mib_alloc=mem_mib, gres_alloc=gres)


def _in_the_way(plan: JobPlan, room: FreeCapacity) -> Reason | None:
    for name, share in plan.nodes.items():
        f = room.by_name.get(name)
        if f is None or not f.has(share):
            return Reason(
                code=ReasonCode.LAUNCH_REFUSED,
                job=plan.name,
                unit="GPUs",
                needed=share.gpus,
                free=max(0, f.gpus) if f else 0,
                detail=f"node {name} was taken",
            )
    if not covers(room.licenses, plan.licenses):
        taken = ReasonCode.LAUNCH_REFUSED
        return Reason(code=taken, job=plan.name, detail="its licences were taken")
    return None


def changed_nodes(before: Sequence[Node], now: Sequence[Node]) -> list[Node] | None:
    """Nodes on which something else is free than before; None when more than that has changed."""
    if len(before) != len(now):
        return None
    changed = []
    for old, new in zip(before, now, strict=True):
        if old is new or old == new:
            continue
        as_before = replace(
            new,
            state=old.state,
            cpus_alloc=old.cpus_alloc,
            mem_mib_alloc=old.mem_mib_alloc,
            gpus_alloc=old.gpus_alloc,
            gres_alloc=old.gres_alloc,
        )
        if as_before != old or old.state.takes_jobs != new.state.takes_jobs:
            return None
        changed.append(new)
    return changed


def summarise(
    nodes: Iterable[Node], partitions: Sequence[str], mix: RequestMix | None = None
) -> tuple[PartitionSummary, ...]:
    """Count a site's nodes by partition, GPU type and state, for fsinfo.

    In a partition that takes no jobs, nodes that would take some count as drained, and so do those
    that the site keeps for a reservation of its own. ``mix``: by it free GPUs count as stranded.
    """
    rows: dict[tuple[str, str], dict[str, int]] = {}
    racks: dict[tuple[str, str], dict[str, list[int]]] = {}
    for node in nodes:
        for partition in node.partitions + node.closed_partitions:
            if partition not in partitions:
                continue
            closed = node.reserved or partition in node.closed_partitions
            closed = closed and node.state.takes_jobs
            state = NodeState.DRAINED if closed else node.state
            row = rows.setdefault((partition, node.gpu_type), {})
            for key, amount in (
                (f"nodes_{state.value}", 1),
                ("cpus", node.cpus),
                ("cpus_alloc", node.cpus_alloc),
                ("gpus", node.gpus),
                ("gpus_alloc", node.gpus_alloc),
                ("gpus_out", 0 if state.takes_jobs else node.gpus - node.gpus_alloc),
                ("gpus_down", node.gpus - node.gpus_alloc if state is NodeState.DOWN else 0),
            ):
                row[key] = row.get(key, 0) + amount
            free = node.gpus - node.gpus_alloc if state.takes_jobs else 0
            rack = racks.setdefault((partition, node.gpu_type), {})
            rack.setdefault(node.switch, []).append(free)
    return tuple(
        PartitionSummary(
            partition=at[0],
            gpu_type=at[1],
            gpus_stranded=0.0 if mix is None else mix.stranded_of(racks[at].values()),
            **counts,
        )
        for at, counts in rows.items()
    )
