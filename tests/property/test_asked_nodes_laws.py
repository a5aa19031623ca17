"""Plans have the nodes that were asked for, none that were excluded, and satisfy constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, permutations

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from federator.model.constraint import ways_of
from federator.model.plan import Bid
from federator.model.site import Node, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.negative_cache import NOBODY, NegativeCache
from federator.sched.bid.placement import Placed, fits_somewhere, place_job
from federator.sched.bid.site_scheduler import SiteScheduler
from tests.fakes.build import bid_request, gang, rack
from tests.property import test_preemption_laws as preemption

MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEATURES = ("a", "b", "c")
CONSTRAINTS = (
    "",
    "a|b",
    "a|b&c",
    "a&(b|c)",
    "(a&b)|c",
    "[a|b]",
    "c&[a|b]",
    "[a|b|c]",
    "a*1",
    "[a*1&b*1]",
    "[a*2&b*1]",
    "[(a|c)*1&b*1&c*1]",
    "a*1&b*1&c",
)


def naive_holds(expression: str, has: frozenset[str]) -> bool:
    """By Python's own operators on booleans, which here have one precedence: left to right."""
    text = expression
    while "(" in text:
        start = text.rindex("(")
        end = text.index(")", start)
        inner = "T" if naive_holds(text[start + 1 : end], has) else "F"
        text = text[:start] + inner + text[end + 1 :]
    value, operator, word = True, "&", ""
    for letter in text + "&":
        if letter not in "&|":
            word += letter
            continue
        found = word == "T" or (word != "F" and word in has)
        value = (value or found) if operator == "|" else (value and found)
        operator, word = letter, ""
    return value


