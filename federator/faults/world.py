"""The parts of a history: sites with Slurm and agents, a daemon's host, a log, and users."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

from federator.config import FederationConfig
from federator.daemon.own_config import new_federation
from federator.errors import FederatorError
from federator.faults.checkpoints import SimulatedCheckpoints
from federator.faults.checks.checkpoint_checks import CheckpointChecks
from federator.faults.checks.end_checks import differences
from federator.faults.checks.model import Model
from federator.faults.checks.wish_checks import SILENCE_S
from federator.faults.client_scripts import client_scripts
from federator.faults.clock import VirtualClock
from federator.faults.cluster import Cluster
from federator.faults.daemon_host import DaemonHost, Ways
from federator.faults.dialled import begin_dialling, lose_link
from federator.faults.drawn_scripts import DrawnScripts
from federator.faults.drawn_ways import by_command, drawn_login_nodes, drawn_way
from federator.faults.kinds import FaultKind
from federator.faults.log import LogFault, SharedLog
from federator.faults.network import Network
from federator.faults.planner_host import PlannerHost
from federator.faults.process import Process, later, outside
from federator.faults.quota_looks import look_for_ever
from federator.faults.simulated_users import Door, JobBoard, SimulatedUser
from federator.faults.site_host import SiteHost
from federator.faults.spell import SbatchOutcome
from federator.model.lifecycle import TERMINAL
from federator.model.site import Node
from federator.model.workload import SiteName
from federator.sched.state.ledger import Ledger
from federator.store.replaying import replay_log
from federator.wire.client_protocol import Call
from federator.wire.replies import Reply

SITES: Final = ("alpine", "breeze", "coral")
BEGINS_S: Final = 1_795_000_000.0
LEASE_S: Final = 3.0
OUTPUT_GRACE_S: Final = 12.0  # of what a job left that failed
CALM_S: Final = 3000.0  # within which everything ends once nothing fails any more
SETTLES_S: Final = 5.0  # the last append of a slow log
STOPPED_S: Final = (3.0, 90.0)  # a login node
APART_PART: Final = 0.5  # of the histories have two regions, which share no storage
MOVES_PART: Final = 0.3  # of the histories let small jobs move for gangs
LENDING_PART: Final = 0.2  # of the histories evict nobody, and lend by forecasts
UNUSED_QUOTA: Final = {"mode": "on", "days": 1, "notice_h": 6.0 / 3600}
THRIFTY_FRAC: Final = 0.2  # of all GPUs, that half of the histories may evict in a window
THRIFTY_SAVES: Final = 2  # at a time, in those
TENANTS: Final = {
    "prod": {"priority": 1, "quota": {"gpus": 24}, "users": ("ada",)},
    "lab": {"priority": 7, "limit": {"gpus": 24}, "users": ("bob", "eve")},
}
NOTED: Final[dict[str, FaultKind]] = {
    "slurmctld down": FaultKind.SLURMCTLD_DOWN,
    "sweep unreadable": FaultKind.SWEEP_UNREADABLE,
    "sweep slow": FaultKind.SWEEP_SLOW,
    "sweep incomplete": FaultKind.SWEEP_INCOMPLETE,
    "sbatch of a resize fails": FaultKind.RESIZE_SBATCH_FAILS,
    "sbatch reply lost": FaultKind.SBATCH_REPLY_LOST,
    "sbatch never reached": FaultKind.SBATCH_NEVER_REACHED,
    "sbatch refused": FaultKind.SBATCH_REFUSED,
    "sbatch refused late": FaultKind.SBATCH_REFUSED_LATE,
    "sbatch refuses for good": FaultKind.SBATCH_REFUSES_USERS,
    "sbatch slow": FaultKind.SBATCH_SLOW,
    "sbatch too late": FaultKind.SBATCH_TOO_LATE,
    "sbatch beyond": FaultKind.SBATCH_BEYOND,
    "scancel fails": FaultKind.SCANCEL_FAILS,
    "prolog fails": FaultKind.PROLOG_FAILS,
    "messages slow": FaultKind.NETWORK_SLOW,
    "log slow": FaultKind.STORE_SLOW,
    "a site returns": FaultKind.SITE_RETURNED,
    "user holds": FaultKind.USER_HOLD,
    "journal full": FaultKind.JOURNAL_FULL,
    "spool hangs": FaultKind.SPOOL_HANGS,
    "two agents": FaultKind.TWO_AGENTS,
    "a former agent wakes": FaultKind.FORMER_AGENT_WAKES,
    "log full": FaultKind.STORE_FULL,
    "log fails, nothing added": FaultKind.STORE_ERROR_NOTHING,
    "log fails, all added": FaultKind.STORE_ERROR_ADDED,
    "frame down twice": FaultKind.ORDER_TWICE,
    "frame up twice": FaultKind.NEWS_TWICE,
    "log silent": FaultKind.LEASE_SILENT,
    "copy killed": FaultKind.COPY_KILLED,
    "late frame of an old channel": FaultKind.LATE_FRAME,
}
"""What the parts of the world say when a fault has really struck."""


class Clock:
    """A host's wall clock, which may be set."""

    def __init__(self, true: VirtualClock) -> None:
        self._true = true
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return self._true() + self.ahead_s


