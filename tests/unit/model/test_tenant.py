"""Tenants as rows: who bounds whom, what a request counts as, and which input is refused."""

from __future__ import annotations

from math import inf, nan

import pytest

from federator.errors import InvalidRequest
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import TenantName
from tests.fakes.build import tenant, workload

TYPED = Tenancy([tenant("vision", Allowance(gpus=64, gpu_types={"h100": 16, "a100": 32}))])


# ---- bad input ----


@pytest.mark.parametrize("amount", [-1, -0.5, nan, -inf])
def test_an_allowance_that_is_negative_or_no_number_is_refused(amount: float) -> None:
    with pytest.raises(InvalidRequest, match="cannot be negative or no number"):
        Allowance(gpus=amount)
    with pytest.raises(InvalidRequest, match="cannot be negative or no number"):
        Allowance(cpus=amount)
    with pytest.raises(InvalidRequest, match="cannot be negative or no number"):
        Allowance(gpu_types={"h100": amount})


@pytest.mark.parametrize("priority", [0, 8, -1])
def test_a_priority_outside_one_to_seven_is_refused_with_the_tenants_name(priority: int) -> None:
    with pytest.raises(InvalidRequest, match=f"'vision': priority {priority}; expected 1 to 7"):
        tenant(priority=priority)


def test_a_tenant_given_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'vision' is given twice"):
        Tenancy([tenant(), tenant()])


def test_an_unknown_parent_is_refused_with_both_names() -> None:
    with pytest.raises(InvalidRequest, match="'vision': unknown parent 'lab'"):
        Tenancy([tenant(parent="lab")])


@pytest.mark.parametrize("circle", [("a",), ("a", "b"), ("a", "b", "c")])
def test_parents_that_form_a_circle_are_refused(circle: tuple[str, ...]) -> None:
    above = (*circle[1:], circle[0])
    with pytest.raises(InvalidRequest, match="is its own ancestor"):
        Tenancy([tenant(name, parent=up) for name, up in zip(circle, above, strict=True)])


def test_a_child_of_a_circle_is_refused_and_not_followed_for_ever() -> None:
    with pytest.raises(InvalidRequest, match="is its own ancestor"):
        Tenancy([tenant("c", parent="a"), tenant("a", parent="b"), tenant("b", parent="a")])


@pytest.mark.parametrize("weight", [-1.0, nan, inf])
def test_a_weight_that_is_negative_or_no_number_is_refused(weight: float) -> None:
    with pytest.raises(InvalidRequest, match="'h100': weight"):
        Tenancy(gpu_weights={"h100": weight})


def test_a_million_characters_of_name_make_a_short_message() -> None:
    name = "x" * 1_000_000
    with pytest.raises(InvalidRequest) as error:
        Tenancy([tenant(name), tenant(name)])
    assert len(str(error.value)) < 200


# ---- rows ----


def test_a_chain_goes_from_a_tenant_up_to_its_highest_ancestor() -> None:
    tenancy = Tenancy([tenant("a", parent="b"), tenant("b", parent="c"), tenant("c")])
    assert [tenancy.chain(row) for row in range(3)] == [(0, 1, 2), (1, 2), (2,)]


def test_only_those_of_the_chain_that_have_a_quota_or_a_limit_bound_a_tenant() -> None:
    tenancy = Tenancy(
        [
            tenant("a", parent="b", limit=8),
            tenant("b", 16, parent="c"),
            tenant("c", limit=32),
        ]
    )
    assert (tenancy.quota_rows(0), tenancy.limit_rows(0)) == ((1,), (0, 2))
    assert (tenancy.quota_rows(2), tenancy.limit_rows(2)) == ((), (2,))


def test_tenants_are_of_one_family_only_when_they_share_an_ancestors_quota() -> None:
    tenancy = Tenancy(
        [
            tenant("lab"),
            tenant("a", 8, parent="lab"),
            tenant("b", 8, parent="lab"),
            tenant("a1", parent="a"),
            tenant("a2", 4, parent="a"),
        ]
    )
    assert [tenancy.family(row) for row in range(5)] == [0, 1, 2, 1, 1]


def test_a_tenant_nobody_named_has_no_quota_no_limit_and_the_lowest_priority() -> None:
    tenancy = Tenancy([tenant("vision", 8)])
    row = tenancy.row(TenantName("stranger"))
    assert (row, len(tenancy), tenancy.row(TenantName("stranger"))) == (1, 2, 1)
    assert (tenancy.quota_rows(row), tenancy.limit_rows(row)) == ((), ())
    assert (tenancy.chain(row), tenancy.family(row)) == ((1,), 1)
    assert tenancy.level(workload(tenant="stranger")) == 7


def test_asking_for_a_level_gives_nobody_a_row() -> None:
    tenancy = Tenancy()
    assert tenancy.level(workload(tenant="stranger")) == 7
    assert len(tenancy) == 0
    assert TenantName("stranger") not in tenancy


def test_a_user_may_ask_for_a_lower_level_than_the_tenants_and_not_for_a_higher() -> None:
    tenancy = Tenancy([tenant("vision", priority=3)])
    assert [tenancy.level(workload(asked_priority=p)) for p in (1, 3, 5, 7)] == [3, 3, 5, 7]


# ---- amounts ----


def test_resources_are_gpus_cpus_and_every_type_that_a_quota_or_a_limit_names() -> None:
    limited = Tenant(name=TenantName("x"), limit=Allowance(gpu_types={"b200": 8}))
    tenancy = Tenancy([*TYPED.tenants, limited])
    assert tenancy.resources.names == ("gpus", "cpus", "a100", "b200", "h100")
    assert [tenancy.resources.unit(k) for k in range(5)] == [
        "GPUs",
        "CPUs",
        "a100 GPUs",
        "b200 GPUs",
        "h100 GPUs",
    ]
    assert tenancy.quotas[0] == (64, inf, 32, inf, 16)
    assert tenancy.limits == [None, (inf, inf, inf, 8, inf)]