def _parts(text: str) -> list[str]:
    """Of the outermost level, where only & joins them."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "&" and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def naive_satisfies(constraint: str, nodes: Sequence[frozenset[str]]) -> bool:
    """Whether nodes with these features satisfy a constraint, tried out."""
    if not constraint:
        return True
    if "*" not in constraint and "[" not in constraint:
        return all(naive_holds(constraint, has) for has in nodes)
    flat = [
        inner
        for part in _parts(constraint)
        for inner in (_parts(part[1:-1]) if part[0] == "[" and "*" in part else [part])
    ]
    counted: list[str] = []
    for part in flat:
        if "*" in part:
            expression, _, count = part.partition("*")
            counted += [expression.strip("()")] * int(count)
        elif part.startswith("["):
            if not any(
                all(naive_holds(one, has) for has in nodes) for one in part[1:-1].split("|")
            ):
                return False
        elif not all(naive_holds(part, has) for has in nodes):
            return False
    return any(
        all(naive_holds(expression, has) for expression, has in zip(counted, some, strict=True))
        for some in permutations(nodes, len(counted))
    )


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Node, ...]:
    count = draw(st.integers(1, 3))
    nodes = rack("x", count) + rack("y", draw(st.integers(0, 3)))
    return tuple(
        replace(
            node,
            features=tuple(sorted(draw(st.sets(st.sampled_from(FEATURES))))),
            gpus_alloc=draw(st.sampled_from([0, 0, 4, 8])),
        )
        for node in nodes
    )


names = st.sets(st.sampled_from(["x1", "x2", "x3", "y1", "y2"]), max_size=2)


@st.composite
def jobs(draw: st.DrawFn, *, totals: bool = True) -> Job:
    count = draw(st.integers(1, 4))
    asked = draw(names)
    base = gang(count, draw(st.sampled_from([0, 2, 8])))
    if totals and draw(st.booleans()):
        base = Job(
            name="train",
            gpus=draw(st.integers(max(1, count), 20)),
            nodes=draw(st.sampled_from([None, count])),
        )
    return replace(
        base,
        constraint=draw(st.sampled_from(CONSTRAINTS)),
        nodelist=tuple(sorted(asked)),
        exclude=tuple(sorted(draw(names) - asked)),
    )


def satisfies(job: Job, nodes: Iterable[Node]) -> bool:
    chosen = list(nodes)
    has = {node.name for node in chosen}
    return (
        has >= set(job.nodelist)
        and has.isdisjoint(job.exclude)
        and naive_satisfies(job.constraint, [frozenset(node.features) for node in chosen])
    )


@given(jobs(), fleets())
@MANY
def test_every_plan_has_the_nodes_asked_for_and_satisfies_the_constraint(
    job: Job, fleet: tuple[Node, ...]
) -> None:
    found = place_job(job, FreeCapacity(fleet), ("gpu",))
    event("placed" if isinstance(found, Placed) else "refused")
    if isinstance(found, Placed):
        by_name = {node.name: node for node in fleet}
        assert satisfies(job, [by_name[name] for name in found.plan.nodes])
        assert job.nodes in (None, len(found.plan.nodes))
        assert sum(s.gpus for s in found.plan.nodes.values()) >= job.total_gpus


@given(jobs(totals=False), fleets())
@MANY
def test_a_plan_is_found_just_when_some_nodes_would_do(job: Job, fleet: tuple[Node, ...]) -> None:
    free = [node for node in fleet if node.gpus - node.gpus_alloc >= job.gpus_per_node]
    possible = any(satisfies(job, some) for some in combinations(free, job.nodes or 1))
    event("possible" if possible else "impossible")
    assert fits_somewhere(job, FreeCapacity(fleet), ("gpu",)) == possible


@given(st.lists(jobs(), min_size=1, max_size=8), fleets())
@MANY
def test_what_a_failure_rules_out_could_not_be_placed_either(
    queue: list[Job], fleet: tuple[Node, ...]
) -> None:
    cache: NegativeCache[str] = NegativeCache()
    room = FreeCapacity(fleet)
    for job in queue:
        fits = isinstance(place_job(job, room, ("gpu",)), Placed)
        known = cache.find((job,), NOBODY)
        assert not (fits and known)
        if not fits:
            event("ruled out" if known else "refused")
            cache.add((job,), NOBODY, "no")


@given(st.lists(jobs(), min_size=1, max_size=6), fleets())
@MANY
def test_a_site_answers_the_same_when_it_is_asked_again(
    queue: list[Job], fleet: tuple[Node, ...]
) -> None:
    asked = [bid_request(id=WorkloadId(k + 1), jobs=(job,)) for k, job in enumerate(queue)]
    site = SiteScheduler(("gpu",))
    site.update(fleet, ())
    first = site.bid(asked)
    fresh = SiteScheduler(("gpu",))
    fresh.update(fleet, ())
    fresh.bid(asked[:1])
    assert [a.bid for a in site.bid(asked)] == [a.bid for a in first]
    assert [a.bid for a in fresh.bid(asked)] == [a.bid for a in first]
    assert any(isinstance(a.bid, Bid) or a.refusal for a in first)


def test_too_few_nodes_for_a_count_rule_out_no_job_with_enough() -> None:
    few, enough = (replace(gang(k), constraint="[a*1&b*1]") for k in (1, 2))
    cache: NegativeCache[str] = NegativeCache()
    cache.add((few,), NOBODY, "no")
    assert cache.find((enough,), NOBODY) is None


def test_the_constraints_above_are_read() -> None:
    assert all(ways_of(text) for text in CONSTRAINTS)


@given(preemption.sites(), st.data(), st.integers(1, 7))
@MANY
def test_evicting_opens_the_nodes_asked_for_just_when_that_is_of_use(
    state: tuple[tuple[Node, ...], tuple[RunningJob, ...]], data: st.DataObject, priority: int
) -> None:
    site = tuple(
        replace(node, features=node.features + FEATURES[k % 4 : k % 4 + 2])
        for k, node in enumerate(state[0])
    )
    wanted = replace(
        data.draw(jobs()),
        nodelist=tuple(
            sorted(data.draw(st.sets(st.sampled_from([n.name for n in site]), max_size=2)))
        ),
        exclude=(),
    )
    scheduler = preemption.scheduler(site, state[1])
    (bid,) = preemption.ask(scheduler, wanted, priority=priority)
    gone = [job.id for job in state[1] if preemption.evictable(job, priority)]
    event("evicts" if bid is not None and bid.victims else "no victims")
    left = preemption.without(state[0], state[1], gone)
    has = {node.name: node.features for node in site}
    then = [replace(node, features=has[node.name]) for node in left]
    assert (bid is not None) == preemption.fits(wanted, then)
    if bid is not None:
        by_name = {node.name: node for node in site}
        assert satisfies(wanted, [by_name[name] for name in bid.jobs[0].nodes])
