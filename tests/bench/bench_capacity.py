"""Measures machine assignment: time and distance from the bound, beside a plain MIP and a greedy.

Run: python -m tests.bench.bench_capacity [--nodes N --partitions N --rounds N --seed N --mixed]
     python -m tests.bench.bench_capacity --lingjun TRACES
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from federator.planner.capacity.assign import assign
from federator.planner.capacity.fleet import CapacityNode, Costs, FailureDomain, Want, groups_of
from federator.planner.capacity.program import AssignmentProgram
from federator.planner.capacity.proof import Tally, homes_of

TYPES = ("a100", "h100", "v100")
RACK = 20  # nodes
FREE_FRAC = 0.12


def fleet(
    nodes: int, partitions: int, seed: int, mixed: bool
) -> tuple[list[CapacityNode], list[Want]]:
    """Racks of 20 nodes, each shared by up to three partitions.

    A rack is of one type, with 8 GPUs a node; ``mixed``: of all types, with 4 or 8, and partitions
    survive the loss of a power domain, too.
    """
    draw = random.Random(seed)
    types = [draw.sample(TYPES, draw.randint(1, 3)) for _ in range(partitions)]
    found = []
    for rack in range(nodes // RACK):
        takers = draw.sample(range(partitions), partitions)
        for number in range(RACK):
            own = TYPES[(rack + number * mixed) % 3]
            here = [p for p in takers if own in types[p]][:3]
            home = "" if draw.random() < FREE_FRAC or not here else f"p{draw.choice(here)}"
            found.append(
                CapacityNode(
                    site="s",
                    name=f"r{rack}n{number}",
                    gpu_type=own,
                    gpus=4 if mixed and number % 2 else 8,
                    rack=f"r{rack}",
                    power=f"w{rack // 25}",
                    partition=home,
                    usable=draw.random() > 0.01,
                    busy=draw.random() < 0.8,
                )
            )
    wants = wants_of(found, types, draw)
    if mixed:
        both = (FailureDomain.RACK, FailureDomain.POWER)
        wants = [replace(want, size=want.size * 9 // 10, survives=both) for want in wants]
    return found, wants


def wants_of(
    nodes: Sequence[CapacityNode], types: Sequence[Sequence[str]], draw: random.Random
) -> list[Want]:
    """Each a little more or less than it has, and whichever rack is lost."""
    have = dict.fromkeys((f"p{p}" for p in range(len(types))), 0)
    for node in nodes:
        if node.usable and node.partition:
            have[node.partition] += node.gpus
    return [
        Want(
            name=name,
            size=max(8, int(gpus * draw.uniform(0.8, 1.02))),
            gpu_types={kind: draw.uniform(0.5, 1.0) for kind in own},
            buffer_frac=0.01,
            survives=(FailureDomain.RACK,),
            spread={FailureDomain.POWER: 0.4} if number % 4 == 0 else {},
        )
        for number, ((name, gpus), own) in enumerate(zip(have.items(), types, strict=True))
    ]


def lingjun(folder: Path, seed: int) -> tuple[list[CapacityNode], list[Want]]:
    """The 847 hosts of Lingjun under their rack and aggregation switches; partitions are drawn."""
    draw = random.Random(seed)
    with (folder / "lingjun-crux-2023.topo.csv").open(encoding="utf-8") as file:
        nodes = [
            CapacityNode(
                site="lingjun",
                name=row["node"],
                gpu_type="gpu",
                gpus=8,
                rack=row["asw"],
                power=row["psw"],
                partition="" if draw.random() < FREE_FRAC else f"p{draw.randrange(12)}",
                busy=draw.random() < 0.8,
            )
            for row in csv.DictReader(file)
        ]
    return nodes, wants_of(nodes, [["gpu"]] * 12, draw)


def greedy_cost(nodes: Sequence[CapacityNode], wants: Sequence[Want]) -> tuple[float, int]:
    """Partitions in turn take the spare node that helps most; cost, and wants it does not meet."""
    tally, costs = Tally(nodes, wants, homes_of(nodes)), Costs()
    free = [n for n in nodes if n.usable and not n.partition]
    cost = sum(costs.of(w, n) for w in wants for n in nodes if n.partition == w.name and n.usable)
    unmet = 0
    for want in wants:
        while not (holding := tally.holding(want.name)).holds:
            fit = [node for node in free if want.amount(node)]
            fit = [n for n in fit if f"rack {n.domain(FailureDomain.RACK)}" != holding.worst] or fit
            if not fit or holding.crowded:
                unmet += 1
                break
            node = min(fit, key=lambda node: costs.of(want, node))
            free.remove(node)
            tally.add(node, want.name)
            cost += costs.join + costs.of(want, node)
    return cost, unmet


def measure(
    title: str, nodes: Sequence[CapacityNode], wants: Sequence[Want], args: argparse.Namespace
) -> None:
    """Prints the median CPU time of plans, then one plain MIP and one greedy, same fleet."""
    plain = [replace(want, gpu_types=dict.fromkeys(want.gpu_types, 1.0)) for want in wants]
    for words, asked in ((title, wants), (f"{title}, moves alone", plain)):
        took = []
        for _ in range(args.rounds):
            began = time.process_time()
            found = assign(nodes, asked)
            took.append(time.process_time() - began)
        if found.cost is None:
            print(f"{words}: no plan, {len(found.short)} wants lack something")
            continue
        print(
            f"{words}: {statistics.median(took):.2f} s, at most {max(took):.2f}; cost "
            f"{found.cost:.2f}, bound {found.bound:.2f}, {found.above_frac:.2%} above; "
            f"{len(found.moves)} moves; every loss of a rack survived: "
            f"{all(holding.holds for holding in found.after)}"
        )
        began = time.process_time()
        program = AssignmentProgram(groups_of(nodes, asked), asked, Costs(), args.plain_s)
        mip = program.plain_plan()
        said = "no plan" if mip is None else f"cost {mip.cost:.2f}, its bound {mip.bound:.2f}"
        print(f"  plain MIP: {time.process_time() - began:.2f} s, {said}")
        began = time.process_time()
        cost, unmet = greedy_cost(nodes, asked)
        print(f"  greedy: {time.process_time() - began:.2f} s, cost {cost:.2f}, {unmet} not met")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain-s", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mixed", action="store_true", help="racks of mixed nodes")
    parser.add_argument("--lingjun", type=Path, metavar="TRACES")
    args = parser.parse_args()
    if args.lingjun is not None:
        nodes, wants = lingjun(args.lingjun, args.seed)
        measure(f"Lingjun, {len(nodes)} hosts x {len(wants)}", nodes, wants, args)
        return
    nodes, wants = fleet(args.nodes, args.partitions, args.seed, args.mixed)
    measure(f"{len(nodes)} nodes x {len(wants)}, seed {args.seed}", nodes, wants, args)


if __name__ == "__main__":
    main()
