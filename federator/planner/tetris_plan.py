"""A day's plan of data placement: homes, copies, and the proof of how good the homes are."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from federator.planner.tetris_bound import Certificate, certificate
from federator.planner.tetris_climb import Climb, ClimbRules, climb
from federator.planner.tetris_cost import HomePlacement, TetrisWeights
from federator.planner.tetris_replicas import ReplicaPlan, ReplicaRules, plan_replicas
from federator.planner.tetris_search import plan_homes
from federator.planner.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How a plan is made.

    Attributes:
        quota_gib: to move today.
        paper: the paper's hill climbing alone.
        kicks: trials beyond it.
        seed: of what they draw.
        certified: compute a bound.
    """

    quota_gib: float = inf
    paper: bool = False
    kicks: int = 2000
    seed: int = 0
    certified: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlan:
    """Attributes: moves of homes, copies to make then, and the proof, if one was asked for."""

    climb: Climb
    replicas: ReplicaPlan
    certificate: Certificate | None


def plan_data(
    warehouse: Warehouse,
    weights: TetrisWeights,
    options: PlanOptions,
    rules: ReplicaRules | None = None,
) -> DataPlan:
    """Plan the day. The same arguments give the same plan.

    Raises:
        InvalidRequest: a certificate is asked for, and HiGHS is not installed.
    """
    placement = HomePlacement(warehouse, weights)
    if options.paper:
        found = climb(placement, ClimbRules(quota_gib=options.quota_gib))
    else:
        found = plan_homes(placement, options.quota_gib, options.kicks, options.seed)
    proof = None
    if options.certified:
        proof = certificate(HomePlacement(warehouse, weights), placement, options.quota_gib)
    replicas = plan_replicas(placement, rules or ReplicaRules())
    return DataPlan(climb=found, replicas=replicas, certificate=proof)
