"""GPUs that stay unallocated on Alibaba's openb cluster, by rule of placement.

Tasks are drawn from the trace (with replacement) until they ask for so much of the cluster's GPUs
as ``--asked`` says, and are placed one by one; none ends. What fits nowhere is dropped. First with
the fractions of a GPU that tasks ask for, which the federation does not hand out; then with each
fraction as a whole GPU, beside the federation's own ``SiteScheduler`` with all nodes at one site.

    python -m tests.bench.bench_openb [--asked 1.0] [--seeds 1]

The trace is in the folder ``FEDERATOR_TRACES``, or ``shared/traces`` beside the repository.

Source:
    Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): fragmentation gradient descent and its
    base lines, written anew from their description. The mix M is the whole trace. Where it is
    silent: fractions go to the tightest GPU that has room; ties to the first node.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from federator.model.plan import BidRequest
from federator.model.site import Node
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import AttemptId, Job, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler

BESIDE: Final = Path(__file__).resolve().parents[3] / "shared" / "traces"
TRACES: Final = Path(os.environ.get("FEDERATOR_TRACES", BESIDE))
WHOLE: Final = 1000  # thousandths of a GPU
SLOTS: Final = 8  # GPUs of a node at most
Numbers = NDArray[np.int64]


class Task(NamedTuple):
    """What is asked for, all of it on one node."""

    cpu_milli: int
    mem_mib: int
    gpus: int
    gpu_milli: int  # of each

    @property
    def asks_milli(self) -> int:
        return self.gpus * self.gpu_milli


class Cluster:
    """What is left of each node."""

    def __init__(self, nodes: Sequence[dict[str, str]]) -> None:
        self.cpu = np.array([int(n["cpu_milli"]) for n in nodes])
        self.mem = np.array([int(n["memory_mib"]) for n in nodes])
        gpus = np.array([int(n["gpu"]) for n in nodes])
        self.has = np.arange(SLOTS) < gpus[:, None]
        self.gpu: Numbers = np.where(self.has, WHOLE, 0)
        self.total_milli = int(self.gpu.sum())
        self.at_first = (self.cpu.copy(), self.mem.copy(), gpus)
        self.by_request: list[Counter[int]] = [Counter() for _ in nodes]
        self.used = np.zeros(len(nodes), dtype=bool)

    def fits(self, task: Task) -> NDArray[np.bool_]:
        return fits(self.cpu, self.mem, self.gpu, task)

    def slots(self, node: int, task: Task) -> list[int]:
        """The GPUs that it gets there: the tightest for a fraction, else free ones."""
        row = self.gpu[node]
        found = [int(k) for k in np.argsort(row, kind="stable") if row[k] >= task.gpu_milli]
        return found[: task.gpus]

    def take(self, node: int, task: Task, slots: Sequence[int]) -> None:
        self.cpu[node] -= task.cpu_milli
        self.mem[node] -= task.mem_mib
        self.gpu[node, list(slots)] -= task.gpu_milli
        self.by_request[node][task.asks_milli] += 1
        self.used[node] = True

    @property
    def unallocated_frac(self) -> float:
        return float(self.gpu.sum()) / self.total_milli


def fits(cpu: Numbers, mem: Numbers, gpu: Numbers, task: Task) -> NDArray[np.bool_]:
    """Of nodes with so much left (the last axis of ``gpu``: its GPUs)."""
    enough = (gpu >= task.gpu_milli).sum(axis=-1) >= task.gpus
    found: NDArray[np.bool_] = (cpu >= task.cpu_milli) & (mem >= task.mem_mib) & enough
    return found


# ---- rules: the node, and the GPUs there if these matter; None: nowhere ----

Place = tuple[int, Sequence[int]] | None
Rule = Callable[[Cluster, Task], Place]


def least(cluster: Cluster, task: Task, badness: NDArray[np.float64]) -> Place:
    fitting = cluster.fits(task)
    if not fitting.any():
        return None
    node = int(np.where(fitting, badness, inf).argmin())
    return node, cluster.slots(node, task)


def left_parts(cluster: Cluster) -> NDArray[np.float64]:
    """CPU, memory and GPUs that are left of each node, as parts of the largest node's."""
    cpu, mem, gpus = cluster.at_first
    gpu = cluster.gpu.sum(axis=1) / (WHOLE * gpus.max())
    return np.stack([cluster.cpu / cpu.max(), cluster.mem / mem.max(), gpu])


def best_fit(cluster: Cluster, task: Task) -> Place:
    return least(cluster, task, left_parts(cluster).sum(axis=0))


