"""Measures the placement planner: time, memory, the bound, and small cases beside the optimum.

Run: python -m tests.bench.bench_tetris [--tables N --regions N --jobs N --kicks N]
     python -m tests.bench.bench_tetris --small 200
     python -m tests.bench.bench_tetris --joint 50 [--room-frac F]
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

import numpy as np

from federator.planner.tetris_bound import certificate
from federator.planner.tetris_climb import ClimbRules, climb
from federator.planner.tetris_cost import HomePlacement
from federator.planner.tetris_exact import ExactProblem
from federator.planner.tetris_joint import JointProblem
from federator.planner.tetris_replicas import ReplicaRules, plan_replicas
from federator.planner.tetris_search import plan_homes
from federator.planner.tetris_words import certificate_text
from federator.sim.experiments.tetris import tetris_weights
from federator.sim.generate.warehouse import WarehouseModel, warehouse_like_mast
from tests.unit.planner.warehouses import drawn, weighed


def large(model: WarehouseModel, quota_frac: float, kicks: int, seed: int) -> None:
    """One day's plan; CPU seconds of each part."""
    clock = time.process_time
    warehouse = warehouse_like_mast(model, seed)
    weights = tetris_weights(warehouse, "V2", 0.1)
    quota_gib = quota_frac * float(warehouse.tables.gib.sum())
    began = clock()
    paper = HomePlacement(warehouse, weights)
    by_paper = climb(paper, ClimbRules(quota_gib=quota_gib))
    print(f"passes A and B alone: {clock() - began:.1f} s, cost {by_paper.after.total:.4g}")
    began = clock()
    placement = HomePlacement(warehouse, weights)
    found = plan_homes(placement, quota_gib, kicks, seed)
    homes = clock()
    print(f"homes, {kicks} kicks: {homes - began:.1f} s, cost {found.after.total:.4g}")
    proof = certificate(HomePlacement(warehouse, weights), placement, quota_gib)
    certified = clock()
    print(f"certificate: {certified - homes:.1f} s; {certificate_text(proof)}")
    print(f"above the bound: {100 * proof.above_frac:.1f} %")
    copies = plan_replicas(placement, ReplicaRules())
    print(f"copies: {clock() - certified:.1f} s, {len(copies.replicas)}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"all but the first line: {clock() - began:.1f} CPU s; peak {peak:.0f} MiB")


def small(cases: int, kicks: int) -> None:
    """Random small cases beside the optimum of HiGHS."""
    gaps = []
    for seed in range(cases):
        warehouse = drawn(seed, tables=12, regions=3, jobs=12)
        weights = weighed(warehouse)
        quota_gib = 0.5 * float(warehouse.tables.gib.sum())
        found = plan_homes(HomePlacement(warehouse, weights), quota_gib, kicks, seed)
        best = ExactProblem(HomePlacement(warehouse, weights), quota_gib).solve()
        gaps.append(found.after.total / best.cost - 1)
        if gaps[-1] > 0.02:
            print(f"case {seed}: {100 * gaps[-1]:.1f} % above the optimum", flush=True)
    ends = np.percentile(gaps, [50, 99, 100])
    print(
        f"{cases} cases: above the optimum P50 {100 * ends[0]:.2f} %, P99 {100 * ends[1]:.2f} %, "
        f"worst {100 * ends[2]:.2f} %; {sum(gap <= 0.02 for gap in gaps)} within 2 %"
    )


def joint(cases: int, kicks: int, room_frac: float) -> None:
    """Random small cases: homes and copies together, beside homes first and copies after."""
    exact, ours = [], []
    for seed in range(cases):
        drawn_ = drawn(seed, tables=8, regions=3, jobs=10)
        total = float(drawn_.tables.gib.sum())
        regions = replace(drawn_.regions, replica_gib=np.full(3, room_frac * total))
        warehouse = replace(drawn_, regions=regions)
        weights, quota_gib = weighed(warehouse), 0.5 * total
        best = JointProblem(HomePlacement(warehouse, weights), quota_gib).least()
        apart = JointProblem(HomePlacement(warehouse, weights), quota_gib)
        homes = ExactProblem(HomePlacement(warehouse, weights), quota_gib).solve().home
        apart.fix(np.array(homes))
        exact.append(apart.least() / best - 1)
        placement = HomePlacement(warehouse, weights)
        plan_homes(placement, quota_gib, kicks, seed)
        held = plan_replicas(placement, ReplicaRules(recovery=False, partly=False)).held
        planned = JointProblem(HomePlacement(warehouse, weights), quota_gib)
        planned.fix(placement.home, held > 0)
        ours.append(planned.least() / best - 1)
        print(
            f"case {seed}: apart {100 * exact[-1]:.2f} %, ours {100 * ours[-1]:.2f} %", flush=True
        )
    for word, gaps in (("apart, each exactly", exact), ("as planned", ours)):
        print(
            f"{word}: above the joint optimum mean {100 * np.mean(gaps):.2f} %, "
            f"P50 {100 * np.median(gaps):.2f} %, worst {100 * np.max(gaps):.2f} %"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--regions", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--kicks", type=int, default=2_000)
    parser.add_argument("--quota-frac", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", type=int, default=0, metavar="CASES")
    parser.add_argument("--joint", type=int, default=0, metavar="CASES")
    parser.add_argument("--room-frac", type=float, default=0.2, help="for copies, of all tables")
    args = parser.parse_args()
    if args.joint:
        joint(args.joint, args.kicks, args.room_frac)
        return
    if args.small:
        small(args.small, args.kicks)
        return
    model = WarehouseModel(
        tables=args.tables,
        regions=args.regions,
        jobs=args.jobs,
        departments=max(args.tables // 33, 4),
    )
    large(model, args.quota_frac, args.kicks, args.seed)


if __name__ == "__main__":
    main()
