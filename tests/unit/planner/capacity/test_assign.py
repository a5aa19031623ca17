from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federator.errors import FederatorError, InvalidRequest
from federator.planner.capacity.assign import Assignment, assign, checked
from federator.planner.capacity.fleet import CapacityNode, Costs, FailureDomain, Want, groups_of
from federator.planner.capacity.program import AssignmentProgram, Rounded
from tests.unit.planner.capacity.fleets import any_rack, rack


def moved(found: Assignment) -> dict[str, tuple[str, str]]:
    return {move.node.name: (move.old, move.new) for move in found.moves}


def test_nothing_moves_where_every_partition_is_large_enough() -> None:
    found = assign(rack("r1", "aab-"), [Want(name="a", size=16), Want(name="b", size=8)])
    assert found.moves == ()
    assert found.cost == found.bound == 0


def test_a_short_partition_takes_spare_nodes_before_those_of_others() -> None:
    found = assign(rack("r1", "abbb--"), [Want(name="a", size=24), Want(name="b", size=8)])
    assert moved(found) == {"r1-4": ("", "a"), "r1-5": ("", "a")}
    assert found.moves[0].why == "a has 8 of 24 GPUs"


def test_idle_nodes_leave_a_partition_before_busy_ones() -> None:
    nodes = rack("r1", "abbb")
    nodes[1], nodes[3] = replace(nodes[1], busy=True), replace(nodes[3], busy=True)
    found = assign(nodes, [Want(name="a", size=16), Want(name="b", size=16)])
    assert moved(found) == {"r1-2": ("b", "a")}


def test_a_partition_keeps_its_size_when_any_rack_is_lost() -> None:
    nodes = [*rack("r1", "aaaa"), *rack("r2", "----"), *rack("r3", "----")]
    found = assign(nodes, [any_rack("a", 32)])
    (after,) = found.after
    assert after.left >= 32
    for lost in ("r1", "r2", "r3"):
        kept = [
            node.gpus
            for node in nodes
            if node.rack != lost
            and {m.node.name: m.new for m in found.moves}.get(node.name, node.partition) == "a"
        ]
        assert sum(kept) >= 32


def test_a_dead_node_counts_nothing_and_is_replaced() -> None:
    nodes = rack("r1", "aa-")
    nodes[0] = replace(nodes[0], usable=False)
    assert moved(assign(nodes, [Want(name="a", size=16)])) == {"r1-2": ("", "a")}


def test_nodes_whose_racks_are_unknown_count_as_one_rack() -> None:
    nodes = [replace(node, rack="") for node in rack("r1", "aaaa--")]
    with pytest.raises(InvalidRequest, match=r"a lacks 8 GPUs: .* even alone it lacks 8"):
        checked(assign(nodes, [any_rack("a", 8)]))


def test_types_that_are_not_allowed_stay_and_count_nothing() -> None:
    nodes = [*rack("r1", "aa", "v100"), *rack("r2", "--", "h100")]
    found = assign(nodes, [Want(name="a", size=16, gpu_types={"h100": 1.0})])
    assert moved(found) == {"r2-0": ("", "a"), "r2-1": ("", "a")}


def test_the_type_that_is_worth_more_is_taken() -> None:
    nodes = [*rack("r1", "--", "v100"), *rack("r2", "--", "h100")]
    found = assign(nodes, [Want(name="a", size=16, gpu_types={"h100": 1.0, "v100": 0.5})])
    assert {move.node.gpu_type for move in found.moves} == {"h100"}


def test_no_running_node_is_drained_for_a_preference_at_the_default_costs() -> None:
    nodes = [*rack("r1", "aa", "v100"), *rack("r2", "--", "h100")]
    wants = [Want(name="a", size=16, gpu_types={"h100": 1.0, "v100": 0.5})]
    assert assign(nodes, wants).moves == ()
    dear = assign(nodes, wants, Costs(preference=5))
    assert {move.new for move in dear.moves} == {"a", ""}


def test_nodes_near_the_data_are_taken() -> None:
    nodes = [replace(node, storage=f"fs{i % 2}") for i, node in enumerate(rack("r1", "----"))]
    found = assign(nodes, [Want(name="a", size=16, near=("fs1",))])
    assert set(moved(found)) == {"r1-1", "r1-3"}