class World:
    """One history's world.

    Args:
        rng: decides everything.
        clock: true time.
        folder: for the sites' files; on a memory file system this is quick.
    """

    def __init__(self, rng: Random, clock: VirtualClock, folder: Path) -> None:
        self.rng = rng
        self.clock = clock
        self.began_s = clock()
        self._folder = str(folder)  # has another name each time
        self.story: list[str] = []
        self.struck: Counter[FaultKind] = Counter()
        self.armed: dict[tuple[str, str], FaultKind] = {}
        lease_s = rng.choice((inf, LEASE_S))  # a file lock, and one daemon; or two with a lease
        self.walls = [Clock(clock) for _ in range(1 if lease_s == inf else 2)]
        names = [SiteName(name) for name in SITES[: rng.choice((2, 2, 3))]]
        lends = rng.random() < LENDING_PART
        chance = _beside(rng)
        apart = chance.random() < APART_PART
        self._looks = Random(chance.random()) if lends else None
        self.config = _drawn_config(rng, names, lends=lends, apart=apart)
        self.model = Model(self.note, clock, gpu_limits(self.config))
        self.scripts = DrawnScripts(self.model.evidence, self.began_s)
        self.model.log.lends = lends
        self.model.log.most_saves = self.config.policy.preemption.max_saves_per_region
        self.checkpoints = self._checkpoints(chance)
        self.log = SharedLog(self._logged, self.note, clock, lease_s)
        self.sites: dict[SiteName, SiteHost] = {}
        self.clocks: dict[str, Clock] = {}
        for name in names:
            self.sites[name] = self._site(name, folder)
            self.model.log.nodes[name] = self.sites[name].cluster.nodes()
        self._mount()
        self.daemons = [self._daemon(wall) for wall in self.walls]
        self.planners = [
            self._planner(*each) for each in zip(self.daemons, self.walls, strict=True)
        ]
        self._looking: asyncio.Task[None] | None = None
        self._led: tuple[DaemonHost, Process] | None = None
        here, there = [d.ask for d in self.daemons], self.sites.values()
        doors = [*here, *(_door(self.config, site, here[-1]) for site in there)]
        scripts = client_scripts(rng, {n: site.cluster.nodes() for n, site in self.sites.items()})
        self.model.wishes.scripts = {f"{each.user}:{each.key}": each for each in scripts}
        board = JobBoard(doors=doors, checks=self.model.answers, struck=self.strike, clock=clock)
        self.users = [SimulatedUser(each, board, Random(rng.random())) for each in scripts]

    # ---- parts ----

    def _checkpoints(self, rng: Random) -> CheckpointChecks:
        regions = {str(name): site.region for name, site in self.config.sites.items()}
        disks = SimulatedCheckpoints(regions, rng, self.note)
        checks = CheckpointChecks(self.model.evidence, disks)
        self.model.runs.checkpoints = checks
        return checks

    def _site(self, name: SiteName, folder: Path) -> SiteHost:
        rng, home = self.rng, folder / name
        home.mkdir()
        has_spool = rng.random() < 0.7
        if has_spool:
            (home / "spool").mkdir()
        clock = self.clocks[name] = Clock(self.clock)
        nodes = [
            Node(
                name=f"{name[0]}{k}",
                partitions=("gpu",),
                switch=name,
                cpus=64,
                mem_mib=512_000,
                gpu_type="a100",
                gpus=8,
            )
            for k in range(1, rng.choice((2, 3)) + 1)
        ] + [
            Node(name=f"{name[0]}c{k}", partitions=("cpu",), switch=name, cpus=16, mem_mib=64_000)
            for k in range(1, rng.choice((1, 1, 2)) + 1)
        ]
        cluster = Cluster(
            name, nodes, clock, self.scripts, self.model.runs, home / "spool" if has_spool else None
        )
        cluster.keeps_accounts = rng.random() < 0.5
        cluster.disks = self.checkpoints.disks
        network = Network(lambda: rng.uniform(0.002, 0.03), self.note)
        host = SiteHost(cluster, network, home, clock, self.strikes, self.note, has_spool)
        host.login_nodes = drawn_login_nodes(rng, self.config.sites[name])
        return host

    def _logged(self, records: Sequence[bytes]) -> None:
        self.model.log.logged(records)
        self.checkpoints.logged(records)

    def _mount(self) -> None:
        """Each site its storage domain."""
        storage, outputs = self.config.storage, self.model.outputs
        outputs.disks = {of: outputs.disk(frozenset(storage[of].mounts)) for of in storage}
        for domain, each in storage.items():
            for name in each.mounts:
                self.sites[SiteName(name)].cluster.disk = outputs.disks[domain]

    def _daemon(self, wall: Clock) -> DaemonHost:
        networks: Ways = {n: (site.network, site.ways()) for n, site in self.sites.items()}
        return DaemonHost(
            self.config, self.log, networks, wall, self.clock, self.strikes, self.note, self._leads
        )

    def _planner(self, daemon: DaemonHost, wall: Clock) -> PlannerHost:
        return PlannerHost(daemon, lambda: self.log.memory.records, wall, self.strikes)

    def _leads(self, host: DaemonHost, process: Process) -> None:
        """A daemon has read the log, and leads."""
        assert host.federation is not None
        self.model.answers.check_acknowledged(host.federation.ledger)
        if self._led is not None and self._led[0] is not host:
            alive = self._led[1].alive
            self.strike(FaultKind.TWO_LEADERS if alive else FaultKind.STANDBY_TAKES_OVER)
        self._led = (host, process)

    # ---- what strikes ----

    def strikes(self, host: str, point: str) -> bool:
        """Whether a process dies here."""
        kind = self.armed.pop((host, point), None)
        if kind is FaultKind.LOGIN_NODE_STOPS:
            self._stop_login_node(self.sites[SiteName(host)], point)
            return False
        if kind is FaultKind.OUTBOUND_LINK_LOST:
            if lose_link(self.sites[SiteName(host)], self.rng):
                self.strike(kind, f"{host}, {point}")
            return False
        if kind is not None:
            self.strike(kind, f"{host}, {point}")
        return kind is not None

    def _stop_login_node(self, site: SiteHost, point: str) -> None:
        """The one whose agent is at this point."""
        if (node := site.present_node()) not in site.stopped:
            self.strike(FaultKind.LOGIN_NODE_STOPS, f"{site.name}, {node}, {point}")
            site.stop(node)
            later(self.rng.uniform(*STOPPED_S), site.go_on, node)

    def strike(self, kind: FaultKind, where: str = "") -> None:
        self.struck[kind] += 1
        self.tell(f"* {kind.value}" + (f" ({where})" if where else ""))

    def note(self, said: str) -> None:
        kind = NOTED.get(said)
        if kind is None:
            self.tell(said)
        else:
            self.strike(kind)

    def tell(self, text: str) -> None:
        self.story.append(f"{self.clock() - self.began_s:9.3f} {text}")

    # ---- a history ----

    async def run(self, faults_s: float) -> None:
        """Live through the faults, which others inject, and then without them until all ends."""
        for daemon in self.daemons:
            daemon.start()
        for planner in self.planners:
            planner.start()
        for name, site in self.sites.items():
            if self.config.sites[name].dials:
                begin_dialling(site, self.daemons)
        for user in self.users:
            outside(user.run())
        lenders = [name for name, each in self.config.tenants.items() if each.quota is not None]
        if self._looks is not None:
            self._looking = outside(look_for_ever(self.daemons, lenders, self._looks))
        await asyncio.sleep(faults_s)
        self.stop_faults()
        until_s = self.clock() + CALM_S
        while not self.all_is_over() and self.clock() < until_s and not self.model.evidence.broken:
            await asyncio.sleep(2.0)
        await asyncio.sleep(SETTLES_S)
        self.check_end()
        self.end()
        await asyncio.sleep(0.0)

    def stop_faults(self) -> None:
        """Nothing fails any more."""
        self.tell("calm")
        self.model.evidence.faults_stopped_at_s = self.clock()
        self.armed.clear()
        self.model.evidence.await_nothing()
        self.log.full, self.log.silent, self.log.slow_s = False, False, 0.0
        self.log.fault = LogFault.NONE
        for site in self.sites.values():
            site.network.heal(lose=False)
            site.network.doubles, site.network.no_way_out = "", False
            site.spell.down = site.spell.hides_node = site.spell.unreadable = False
            site.spell.sweep_s, site.spell.fate = 0.0, SbatchOutcome.WELL
            site.spell.refuses.clear()
            site.spell.of_resizes.clear()
            site.disk.journal_full = site.disk.spool_hangs = False
            site.cluster.mend()
            for node in site.login_nodes:
                site.go_on(node)
            for agent in site.agents:
                agent.resume()
        for daemon in self.daemons:
            daemon.up = True
            if daemon.process is not None:
                daemon.process.resume()
            daemon.start()
        for planner in self.planners:
            if planner.process is not None:
                planner.process.resume()

    def all_is_over(self) -> bool:
        ledger = self._ledger()
        return (
            ledger is not None
            and all(r.done for r in self.users)
            and all(e.state in TERMINAL for e in ledger.entries.values())
            and not any(site.cluster.federated() for site in self.sites.values())
            and next(ledger.outputs.due(), None) is None
        )

    def _ledger(self) -> Ledger | None:
        """The leader's."""
        host, process = self._led if self._led is not None else (None, None)
        if host is None or host.process is not process or host.federation is None:
            return None
        return host.federation.ledger

    def check_end(self) -> None:
        ledger = self._ledger()
        if ledger is None:
            self.model.evidence.break_("no daemon runs")
            return
        if not all(r.done for r in self.users):
            self.model.evidence.break_("some client never got its answer")
        self.model.check_end(ledger)
        assert self._led is not None
        rebuilt = new_federation(self._led[0].config)
        try:
            replay_log(rebuilt, self.log.memory.records)
        except FederatorError as error:
            self.model.evidence.break_(f"the log cannot be read: {error}")
            return
        for what, how in differences(ledger, rebuilt.ledger).items():
            self.model.evidence.break_(f"the log says otherwise of {what}: {how}")

    def end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for planner in self.planners:
            planner.end()
        for daemon in self.daemons:
            daemon.up = False
            if daemon.process is not None:
                daemon.process.die()
        for site in self.sites.values():
            site.kill_agents()
            for dialler in site.diallers.values():
                dialler.die()

    @property
    def digest(self) -> str:
        """Of all that happened."""
        found = hashlib.sha256()
        for part in ("\n".join(self.story).encode(), *self.log.memory.records):
            found.update(part.replace(self._folder.encode(), b""))
        return found.hexdigest()


