"""Injects faults: each kind is armed here, and counted where it really strikes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from federator.faults.driver import SbatchOutcome
from federator.faults.kinds import AT_POINT, FaultKind
from federator.faults.log import LogFault
from federator.faults.process import later
from federator.faults.site_host import SiteHost
from federator.faults.slurm import SimulatedJob
from federator.faults.world import USERS, World
from federator.model.site import NodeShare, SiteJobState

ARMED_S: Final = 80.0  # that a named point waits for who comes by
JUMP_S: Final = 600.0
DRAWN_FAULTS: Final = tuple(
    kind
    for kind in FaultKind
    if kind
    not in {
        FaultKind.LATE_FRAME,
        FaultKind.CLIENT_RETRY,
        FaultKind.CLIENT_ANSWER_LOST,
        FaultKind.CLIENT_CANCELS_TWICE,
        FaultKind.CLIENT_CANCELS_TASK,
        FaultKind.CLIENT_REUSES_KEY,
        FaultKind.TWO_AGENTS,
        FaultKind.STANDBY_TAKES_OVER,
        FaultKind.TWO_LEADERS,
    }
)
"""What is drawn from; the others follow from these, or are the users' own."""


class FaultInjector:
    """Injects the faults of one history.

    Args:
        world: that it befalls.
        faults_s: how long.
        menu: the kinds to draw from.
    """

    def __init__(
        self, world: World, faults_s: float, menu: tuple[FaultKind, ...] = DRAWN_FAULTS
    ) -> None:
        self._world = world
        self._rng: Random = world.rng
        self._faults_s = faults_s
        self._stopped = False
        count = self._rng.randint(10, 22)
        self.plan = sorted(
            ((self._rng.uniform(2.0, faults_s), self._rng.choice(menu)) for _ in range(count)),
            key=lambda each: each[0],
        )

    def begin(self) -> None:
        """Have it all happen at its time."""
        later(self._faults_s, self._end)
        for at_s, kind in self.plan:
            later(at_s, self._inject, kind)

    def _end(self) -> None:
        self._stopped = True

    def _inject(self, kind: FaultKind) -> None:
        if kind in AT_POINT:
            role, point = AT_POINT[kind]
            key = ("daemon" if role == "daemon" else self._site().name, point)
            self._world.armed[key] = kind
            later(ARMED_S, self._world.armed.pop, key, None)
            return
        act = getattr(self, f"_{kind.name.lower()}")
        if act() is True:
            self._world.strike(kind)

    def _site(self) -> SiteHost:
        return self._rng.choice(list(self._world.sites.values()))

    def _for_a_while(self, undo: Callable[[], object], least_s: float, most_s: float) -> None:
        later(self._rng.uniform(least_s, most_s), self._undo, undo)

    def _undo(self, undo: Callable[[], object]) -> None:
        if not self._stopped:  # else it is undone
            undo()

    # ---- the daemon ----

    def _daemon_killed(self) -> bool:
        process = self._rng.choice(self._world.daemons).process
        if process is not None:
            process.die()
        return process is not None

    def _daemon_host_lost(self) -> bool:
        """No channel sees its end: what it would say is held back, and lost."""
        for site in self._world.sites.values():
            site.network.holds_down = site.network.holds_up = True
            later(20.0, self._undo, lambda s=site: s.network.heal(lose=True))
        return self._daemon_killed()

    def _daemon_crash_loop(self) -> None:
        deaths: list[bool] = []

        def die() -> None:
            deaths.append(self._daemon_killed())
            if deaths[-1] and sum(deaths) == 2:
                self._world.strike(FaultKind.DAEMON_CRASH_LOOP)

        for turn in range(4):
            later(1.5 * turn, self._undo, die)

    def _daemon_paused(self) -> bool:
        process = self._rng.choice(self._world.daemons).process
        if process is not None:
            process.pause()
            self._for_a_while(process.resume, 4.0, 40.0)
        return process is not None

    def _lease_silent(self) -> None:
        log = self._world.log
        log.silent = True
        log.said.clear()
        self._for_a_while(lambda: setattr(log, "silent", False), 1.0, 12.0)

    def _store_error_nothing(self) -> None:
        self._world.log.fault = LogFault.NOTHING

    def _store_error_added(self) -> None:
        self._world.log.fault = LogFault.ADDED

    def _store_full(self) -> None:
        log = self._world.log
        log.full = True
        log.said.clear()
        self._for_a_while(lambda: setattr(log, "full", False), 3.0, 20.0)

    def _store_slow(self) -> None:
        log = self._world.log
        log.said.clear()
        log.slow_s = self._rng.uniform(0.5, 4.0)
        self._for_a_while(lambda: setattr(log, "slow_s", 0.0), 5.0, 30.0)

    # ---- agents ----

    def _agent_killed(self) -> bool:
        return self._site().kill_agents()

    def _agent_paused(self) -> bool:
        agents = list(self._site().agents)
        for agent in agents:
            agent.pause()
            self._for_a_while(agent.resume, 4.0, 40.0)
        return bool(agents)

    def _journal_full(self) -> None:
        disk = self._site().disk
        disk.journal_full = True
        self._for_a_while(lambda: setattr(disk, "journal_full", False), 5.0, 30.0)

    # ---- the network ----

    def _channel_cut(self) -> bool:
        lines = list(self._site().network.lines)
        for line in lines:
            line.cut()
        return bool(lines)

    def _hold(
        self, kind: FaultKind, sites: list[SiteHost], least_s: float, most_s: float, **how: bool
    ) -> None:
        lasts_s = self._rng.uniform(least_s, most_s)
        held: list[FaultKind] = []

        def strike() -> None:
            if not held:
                held.append(kind)
                self._world.strike(kind)

        for site in sites:
            site.network.on_held = strike
            site.network.holds_down = site.network.holds_down or how.get("down", True)
            site.network.holds_up = site.network.holds_up or how.get("up", True)
            heal = site.network.heal
            later(lasts_s, self._undo, lambda h=heal: h(lose=how.get("lose", False)))

    def _half_open_down(self) -> None:
        self._hold(FaultKind.HALF_OPEN_DOWN, [self._site()], 3.0, 25.0, up=False)

    def _half_open_up(self) -> None:
        self._hold(FaultKind.HALF_OPEN_UP, [self._site()], 3.0, 25.0, down=False)

    def _partition(self) -> None:
        self._hold(FaultKind.PARTITION, [self._site()], 3.0, 30.0)

    def _partition_lost(self) -> None:
        self._hold(FaultKind.PARTITION_LOST, [self._site()], 3.0, 30.0, lose=True)

    def _partition_all(self) -> None:
        self._hold(FaultKind.PARTITION_ALL, list(self._world.sites.values()), 5.0, 30.0)

    def _site_away(self) -> None:
        self._hold(FaultKind.SITE_AWAY, [self._site()], 60.0, 200.0, lose=True)

    def _network_slow(self) -> None:
        network = self._site().network
        network.slow_s, network.said_slow = self._rng.uniform(1.0, 9.0), False
        self._for_a_while(lambda: setattr(network, "slow_s", 0.0), 5.0, 25.0)

    def _order_twice(self) -> None:
        self._site().network.doubles = "down"

    def _news_twice(self) -> None:
        self._site().network.doubles = "up"

    # ---- Slurm ----

    def _slurmctld_down(self) -> None:
        spell = self._site().spell
        spell.down = True
        spell.said.clear()
        self._for_a_while(lambda: setattr(spell, "down", False), 1.5, 50.0)

    def _slurmctld_lost_state(self) -> bool:
        site = self._site()
        site.spell.down = True
        site.spell.said.clear()
        later(3.0, self._undo, lambda: setattr(site.spell, "down", False))
        return site.cluster.lose_last(self._rng.choice((1, 1, 2)))

    def _records_forgotten(self) -> bool:
        return self._site().cluster.forget_ended()

    def _fate(self, fate: SbatchOutcome) -> None:
        self._site().spell.fate = fate

    def _sbatch_reply_lost(self) -> None:
        self._fate(SbatchOutcome.REPLY_LOST)

    def _sbatch_never_reached(self) -> None:
        self._fate(SbatchOutcome.NEVER_REACHED)

    def _sbatch_refused(self) -> None:
        self._fate(SbatchOutcome.REFUSED)

    def _sbatch_refused_late(self) -> None:
        self._fate(SbatchOutcome.REFUSED_LATE)

    def _sbatch_refuses_users(self) -> None:
        """At one site, or, as when nobody has added a QOS anywhere, at all of them."""
        sites = self._rng.choice(([self._site()], list(self._world.sites.values())))
        users = self._rng.choice(((self._rng.choice(USERS),), USERS))
        for spell in (site.spell for site in sites):
            spell.refuses.update(users)
            spell.said.clear()
            self._for_a_while(partial(spell.refuses.difference_update, users), 10.0, 90.0)

    def _sbatch_slow(self) -> None:
        self._fate(SbatchOutcome.SLOW)

    def _sbatch_too_late(self) -> None:
        self._fate(SbatchOutcome.TOO_LATE)

    def _sbatch_beyond(self) -> None:
        """Only where a gate stands: elsewhere nobody promises anything then."""
        site = self._site()
        if site.has_spool:
            site.spell.fate = SbatchOutcome.BEYOND

    def _scancel_fails(self) -> None:
        site = self._site()
        cluster = site.cluster
        cluster.refuses_cancels = True
        site.spell.said.clear()
        self._for_a_while(lambda: setattr(cluster, "refuses_cancels", False), 3.0, 25.0)

    def _sweep_slow(self) -> None:
        spell = self._site().spell
        spell.sweep_s = self._rng.choice((1.0, 4.0, 12.0))
        spell.said.clear()
        self._for_a_while(lambda: setattr(spell, "sweep_s", 0.0), 5.0, 25.0)

    def _sweep_incomplete(self) -> None:
        spell = self._site().spell
        spell.hides_node = True
        spell.said.clear()
        self._for_a_while(lambda: setattr(spell, "hides_node", False), 5.0, 30.0)

    def _sweep_unreadable(self) -> None:
        spell = self._site().spell
        spell.unreadable = True
        spell.said.clear()
        self._for_a_while(lambda: setattr(spell, "unreadable", False), 2.0, 25.0)

    # ---- nodes ----

    def _node_of(self, site: SiteHost) -> str:
        return self._rng.choice([node.name for node in site.cluster.nodes()])

    def _node_fails(self) -> bool:
        site = self._site()
        name = self._node_of(site)
        under_job = any(
            name in plan.nodes
            for job in site.cluster.federated()
            if job.state is SiteJobState.RUNNING
            for plan in job.jobs
        )
        site.cluster.fail_node(name)
        self._for_a_while(lambda: site.cluster.repair_node(name), 5.0, 60.0)
        return under_job

    def _het_jobs(self, site: SiteHost) -> list[SimulatedJob]:
        """Those that run, with more than one component."""
        jobs = site.cluster.federated()
        return [j for j in jobs if j.state is SiteJobState.RUNNING and len(j.jobs) > 1]

    def _het_node_fails(self) -> bool:
        site = self._site()
        jobs = self._het_jobs(site)
        if jobs:
            plans = self._rng.choice(jobs).jobs[1:]
            name = self._rng.choice([name for plan in plans for name in plan.nodes])
            site.cluster.fail_node(name)
            self._for_a_while(lambda: site.cluster.repair_node(name), 5.0, 60.0)
        return bool(jobs)

    def _node_drained(self) -> bool:
        site = self._site()
        name = self._node_of(site)
        site.cluster.drain(name)
        self._for_a_while(lambda: site.cluster.repair_node(name), 5.0, 60.0)
        return True

    def _prolog_fails(self) -> None:
        self._site().cluster.prolog_fails += 1

    def _local_job(self) -> bool:
        site = self._site()
        name = self._node_of(site)
        node = next(n for n in site.cluster.nodes() if n.name == name)
        cpus = 1 if node.gpus else node.cpus - node.cpus_alloc
        free = NodeShare(gpus=node.gpus - node.gpus_alloc, cpus=cpus)
        site.cluster.take_locally(name, free)
        undo = NodeShare()
        self._for_a_while(lambda: site.cluster.take_locally(name, undo), 5.0, 60.0)
        return True

    def _site_preempts(self) -> bool:
        site = self._site()
        running = [j for j in site.cluster.federated() if j.state is SiteJobState.RUNNING]
        if running:
            site.cluster.put_back(self._rng.choice(running), preempted=True)
        return bool(running)

    # ---- clocks ----

    def _daemon_clock_forward(self) -> bool:
        self._rng.choice(self._world.walls).ahead_s += JUMP_S
        return True

    def _daemon_clock_back(self) -> bool:
        self._rng.choice(self._world.walls).ahead_s -= JUMP_S
        return True

    def _site_clock(self, by_s: float) -> bool:
        site = self._site()
        self._world.clocks[site.name].ahead_s += by_s
        return True

    def _site_clock_forward(self) -> bool:
        return self._site_clock(JUMP_S)

    def _site_clock_back(self) -> bool:
        return self._site_clock(-JUMP_S)

    # ---- the spool ----

    def _spool_hangs(self) -> None:
        disk = self._site().disk
        disk.spool_hangs = True
        self._for_a_while(lambda: setattr(disk, "spool_hangs", False), 3.0, 30.0)

    def _spool_wiped(self) -> bool:
        spool = self._site().spool
        if spool is None:
            return False
        found = False
        for name in ("leases", "tickets"):
            for path in sorted((spool / name).glob("*")):
                path.unlink(missing_ok=True)
                found = True
        return found

    # ---- people ----

    def _user_scancel(self) -> bool:
        site = self._site()
        jobs = site.cluster.federated()
        if jobs:
            job = self._rng.choice(jobs)
            origin = site.cluster.real(job)
            assert origin is not None
            self._world.model.truth(origin.workload).ended_outside = True
            site.cluster.end_job(job, SiteJobState.CANCELLED)
        return bool(jobs)

    def _component_cancelled(self) -> bool:
        site = self._site()
        jobs = self._het_jobs(site)
        if jobs:
            job = self._rng.choice(jobs)
            origin = site.cluster.real(job)
            assert origin is not None
            self._world.model.truth(origin.workload).maimed = True
            site.cluster.cancel_components(job.job_id, (self._rng.randrange(1, len(job.jobs)),))
        return bool(jobs)

    def _user_requeue(self) -> bool:
        site = self._site()
        running = [j for j in site.cluster.federated() if j.state is SiteJobState.RUNNING]
        if running:
            site.cluster.put_back(self._rng.choice(running))
        return bool(running)

    def _user_hold(self) -> None:
        self._site().cluster.holds_next = True

    def _user_comment(self) -> bool:
        site = self._site()
        jobs = [j for j in site.cluster.federated() if j.job_id not in site.cluster.nameless]
        if not (site.has_spool or site.cluster.keeps_accounts):  # nothing else tells whose it is
            jobs = [j for j in jobs if site.has_noted(j.attempt, j.job_id)]
        if jobs:
            job = self._rng.choice(jobs)
            origin = site.cluster.real(job)
            assert origin is not None
            site.cluster.nameless.add(job.job_id)
            self._world.model.renamed(origin)
        return bool(jobs)

    def _forged_comment(self) -> bool:
        if not self._world.model.submissions:
            return False
        site = self._site()
        attempt = self._rng.choice(list(self._world.model.submissions))
        site.cluster.pretend(attempt, self._node_of(site))
        return True