def test_a_domain_that_spans_sites_is_lost_at_all_of_them() -> None:
    nodes = [
        CapacityNode(site=site, name=f"n{number}", gpus=8, storage="lustre1")
        for site in ("alpine", "basalt")
        for number in range(2)
    ]
    want = Want(name="a", size=16, survives=(FailureDomain.STORAGE,))
    assert assign(nodes, [want]).short[0].alone == 16
    apart = [replace(node, storage="") for node in nodes]
    assert assign(apart, [want]).after[0].left == 16


def test_a_plan_that_does_not_hold_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(program: AssignmentProgram) -> Rounded:
        return Rounded(nodes=np.zeros(len(program.stays)), cost=0.0, bound=0.0)

    monkeypatch.setattr(AssignmentProgram, "whole_plan", nothing)
    with pytest.raises(FederatorError, match="leaves a 0 of 8 GPUs"):
        assign(rack("r1", "-"), [Want(name="a", size=8)])


def test_no_power_domain_holds_more_than_its_part() -> None:
    nodes = [*rack("r1", "aaaa", power="east"), *rack("r2", "----", power="west")]
    found = assign(nodes, [Want(name="a", size=32, spread={FailureDomain.POWER: 0.5})])
    homes = {node.name: node.partition for node in nodes}
    homes |= {move.node.name: move.new for move in found.moves}
    assert sum(homes[f"r1-{i}"] == "a" for i in range(4)) == 2
    assert sum(homes[f"r2-{i}"] == "a" for i in range(4)) == 2
    assert found.moves[0].why == "a is too much in power east"


def test_a_buffer_for_single_failures_is_beside_the_size() -> None:
    found = assign(rack("r1", "a" * 10 + "--"), [Want(name="a", size=80, buffer_frac=0.1)])
    assert len(found.moves) == 1


def test_a_want_that_cannot_be_met_says_by_how_much() -> None:
    wants = [Want(name="a", size=16), Want(name="b", size=16)]
    found = assign(rack("r1", "ab-"), wants)
    assert found.cost is None
    (short,) = found.short
    assert (short.by, short.alone, short.usable) == (8, 0, 24)
    with pytest.raises(InvalidRequest, match=r"lacks 8 GPUs: it is to have 16 GPUs; it may have"):
        checked(found)


def test_sizes_in_nodes_count_nodes() -> None:
    found = assign(rack("r1", "a--"), [Want(name="a", size=2, in_nodes=True)])
    assert moved(found) == {"r1-1": ("", "a")}


def test_only_named_sites_give_nodes() -> None:
    nodes = [*rack("r1", "-"), CapacityNode(site="basalt", name="n1", gpus=8)]
    found = assign(nodes, [Want(name="a", size=8, sites=("basalt",))])
    assert moved(found) == {"n1": ("", "a")}


def test_a_size_that_is_no_multiple_of_a_node_takes_whole_ones() -> None:
    """12 GPUs are a node and a half."""
    assert len(assign(rack("r1", "---"), [Want(name="a", size=12)]).moves) == 2
    (short,) = assign(rack("r1", "---"), [Want(name=name, size=12) for name in "ab"]).short
    assert short.by == 8


def test_a_want_that_only_parts_of_nodes_would_meet_is_refused() -> None:
    nodes = [
        replace(node, gpus=gpus) for node, gpus in zip(rack("r1", "---"), (6, 6, 4), strict=True)
    ]
    found = assign(nodes, [Want(name=name, size=8) for name in "ab"])
    assert (found.cost, found.short) == (None, ())
    with pytest.raises(InvalidRequest, match="parts of nodes would meet every want"):
        checked(found)


def test_a_node_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a node is there twice"):
        assign(rack("r1", "a") * 2, [])


def test_a_plan_is_shown_at_the_bound_where_parts_of_nodes_would_cost_less() -> None:
    """Two thirds of a node in each of four racks would do; three whole nodes are the best."""
    nodes = [node for k in range(4) for node in rack(f"r{k}", "--")]
    want = any_rack("a", 16)
    program = AssignmentProgram(groups_of(nodes, [want]), [want], Costs())
    relaxed = program.whole_plan()
    assert relaxed is not None
    found = assign(nodes, [want])
    assert found.cost == pytest.approx(0.3)
    assert relaxed.bound < 0.28
    assert found.bound == pytest.approx(0.3)
    assert found.above_frac == 0
