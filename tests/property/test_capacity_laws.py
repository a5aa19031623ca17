"""Laws of machine assignment, over fleets and wants that nobody chose."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.planner.capacity.assign import Assignment, assign
from federator.planner.capacity.fleet import CapacityNode, FailureDomain, Want
from federator.planner.capacity.proof import holdings
from federator.planner.capacity.script import steps_of

NAMES = ("a", "b", "c")


@st.composite
def fleets(draw: st.DrawFn) -> list[CapacityNode]:
    nodes = []
    for number in range(draw(st.integers(2, 5))):
        gpus = draw(st.sampled_from([4, 8]))
        for each in range(draw(st.integers(1, 5))):
            nodes.append(
                CapacityNode(
                    site=draw(st.sampled_from(["alpine", "basalt"])),
                    name=f"r{number}-{each}",
                    gpu_type=f"t{number % 2}",
                    gpus=gpus,
                    rack=f"r{number}",
                    power=draw(st.sampled_from(["", f"p{number // 2}"])),
                    storage=f"s{number % 2}",
                    partition=draw(st.sampled_from(["", *NAMES])),
                    usable=draw(st.integers(0, 9)) > 0,
                    busy=draw(st.booleans()),
                )
            )
    return nodes


@st.composite
def wanted(draw: st.DrawFn) -> list[Want]:
    return [
        Want(
            name=name,
            size=draw(st.integers(1, 30)),
            gpu_types=draw(st.sampled_from([{}, {"t0": 1.0}, {"t0": 0.3, "t1": 1.0}])),
            buffer_frac=draw(st.sampled_from([0.0, 0.1])),
            survives=draw(
                st.sampled_from(
                    [
                        (),
                        (FailureDomain.RACK,),
                        (FailureDomain.RACK, FailureDomain.POWER),
                        (FailureDomain.STORAGE,),
                        (FailureDomain.SITE,),
                    ]
                )
            ),
            spread=draw(st.sampled_from([{}, {FailureDomain.POWER: 0.7}])),
            near=draw(st.sampled_from([(), ("s0",)])),
        )
        for name in NAMES[: draw(st.integers(1, 3))]
    ]


def planned(nodes: list[CapacityNode], wants: list[Want]) -> list[CapacityNode]:
    """Nodes in partitions that nobody plans are none of the plan's."""
    names = {want.name for want in wants}
    return [node for node in nodes if node.partition in {"", *names}]


def held(
    found: dict[tuple[str, str], str], nodes: list[CapacityNode], want: Want, kind: FailureDomain
) -> Counter[tuple[str, ...]]:
    """What it has in each domain, counted anew; one that is named may span sites."""
    held: Counter[tuple[str, ...]] = Counter()
    for node in nodes:
        if found[node.site, node.name] == want.name:
            name = "" if kind is FailureDomain.SITE else str(getattr(node, kind.value))
            held[(name,) if name else ("", node.site)] += want.amount(node)
    return held


def left_without(found: dict[tuple[str, str], str], nodes: list[CapacityNode], want: Want) -> int:
    """The least that it has after a loss of any one domain."""
    total = held(found, nodes, want, FailureDomain.SITE).total()
    losses = [max(held(found, nodes, want, kind).values(), default=0) for kind in want.survives]
    return total - max(losses, default=0)


def homes_after(nodes: list[CapacityNode], plan: Assignment) -> dict[tuple[str, str], str]:
    homes = {(node.site, node.name): node.partition for node in nodes}
    for move in plan.moves:
        key = (move.node.site, move.node.name)
        assert homes[key] == move.old != move.new
        homes[key] = move.new
    return homes


@settings(max_examples=150)
@given(fleets(), wanted())
def test_every_want_is_met_whatever_is_lost_or_the_plan_is_refused_with_the_lack(
    nodes: list[CapacityNode], wants: list[Want]
) -> None:
    nodes = planned(nodes, wants)
    plan = assign(nodes, wants)
    if plan.cost is None:
        assert plan.moves == ()
        assert all(short.by > 0 for short in plan.short)
        for short in plan.short:
            if not short.want.spread:
                all_its = {(node.site, node.name): short.want.name for node in nodes}
                lacks = left_without(all_its, nodes, short.want) < short.want.need
                assert lacks == (short.alone > 0)
        plain = len(wants) == 1 and not wants[0].spread
        assert plan.short or not plain  # fractions of nodes cannot be all that helps
        return
    homes = homes_after(nodes, plan)
    moved = [(move.node.site, move.node.name) for move in plan.moves]
    assert len(set(moved)) == len(moved)
    for want in wants:
        assert left_without(homes, nodes, want) >= want.need
        for kind, share in want.spread.items():
            most = max(held(homes, nodes, want, kind).values(), default=0)
            assert most <= share * want.need + 1e-6
    assert plan.bound <= plan.cost + 1e-6


@settings(max_examples=100)
@given(fleets(), wanted())
def test_no_single_move_could_be_left_out(nodes: list[CapacityNode], wants: list[Want]) -> None:
    """Without it a want is not met, or a node of less worth stays."""
    nodes = planned(nodes, wants)
    plan = assign(nodes, wants)
    homes = homes_after(nodes, plan)
    for move in plan.moves:
        assert move.why
        without = homes | {(move.node.site, move.node.name): move.old}
        met = all(holding.holds for holding in holdings(nodes, wants, without))
        by_name = {want.name: want for want in wants}
        old = by_name.get(move.old)
        if met:
            assert old is not None
            assert old.gpu_types or old.near


@settings(max_examples=100)
@given(fleets(), wanted())
def test_who_is_large_enough_already_is_left_alone(
    nodes: list[CapacityNode], wants: list[Want]
) -> None:
    nodes = planned(nodes, wants)
    plain = [Want(name=w.name, size=w.size, survives=w.survives) for w in wants]
    plan = assign(nodes, plain)
    if all(holding.holds for holding in plan.before):
        assert plan.moves == ()


@settings(max_examples=100)
@given(fleets(), wanted())
def test_steps_lead_to_the_plan_one_node_at_a_time(
    nodes: list[CapacityNode], wants: list[Want]
) -> None:
    nodes = planned(nodes, wants)
    plan = assign(nodes, wants)
    homes = {(node.site, node.name): node.partition for node in nodes}
    for move in steps_of(plan):
        assert homes[move.node.site, move.node.name] == move.old
        homes[move.node.site, move.node.name] = move.new
    assert homes == homes_after(nodes, plan)
