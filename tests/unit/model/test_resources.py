"""Amounts of the resources that quotas and limits count."""

from __future__ import annotations

from math import inf, nan

import pytest

from federator.errors import InvalidRequest
from federator.model.resources import Resources
from federator.model.workload import Job
from tests.fakes.build import gang

TYPED = Resources(("h100", "a100"), {})


def job(
    nodes: int | None = 1,
    gpus: int = 0,
    cpus: int = 0,
    per_node: int = 1,
    types: tuple[str, ...] = (),
) -> Job:
    return Job(
        name="train",
        nodes=nodes,
        gpus_per_node=gpus,
        cpus=cpus,
        cpus_per_node=per_node,
        gpu_types=types,
    )


def test_a_request_is_the_sum_over_the_jobs_of_all_nodes() -> None:
    het = (job(2, gpus=8, per_node=6, types=("h100",)), job(1, gpus=4, per_node=3, types=("a100",)))
    assert TYPED.request(het) == (20, 15, 4, 16)  # gpus, cpus, a100, h100


def test_a_job_that_accepts_two_types_counts_against_neither() -> None:
    assert TYPED.request([job(1, gpus=8, types=("a100", "h100"))]) == (8, 1, 0, 0)
    assert TYPED.request([job(1, gpus=8)]) == (8, 1, 0, 0)
    unnamed = job(1, gpus=8, types=("b200",))  # no quota names the type
    assert TYPED.request([unnamed]) == (8, 1, 0, 0)


def test_cpus_of_a_job_with_any_number_of_nodes_count_as_for_one_node() -> None:
    assert TYPED.request([job(None, gpus=8, per_node=4)]) == (8, 4, 0, 0)
    assert TYPED.request([job(None, cpus=40, per_node=4)]) == (0, 40, 0, 0)
    assert TYPED.request([job(3, per_node=0)]) == (0, 3, 0, 0)  # at least one per node


def test_what_is_placed_counts_against_the_types_it_was_placed_on() -> None:
    assert TYPED.amounts(16, 2, {"h100": 8, "b200": 8}) == (16, 2, 0, 8)


def test_gpus_are_weighted_by_type_and_those_of_no_known_type_count_one_each() -> None:
    weighted = Resources((), {"h100": 2.0, "t4": 0.0})
    assert weighted.weighted_gpus(8, {"h100": 8}) == 16.0
    assert weighted.weighted_gpus(8, {"a100": 8}) == 8.0
    assert weighted.weighted_gpus(8, {}) == 8.0
    assert weighted.weighted_gpus(12, {"h100": 4, "t4": 4}) == 4 * 2.0 + 4 * 0.0 + 4
    assert weighted.request([gang(1)]) == (8, 1)
    assert weighted.weighted_gpus(0, {}, 640, 1 << 20) == 0.0  # nothing else counts


def test_cpus_and_memory_count_where_they_weigh_more_than_the_gpus() -> None:
    """A fleet of 16 CPUs and 128 GiB for each GPU: shares of the dominant resource."""
    dominant = Resources((), {"h100": 2.0}, 1 / 16, 1 / 128)
    assert dominant.weighted_gpus(8, {"h100": 8}, 128, 1 << 20) == 16.0
    assert dominant.weighted_gpus(1, {}, 128, 4096) == 8.0
    assert dominant.weighted_gpus(0, {}, 16, 512 * 1024) == 4.0
    assert dominant.weighted_gpus(0, {}) == 0.0


def test_an_allowance_that_names_no_type_bounds_none() -> None:
    assert TYPED.bound(64, inf, {"h100": 16}) == (64, inf, inf, 16)


@pytest.mark.parametrize("weight", [-1.0, nan, inf])
@pytest.mark.parametrize("name", ["cpu_weight", "mem_gib_weight"])
def test_a_weight_that_is_no_number_from_0_on_is_refused(name: str, weight: float) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}: .*; expected a number of at least 0"):
        Resources((), {}, **{name: weight})
