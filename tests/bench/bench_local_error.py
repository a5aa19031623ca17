"""Shows what the error of a site's own replay consists of, on records of real Slurms.

    python -m tests.bench.bench_local_error --history DIR/queue-history.db [--seeds 8]
    python -m tests.bench.bench_local_error --acct slurm_acct.out --events jobs500.events

The first is a record of shadow mode, such as ``bench_shadow_hour`` leaves. The second is a real run
that is public: 500 jobs on 10 nodes of 12 CPUs, of which CPUs stand for GPUs here; its Slurm ranks
by age, size and fair share. Of each variant of the replay it prints the error of the mean time from
submission to end, as the mean of some replays in which each job runs up to a second longer or
shorter, since records have whole seconds; with the least and the largest. The first replay has the
times as they are.

Source: github ubccr-slurm-simulator/slurm_sim_tools @3a496757 tutorials/micro_cluster
(real_slurm_run, workload).
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import create_engine

from federator.history import local_jobs
from federator.model.site import Node
from federator.model.workload import Job
from federator.sim.backfill_plan import NodeRoom, Taken
from federator.sim.importers.local_history import past_records, watched_period
from federator.sim.importers.whatif_workload import history_of
from federator.sim.local_replay import pools_of, site_queue, whole_site
from federator.sim.slurm_queue import QueuedJob, slurm_starts_s

SAME_S: Final = 60.0


class Real(NamedTuple):
    """A job of the queue that is measured, and when it really started."""

    row: int
    start_s: float


class Record(NamedTuple):
    """The queue of a site, and what happened."""

    name: str
    nodes: Sequence[Node]
    queue: Sequence[QueuedJob]
    measured: Sequence[Real]
    turnaround_s: float


class EmptiestFirst(NodeRoom):
    """A site that takes the nodes with the most free GPUs, not the fullest that fit."""

    def _place_one(self, free: NDArray[np.int32], part: Job) -> Taken | None:
        if part.nodes is None:
            return super()._place_one(free, part)
        fitting = np.flatnonzero(self.of_types(part.gpu_types) & (free >= part.gpus_per_node))
        if len(fitting) < part.nodes:
            return None
        emptiest = fitting[np.argsort(-free[fitting], kind="stable")[: part.nodes]]
        return [(int(node), part.gpus_per_node) for node in emptiest]


def errors(
    record: Record, queue: Sequence[QueuedJob], turnaround_s: float, room: type[NodeRoom]
) -> tuple[float, list[float]]:
    """The error of the mean time from submission to end, and of each start."""
    with patch("federator.sim.slurm_queue.NodeRoom", room):
        starts_s = slurm_starts_s(queue, record.nodes, turnaround_s)
    started = [(real, at_s) for real in record.measured if (at_s := starts_s[real.row]) is not None]
    off_s = [at_s - real.start_s for real, at_s in started]
    jobs = record.queue
    whole_s = sum(
        real.start_s - jobs[real.row].came_s + jobs[real.row].duration_s for real, _ in started
    )
    return sum(off_s) / whole_s, off_s


def show(
    record: Record,
    label: str,
    seeds: int,
    change: Callable[[QueuedJob], QueuedJob] = lambda job: job,
    turnaround_s: float | None = None,
    room: type[NodeRoom] = NodeRoom,
) -> None:
    gap_s = record.turnaround_s if turnaround_s is None else turnaround_s
    found: list[float] = []
    off_s: list[float] = []
    for seed in range(seeds):
        r = random.Random(seed)
        queue = [
            replace(
                job, duration_s=max(1.0, job.duration_s + (r.choice((-1, 0, 1)) if seed else 0))
            )
            for job in map(change, record.queue)
        ]
        frac, off_s = errors(record, queue, gap_s, room)
        found.append(frac)
    late_s = sorted(map(abs, off_s))
    print(
        f"{record.name}, {label}: {statistics.mean(found):+.1%} ({min(found):+.1%} to "
        f"{max(found):+.1%}); {sum(s <= SAME_S for s in late_s) / len(late_s):.0%} of the starts "
        f"within {SAME_S:.0f} s",
        flush=True,
    )


def of_history(path: Path) -> Iterator[Record]:
    """Of each site of a record of shadow mode."""
    history = local_jobs.read(create_engine(f"sqlite:///file:{path}?mode=ro&uri=true"), 0.0, 1e12)
    period = watched_period(history, list(history.capacities), 0.0, 1e12)
    assert period is not None, f"{path}: nobody looked at all sites at once"
    past = past_records(history, list(history.capacities), period, any_gpu=False)
    sites = [whole_site(name, capacity) for name, capacity in history.capacities.items()]
    workloads = history_of(past.records, {site.name: pools_of(site) for site in sites}).workloads
    for site in sites:
        queue = site_queue(site, workloads, past, period.begin_s)
        measured = [
            Real(place, workloads[row].start_s)
            for place, row in enumerate(queue.rows)
            if workloads[row].came_s >= period.begin_s
            and (site.name, workloads[row].job_id) not in past.federated
        ]
        yield Record(site.name, site.nodes, queue.jobs, measured, queue.turnaround_s)


_TYPES: Final = {"CPU-N": ("N",), "CPU-M": ("M",), "": ()}
_WHOLE: Final = 12  # CPUs of a node
_NODES: Final = {"B": 1, "G": 1, "M": 4, "N": 4}
_AGE_S: Final = 72_000.0
"""A job of all nodes ranks as if it had come so much sooner: its weights are 200,000 for the size
and 50,000 for the age, which counts up to 5 hours."""


def of_public_run(acct: Path, events: Path) -> Record:
    """Of the public run. One with GPUs takes half the node for each, one with much memory all."""
    asked: dict[str, str] = {}
    for line in events.read_text().splitlines():
        name = re.search(r"-J (\S+)", line)
        wish = re.search(r"--constraint=(\S+)", line)
        if name is not None:
            asked[name[1]] = wish[1] if wish is not None else ""
    with acct.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="|"))
    nodes = [
        Node(name=f"{kind}{k}", partitions=("p",), cpus=_WHOLE, gpus=_WHOLE, gpu_type=kind)
        for kind, count in _NODES.items()
        for k in range(count)
    ]
    queue = [_queued(row, _TYPES[asked[row["JobName"]]]) for row in rows]
    measured = [Real(place, _unix_s(row["Start"])) for place, row in enumerate(rows)]
    return Record("public run", nodes, queue, measured, 0.0)


def _queued(row: dict[str, str], types: tuple[str, ...]) -> QueuedJob:
    nodes = int(row["NNodes"])
    cpus = int(row["ReqCPUS"]) // nodes
    if row["ReqGRES"]:
        types, cpus = ("G",), max(cpus, _WHOLE // 2 * int(row["ReqGRES"].rpartition(":")[2]))
    if row["ReqMem"] == "500000Mn":
        types, cpus = ("B",), _WHOLE
    hours, minutes, seconds = map(int, row["Timelimit"].split(":"))
    came_s = _unix_s(row["Submit"])
    return QueuedJob(
        submitted_s=came_s,
        came_s=came_s,
        limit_s=3600.0 * hours + 60 * minutes + seconds,
        duration_s=_unix_s(row["End"]) - _unix_s(row["Start"]),
        parts=(Job(name="job", nodes=nodes, gpus_per_node=cpus, gpu_types=types),),
    )


def _unix_s(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


def ranked_by_size(job: QueuedJob) -> QueuedJob:
    """As the public run's Slurm ranks it, but for the fair share of its user."""
    part = job.parts[0]
    size = (
        (part.nodes or 1) / sum(_NODES.values()) + part.total_gpus / _WHOLE / sum(_NODES.values())
    ) / 2
    return replace(job, submitted_s=job.submitted_s - _AGE_S * size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--acct", type=Path)
    parser.add_argument("--events", type=Path)
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    for record in of_history(options.history) if options.history else ():
        print(f"{record.name}: {len(record.measured)} jobs, turnaround {record.turnaround_s:.0f} s")
        show(record, "as it is", options.seeds)
        show(record, "emptiest nodes first", options.seeds, room=EmptiestFirst)
        show(record, "no turnaround", options.seeds, turnaround_s=0.0)
        show(record, "a second more", options.seeds, turnaround_s=record.turnaround_s + 1.0)
    if options.acct and options.events:
        record = of_public_run(options.acct, options.events)
        show(record, "by submission", options.seeds)
        for gap_s in (0.0, 3.0, 7.3, 15.0):
            label = f"by age and size, {gap_s:g} s between jobs"
            show(record, label, options.seeds, ranked_by_size, gap_s)
            show(record, f"{label}, emptiest", options.seeds, ranked_by_size, gap_s, EmptiestFirst)


if __name__ == "__main__":
    main()
