"""Measures ``federator whatif`` on a made-up history of three clusters. Asserts nothing.

    python -m tests.bench.bench_whatif [--jobs 10000] [--load 0.8] [--folder DIR] [--profile]

The history is written to DIR as sacct would tell it, and read from there: three sites of 8 GPUs a
node (64, 32 and 16 nodes), 12 accounts whose limits leave each a quarter of the GPUs at most, jobs
of 1 to 64 GPUs, run times log-normal from minutes to two days, time limits of 1 to 4 times that.
Submissions are denser by day; two of five come in bursts of up to 20 equal ones. Starts are those
of each cluster by itself, first come, first served by the count of its GPUs. Seeded, so the same
everywhere. Prints the CPU time of each part, and the waits before and after.
"""

from __future__ import annotations

import argparse
import cProfile
import heapq
import os
import pstats
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from federator.config import load_config
from federator.sim.importers.trace_csv import read_pools
from federator.sim.trace import ReplayOptions
from federator.sim.whatif import Dump, ask, live_through, rules_of

NODES: Final = {"alpine": 64, "boreal": 32, "cedar": 16}
PER_NODE: Final = 8
TENANTS: Final = 12
BEGIN_S: Final = 1_788_134_400
DAY_S: Final = 86_400
MOST: Final = 20  # jobs of a burst
HEADER: Final = (
    "JobID|Cluster|Account|User|Partition|State|Submit|Eligible|Start|ElapsedRaw|TimelimitRaw|"
    "ReqTRES|AllocTRES|NNodes|NCPUS"
)


class Asked(NamedTuple):
    """A job: when it came, at which site, of whom, on how many GPUs, for how long."""

    came_s: int
    site: str
    tenant: int
    gpus: int
    runs_s: int
    limit_min: int

    @property
    def nodes(self) -> int:
        return max(1, self.gpus // PER_NODE)


def drawn(jobs: int, load: float) -> list[Asked]:
    """All jobs, by the time at which they came."""
    r = random.Random(24)
    sites = [(name, count) for name, count in NODES.items()]
    made: list[Asked] = []
    while len(made) < jobs:
        site, count = r.choices(sites, [count for _, count in sites])[0]
        gpus = min(r.choice((1,) * 10 + (2, 2, 4, 4, 8, 8, 8, 16, 32, 64)), count * PER_NODE // 4)
        runs_s = int(min(2 * DAY_S, max(30, r.lognormvariate(7.5, 1.6))))
        tenant = min(int(r.expovariate(0.3)), TENANTS - 1)
        limit_min = 1 + int(runs_s * r.uniform(1, 4) / 60)
        same = r.randint(2, MOST) if r.random() < 0.06 else 1
        made += [Asked(0, site, tenant, gpus, runs_s, limit_min)] * same
    made = made[:jobs]
    gpus = PER_NODE * sum(NODES.values())
    span_s = sum(job.gpus * job.runs_s for job in made) / (gpus * load)
    came_s, timed = 0.0, []
    for before, job in zip([None, *made], made, strict=False):
        if job is not before:
            hour = came_s % DAY_S / 3600
            came_s += r.expovariate(1.5 if 8 <= hour < 20 else 0.5)
        timed.append(job._replace(came_s=int(came_s)))
    scale = span_s / max(1, timed[-1].came_s)
    return [job._replace(came_s=BEGIN_S + int(job.came_s * scale)) for job in timed]


def started(jobs: list[Asked]) -> Iterator[int]:
    """When each starts at its own site, by the count of GPUs, nobody overtaking."""
    free = {name: PER_NODE * count for name, count in NODES.items()}
    ends: dict[str, list[tuple[int, int]]] = {name: [] for name in NODES}
    now_s = dict.fromkeys(NODES, 0)
    for job in jobs:
        at_s = max(now_s[job.site], job.came_s)
        while free[job.site] < job.gpus or (ends[job.site] and ends[job.site][0][0] <= at_s):
            end_s, gpus = heapq.heappop(ends[job.site])
            at_s, free[job.site] = max(at_s, end_s), free[job.site] + gpus
        now_s[job.site], free[job.site] = at_s, free[job.site] - job.gpus
        heapq.heappush(ends[job.site], (at_s + job.runs_s, job.gpus))
        yield at_s


def write(folder: Path, jobs: list[Asked]) -> None:
    """The dump, the sizes of the sites and federation.yaml."""
    lines = [HEADER]
    for number, (job, start_s) in enumerate(zip(jobs, started(jobs), strict=True), start=1):
        tres = f"cpu={job.gpus},gres/gpu={job.gpus},node={job.nodes}"
        who = f"{number}|{job.site}|team{job.tenant}|user{number % 40}|gpu|COMPLETED"
        when = f"{job.came_s}|{job.came_s}|{start_s}|{job.runs_s}|{job.limit_min}"
        lines.append(f"{who}|{when}|{tres}|{tres}|{job.nodes}|{job.gpus}")
    (folder / "sacct.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{name},{count},{PER_NODE},a100" for name, count in NODES.items()]
    (folder / "pools.csv").write_text(
        "\n".join(["pool,nodes,gpus_per_node,gpu_type", *rows]) + "\n"
    )
    quota = PER_NODE * sum(NODES.values()) // TENANTS
    site = '{region: west, partitions: [gpu], command: ["true"]}'
    config = ["federation: bench", 'store: "memory:"', "regions: {west: {shared: /shared}}"]
    config += ["gpus: {a100: {mem_gib: 80}}", "sites:"]
    config += [f"  {name}: {site}" for name in NODES]
    config.append("tenants:")
    for k in range(TENANTS):
        limit = f"quota: {{gpus: {quota}}}, limit: {{gpus: {3 * quota}}}"
        config.append(f"  team{k}: {{priority: {2 + k % 3}, {limit}}}")
    (folder / "federation.yaml").write_text("\n".join(config) + "\n")


def measure(folder: Path, profiled: bool) -> None:
    begin_s = time.process_time()
    config = load_config(folder / "federation.yaml")
    pools = read_pools(folder / "pools.csv")
    question = ask([Dump(path=folder / "sacct.txt")], pools, config)
    read_s = time.process_time() - begin_s
    profile = cProfile.Profile() if profiled else None
    begin_s = time.process_time()
    if profile is not None:
        profile.enable()
    lives = live_through(question.scenario, config, rules_of(config), ReplayOptions())
    if profile is not None:
        profile.disable()
    lived_s = time.process_time() - begin_s
    before = [past.start_s - past.came_s for past in question.history.workloads]
    came = (past.came_s - question.begin_s for past in question.history.workloads)
    after = [life.first_start_s - at_s for life, at_s in zip(lives, came, strict=True)]
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(before)} jobs: read {read_s:.1f} s, lived {lived_s:.1f} s of CPU time, "
        f"{len(before) / lived_s:.0f} jobs/s, {peak_mib:.0f} MiB; mean wait "
        f"{sum(before) / len(before):.0f} s before, {sum(after) / len(after):.0f} s after, "
        f"{sum(wait > 1 for wait in after) / len(after):.0%} waited",
        flush=True,
    )
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder, drawn(options.jobs, options.load))
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        measure(folder, options.profile)


if __name__ == "__main__":
    main()
