"""Measures a whole pass: eight simulated sites, rank to launch order, nothing durable.

The daemon's own ``Federation`` and the sites' own ``SiteScheduler``; between them nothing but
function calls, so neither network nor log are in the figures (``bench_queue.py`` has the log).
Run by ``./test bench``; prints medians, asserts nothing about them.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections import deque
from collections.abc import Sequence

from federator.model.message import (
    LaunchAt,
    Observation,
    SendTo,
    SiteSent,
    SiteUp,
    SubmitAsked,
    Tick,
)
from federator.model.site import Node
from federator.model.site_message import Ask, BidsMade, LaunchAccepted, Report
from federator.model.workload import Job, SiteName
from federator.policies.mast import Mast
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.passes.federation import Federation
from federator.sched.state.rules import Rules
from tests.bench.bench_bids import yardstick
from tests.fakes.build import draft, rack

SITES, RACKS, NODES = 8, 16, 16  # 256 nodes of 8 GPUs at each site
REPEATS = 5
SHAPES = ((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8))


class Fleet:
    """Federation and sites, joined by function calls."""

    def __init__(self) -> None:
        names = [SiteName(f"site{k}") for k in range(SITES)]
        self.federation = Federation(dict.fromkeys(names, ("gpu",)), Mast(), Rules())
        self.sites = {name: SiteScheduler(("gpu",)) for name in names}
        self.awarded = self.rounds = 0
        self._now_s = 1_000.0
        self._inbox: deque[Observation] = deque()
        self.federation.begin_epoch(self._now_s)
        for name, scheduler in self.sites.items():
            nodes = tuple(node for r in range(RACKS) for node in _rack(name, r))
            scheduler.update(nodes, ())
            self.see(SiteUp(site=name))
            complete = Report(
                attempts=(), complete=True, capacity=scheduler.capacity, freed=scheduler.freed
            )
            self.see(SiteSent(site=name, message=complete))

    def see(self, observation: Observation) -> None:
        self._inbox.append(observation)
        while self._inbox:
            for command in self.federation.handle(self._inbox.popleft(), self._now_s):
                match command:
                    case SendTo(message=Ask() as ask):
                        self._ask(command.site, ask)
                    case LaunchAt():
                        self._launch(command)

    def _ask(self, site: SiteName, ask: Ask) -> None:
        scheduler = self.sites[site]
        answers = scheduler.bid(ask.requests, self._now_s, reserving=ask.reserving)
        made = BidsMade(pass_id=ask.pass_id, answers=answers, freed=scheduler.freed)
        self._inbox.append(SiteSent(site=site, message=made))
        self.rounds += site == "site0"

    def _launch(self, order: LaunchAt) -> None:
        self.sites[order.site].hold(order.attempt, order.jobs)
        accepted = LaunchAccepted(attempt=order.attempt, site_job_id=1)
        self._inbox.append(SiteSent(site=order.site, message=accepted))
        self.awarded += 1

    def submit(self, count: int, jobs: Sequence[Job]) -> None:
        for k in range(count):
            wanted = draft(jobs[k % len(jobs)])
            self.see(SubmitAsked(client=k, key=f"k{k}", draft=wanted))

    def one_pass(self) -> None:
        self._now_s += 1_000.0  # past the pass interval
        self.see(Tick())


def _rack(site: str, number: int) -> tuple[Node, ...]:
    return rack(f"{site}-r{number}-", NODES)


def mixed() -> list[Job]:
    return [Job(name="t", nodes=n, gpus_per_node=g, cpus_per_node=g) for n, g in SHAPES]


def measure(what: str, count: int, jobs: Sequence[Job]) -> None:
    """Submit while no pass is due, then let one pass award what fits."""
    times, fleet = [], Fleet()
    for _ in range(REPEATS):
        fleet = Fleet()
        fleet.submit(count, jobs)
        began, before = time.perf_counter(), fleet.awarded
        fleet.one_pass()
        times.append((fleet.awarded - before) / (time.perf_counter() - began))
    print(
        f"  {what:62}{statistics.median(times):8,.0f} awarded/s   (bound 500); "
        f"{fleet.awarded:,} awarded in {fleet.rounds} rounds"
    )


def main() -> None:
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; medians of {REPEATS}")
    print(f"yardstick {yardstick():.1f} ms (see bench_bids.py)")
    nodes = SITES * RACKS * NODES
    print(f"{SITES} sites, {nodes:,} nodes, {nodes * 8:,} GPUs; one pass\n")
    measure("1,500 workloads of 1 to 32 GPUs, all fit", 1_500, mixed())
    measure("10,000 workloads of 1 to 32 GPUs, a fifth of them fits", 10_000, mixed())
    measure("2,000 workloads of 1 GPU", 2_000, mixed()[:1])


if __name__ == "__main__":
    main()
