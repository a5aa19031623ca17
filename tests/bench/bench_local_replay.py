"""Measures the replay of a full site by itself, of made-up jobs. Asserts nothing.

    python -m tests.bench.bench_local_replay [--nodes 500] [--jobs 5000] [--load 1.1] [--seed 1]
        [--small]

Nodes have 8 GPUs. Jobs take whole nodes, 1 to 16 of them, for log-normal times of three days at
most (hours in the mean); with ``--small`` mostly parts of a node. Their time limits are 1 to 4
times what they run. They come at even chance over a time in which they ask for LOAD times what the
site has. It prints the CPU time, how many waited and how long, and how much of the site was held
until the last had come.
"""

from __future__ import annotations

import argparse
import os
import random
import time

from federator.model.site import Node
from federator.model.workload import Job
from federator.sim.slurm_queue import QueuedJob, slurm_starts_s

GPUS = 8
DAY_S = 86_400.0


def drawn(r: random.Random, small: bool) -> tuple[int, int, float]:
    """GPUs of a node, nodes, and seconds of a job."""
    if not small:
        return (
            GPUS,
            r.choice((1, 1, 1, 1, 2, 2, 4, 4, 8, 16)),
            min(3 * DAY_S, r.lognormvariate(10.2, 1)),
        )
    gpus = r.choice((1, 1, 1, 2, 4, GPUS))
    nodes = r.choice((1,) * 18 + (2, 4)) if gpus == GPUS else 1
    return gpus, nodes, min(2 * DAY_S, r.lognormvariate(10.5, 1.0))


def queue(
    count: int, held: int, load: float, seed: int, small: bool
) -> tuple[list[QueuedJob], float]:
    """Jobs, and the time in which they come; ``held``: GPUs of the site."""
    r = random.Random(seed)
    jobs = [drawn(r, small) for _ in range(count)]
    span_s = sum(gpus * nodes * runs_s for gpus, nodes, runs_s in jobs) / (held * load)
    came_s = sorted(r.uniform(0, span_s) for _ in jobs)
    made = [
        QueuedJob(
            submitted_s=at_s,
            came_s=at_s,
            limit_s=60.0 * int(1 + runs_s * r.uniform(1, 4) / 60),
            duration_s=runs_s,
            parts=(Job(name="job", nodes=nodes, gpus_per_node=gpus),),
        )
        for (gpus, nodes, runs_s), at_s in zip(jobs, came_s, strict=True)
    ]
    return made, span_s


def held_frac(jobs: list[QueuedJob], starts_s: list[float], span_s: float, gpus: int) -> float:
    """The part of the GPUs that was held until a time."""
    held_s = sum(
        job.parts[0].total_gpus * max(0.0, min(start_s + job.duration_s, span_s) - start_s)
        for job, start_s in zip(jobs, starts_s, strict=True)
    )
    return held_s / (span_s * gpus)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--load", type=float, default=1.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    nodes = [Node(name=str(k), partitions=("p",), gpus=GPUS, cpus=8) for k in range(asked.nodes)]
    jobs, span_s = queue(asked.jobs, GPUS * asked.nodes, asked.load, asked.seed, asked.small)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    begin_s = time.process_time()
    found = slurm_starts_s(jobs, nodes)
    took_s = time.process_time() - begin_s
    starts_s = [start_s for start_s in found if start_s is not None]
    waits_s = [start_s - job.came_s for start_s, job in zip(starts_s, jobs, strict=True)]
    print(
        f"{len(jobs)} jobs in {span_s / DAY_S:.1f} days on {len(nodes)} nodes: {took_s:.1f} s of "
        f"CPU time; {sum(wait_s > 0 for wait_s in waits_s) / len(jobs):.0%} waited, "
        f"{sum(waits_s) / len(jobs) / 3600:.1f} h in the mean of all; "
        f"{held_frac(jobs, starts_s, span_s, GPUS * len(nodes)):.0%} of the GPUs were held"
    )


if __name__ == "__main__":
    main()