def dot_product(cluster: Cluster, task: Task) -> Place:
    cpu, mem, gpus = cluster.at_first
    wants = (task.cpu_milli / cpu.max(), task.mem_mib / mem.max())
    part = task.asks_milli / (WHOLE * gpus.max())
    return least(cluster, task, np.array([*wants, part]) @ left_parts(cluster))


def packing(cluster: Cluster, task: Task) -> Place:
    """GPUs in use before idle ones of nodes in use, and these before idle nodes."""
    shared = cluster.has & (cluster.gpu >= task.gpu_milli) & (cluster.gpu < WHOLE)
    in_use = shared.any(axis=1) & (task.gpu_milli < WHOLE)
    tier = np.where(in_use, 0.0, np.where(cluster.used, 1.0, 2.0))
    return least(cluster, task, 10 * tier + left_parts(cluster)[2])


def clustering(cluster: Cluster, task: Task) -> Place:
    """Nodes with most tasks that ask for as much, then nodes with none."""
    alike = [found[task.asks_milli] for found in cluster.by_request]
    others = cluster.used & (np.array(alike) == 0)
    return least(cluster, task, np.where(others, 1.0, -np.array(alike, dtype=float)))


def random_fit(draw: Random) -> Rule:
    def rule(cluster: Cluster, task: Task) -> Place:
        fitting = np.flatnonzero(cluster.fits(task))
        if not len(fitting):
            return None
        node = int(draw.choice(list(fitting)))
        return node, cluster.slots(node, task)

    return rule


class GradientDescent:
    """Fragmentation gradient descent: the node, and GPU, whose fragmentation grows least.

    What it has reckoned for a type of task is kept for the nodes that have not changed since.
    """

    def __init__(self, mix: Sequence[tuple[Task, float]]) -> None:
        self._wants = np.array([task for task, _ in mix]).T
        self._shares = np.array([share for _, share in mix])
        self._known: dict[Task, tuple[NDArray[np.float64], Numbers, set[int]]] = {}

    def __call__(self, cluster: Cluster, task: Task) -> Place:
        nodes = len(cluster.cpu)
        if task not in self._known:
            empty = np.full(nodes, inf), np.zeros(nodes, dtype=int), set(range(nodes))
            self._known[task] = empty
        growth, slot, stale = self._known[task]
        if stale:
            self._reckon(cluster, task, np.array(sorted(stale)), growth, slot)
            stale.clear()
        node = int(growth.argmin())
        if growth[node] == inf:
            return None
        for _, _, others in self._known.values():
            others.add(node)
        takes_part = task.gpus == 1 and task.gpu_milli < WHOLE
        return node, [int(slot[node])] if takes_part else cluster.slots(node, task)

    def _reckon(
        self,
        cluster: Cluster,
        task: Task,
        at: Numbers,
        growth: NDArray[np.float64],
        slot: Numbers,
    ) -> None:
        cpu, mem, gpu = cluster.cpu[at], cluster.mem[at], cluster.gpu[at]
        before = self._fragmentation(cpu, mem, gpu)
        growth[at] = inf
        fitting = fits(cpu, mem, gpu, task)
        for k, after, may in self._choices(gpu, task):
            then = self._fragmentation(cpu - task.cpu_milli, mem - task.mem_mib, after) - before
            better = fitting & may & (then < growth[at])
            growth[at[better]], slot[at[better]] = then[better], k

    @staticmethod
    def _choices(gpu: Numbers, task: Task) -> Iterator[tuple[int, Numbers, NDArray[np.bool_]]]:
        """For each GPU that could be chosen: what is left then, and where it has room."""
        if task.gpus == 1 and task.gpu_milli < WHOLE:
            for k in range(SLOTS):
                after = gpu.copy()
                after[:, k] -= task.gpu_milli
                yield k, after, gpu[:, k] >= task.gpu_milli
            return
        free = gpu >= WHOLE
        taken = free & (np.cumsum(free, axis=1) <= task.gpus)
        yield 0, np.where(taken, 0, gpu), np.ones(len(gpu), dtype=bool)

    def _fragmentation(self, cpu: Numbers, mem: Numbers, gpu: Numbers) -> NDArray[np.float64]:
        """GPUs that are left and that a task of the mix could not use, as expected."""
        wants_cpu, wants_mem, wants_gpus, wants_milli = self._wants
        left = gpu.sum(axis=1)
        has_part = gpu >= wants_milli[:, None, None]
        useless = left - (gpu * has_part).sum(axis=2)
        usable = (wants_gpus > 0)[:, None] & (has_part.sum(axis=2) >= wants_gpus[:, None])
        usable &= (cpu >= wants_cpu[:, None]) & (mem >= wants_mem[:, None])
        found: NDArray[np.float64] = self._shares @ np.where(usable, useless, left)
        return found