def _door(config: FederationConfig, site: SiteHost, elsewhere: Door) -> Door:
    """Where a site's users ask; who is not of its map asks at a daemon's host instead."""

    def ask(user: str, call: Call) -> Awaitable[Reply | None]:
        is_there = config.speaks_for(SiteName(site.name), user)
        return site.ask(user, call) if is_there else elsewhere(user, call)

    return ask


def _drawn_config(
    rng: Random, sites: Sequence[SiteName], *, lends: bool, apart: bool
) -> FederationConfig:
    moves = Random(f"moves {_beside(rng).random()}").random() < MOVES_PART
    evicts = 1.0 if rng.random() < 0.5 else THRIFTY_FRAC
    budget = 0.0 if lends else evicts
    ways = {name: drawn_way(rng, name) for name in sites}
    return config_of(sites, budget, lends=lends, ways=ways, apart=apart, moves=moves)


def _beside(rng: Random) -> Random:
    """Another one, so that what is drawn of the first is what it would be without."""
    found = Random()
    found.setstate(rng.getstate())
    return found


def _policy(budget_frac: float, *, lends: bool, moves: bool) -> dict[str, Any]:
    return {
        "pass_interval_s": 10.0,
        "launch_lease_s": 20.0,
        "bid_timeout_s": 3.0,
        "forecast_ends": True,
        "interactive": {"silence_s": SILENCE_S},
        "lending": "on" if lends else "off",
        "unused_quota": UNUSED_QUOTA if lends else {},
        "preemption": {
            "grace_s": 8.0,
            "cooldown_s": 10.0,
            "budget_frac": budget_frac,
            "max_saves_per_region": 0 if budget_frac == 1.0 else THRIFTY_SAVES,
            "budget_window_s": 30.0,
        },
        "defragment": {"mode": "on" if moves else "off", "margin": 0.0},
    }


