"""A score has its terms in one order, and its sum keeps what decides between sites."""

from __future__ import annotations

import re

from federator.model.score import TERMS, Score
from federator.sched.bid import score
from federator.sched.bid.score import PERFECT, harm_of, total, with_harm


def test_the_module_names_every_term_in_the_order_of_their_weight() -> None:
    rows = [line for line in (score.__doc__ or "").splitlines() if line.startswith("| ``")]
    named = re.findall(r"``(\w+)``", " ".join(row.split("|")[1] for row in rows))
    assert tuple(named) == TERMS


def test_harm_comes_before_everything_that_a_place_costs() -> None:
    near, far = Score(locality_cost=1.0), Score(locality_cost=100.0, fragmentation=8.0)
    assert with_harm(near, (1, 3, 2, 60.0)) > far
    assert harm_of(with_harm(near, (1, 3, 2, 60.0))) == (1, 3, 2, 60.0)
    assert with_harm(near, harm_of(PERFECT)) == near


def test_a_workload_is_scored_by_the_sum_of_its_jobs() -> None:
    gang, host = Score(locality_cost=28.0, gpu_worth=8.0), Score(gpus_unasked=8)
    assert total([gang, host], with_gpus=True) == gang
    assert total([host, host], with_gpus=False) == Score(gpus_unasked=16)