class Federation:
    """The federation's own placement; all nodes are one site."""

    def __init__(self, nodes: Sequence[dict[str, str]]) -> None:
        self._scheduler = SiteScheduler(("gpu",))
        self._scheduler.update([_node(k, each) for k, each in enumerate(nodes)], ())
        self._tasks = 0

    def __call__(self, _: Cluster, task: Task) -> Place:
        self._tasks += 1
        wanted = Job(
            name="task",
            nodes=1,
            gpus_per_node=task.gpus,
            cpus_per_node=-(-task.cpu_milli // 1000),
            mem_mib_per_node=task.mem_mib,
        )
        asked = BidRequest(
            id=WorkloadId(self._tasks),
            tenant="",
            user="",
            priority=LOWEST_PRIORITY,
            jobs=(wanted,),
            time_limit_s=inf,
        )
        (answer,) = self._scheduler.bid((asked,))
        if answer.bid is None:
            return None
        attempt = AttemptId(workload=WorkloadId(self._tasks), attempt=1)
        self._scheduler.hold(attempt, answer.bid.jobs)
        (name,) = answer.bid.jobs[0].nodes
        return int(name), ()


def _node(number: int, row: dict[str, str]) -> Node:
    return Node(
        name=str(number),
        partitions=("gpu",),
        switch="all",
        cpus=int(row["cpu_milli"]) // 1000,
        mem_mib=int(row["memory_mib"]),
        gpus=int(row["gpu"]),
        gpu_type=row["model"],
    )


# ---- one run ----


def play(
    nodes: Sequence[dict[str, str]], tasks: Sequence[Task], rule: Rule
) -> tuple[float, int, float]:
    """GPUs unallocated at the end, as a part of all; tasks dropped; CPU seconds."""
    cluster, dropped, began_s = Cluster(nodes), 0, time.process_time()
    for task in tasks:
        found = rule(cluster, task)
        if found is None:
            dropped += 1
            continue
        node, slots = found
        cluster.take(node, task, slots or cluster.slots(node, task))
    assert (cluster.gpu >= 0).all()
    assert (cluster.cpu >= 0).all()
    return cluster.unallocated_frac, dropped, time.process_time() - began_s


def drawn(trace: Sequence[Task], most_milli: float, draw: Random) -> list[Task]:
    """Tasks that ask for so much GPU together."""
    found, asked = list[Task](), 0
    while asked < most_milli:
        found.append(draw.choice(trace))
        asked += found[-1].asks_milli
    return found


def rows_of(file: Path) -> list[dict[str, str]]:
    with gzip.open(file, "rt") as text:
        return list(csv.DictReader(text))


def task_of(row: dict[str, str], *, whole: bool) -> Task:
    gpus = int(row["num_gpu"])
    milli = WHOLE if whole or gpus != 1 else int(row["gpu_milli"])
    return Task(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli if gpus else 0)


def mix_of(trace: Sequence[Task]) -> list[tuple[Task, float]]:
    return [(task, count / len(trace)) for task, count in Counter(trace).most_common()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asked", type=float, default=1.0, help="GPUs asked for / those there are")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    if not (TRACES / "openb-2023.nodes.csv.gz").exists():
        print(f"openb-2023 is not in {TRACES}")
        return
    nodes = rows_of(TRACES / "openb-2023.nodes.csv.gz")
    pods = rows_of(TRACES / "openb-2023.pods.csv.gz")
    for whole in (False, True):
        trace = [task_of(row, whole=whole) for row in pods]
        mix = mix_of(trace)
        print("fractions as whole GPUs" if whole else "fractions", f"({len(mix)} types in the mix)")
        for seed in range(given.seeds):
            tasks = drawn(trace, given.asked * Cluster(nodes).total_milli, Random(seed))
            rules: dict[str, Rule] = {
                "gradient descent": GradientDescent(mix),
                "best fit": best_fit,
                "dot product": dot_product,
                "packing": packing,
                "clustering": clustering,
                "random": random_fit(Random(seed)),
            }
            rules |= {"federation": Federation(nodes)} if whole else {}
            for name, rule in rules.items():
                unallocated, dropped, cpu_s = play(nodes, tasks, rule)
                print(
                    f"seed {seed} {name:<17} {100 * unallocated:5.2f} % unallocated, "
                    f"{dropped} of {len(tasks)} dropped, {cpu_s:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