def config_of(
    sites: Sequence[SiteName],
    budget_frac: float = 1.0,
    *,
    lends: bool = False,
    ways: Mapping[SiteName, dict[str, object]] | None = None,
    apart: bool = False,
    moves: bool = False,
) -> FederationConfig:
    """federation.yaml of a simulated federation; ``budget_frac`` of its GPUs may be evicted.

    ``ways``: keys of sites that say how their agents are reached; None: by a command. ``apart``:
    the first site has a region of its own.
    ``moves``: small jobs move for gangs.
    """
    return FederationConfig.model_validate(
        {
            "federation": "faults",
            "store": "memory:",
            "policy": _policy(budget_frac, lends=lends, moves=moves),
            "regions": {name: {"shared": f"/shared/{name}"} for name in ("west", "east")},
            "data": {"checkpoints": "ahead", "output_grace_h": OUTPUT_GRACE_S / 3600},
            "sites": {
                name: {"region": "east" if apart and name != sites[0] else "west"}
                | (by_command(name) if ways is None else ways[name])
                | {"partitions": ("gpu", "cpu"), "poll_interval_s": 5.0}
                | ({"users": ("@lab",)} if name == sites[-1] else {})
                for name in sites
            },
            "storage": _storage(sites),
            "tenants": TENANTS,
        }
    )


def _storage(sites: Sequence[SiteName]) -> dict[str, object]:
    """The first two sites mount one storage domain, the third another."""
    found: dict[str, object] = {"west": {"mounts": dict.fromkeys(sites[:2], "/west")}}
    return found | ({"east": {"mounts": {sites[2]: "/east"}}} if len(sites) > 2 else {})


def gpu_limits(config: FederationConfig) -> dict[frozenset[str], float]:
    """The GPUs that the users of each tenant may hold together, where that is limited."""
    return {
        frozenset(tenant.users): tenant.limit.gpus
        for tenant in config.tenants.values()
        if tenant.limit.gpus is not None
    }
