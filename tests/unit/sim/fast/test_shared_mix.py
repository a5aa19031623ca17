"""One mix for all sites puts the same price on a rack as each site's own would."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.workload import Job
from federator.sched.bid.fragmentation import RequestMix, shape_of
from federator.sim.fast.flat_site import FlatSite
from federator.sim.fast.nodes import rack_key
from federator.sim.fast.request_shape import AskedShape
from federator.sim.fast.shared_mix import SharedMix, Weights
from tests.fakes.traces import pool

JOBS = [Job(name="j", nodes=1, gpus_per_node=g) for g in (0, 1, 2, 3, 8)]
JOBS += [Job(name="j", gpus=g) for g in (9, 16, 20, 64)]
SHAPES = [AskedShape(job.total_gpus, job.nodes is None, shape_of(job)) for job in JOBS]
STEPS = st.one_of(
    st.tuples(st.just("asked"), st.integers(0, len(JOBS) - 1), st.integers(1, 40)),
    st.tuples(st.just("priced"), st.integers(0, 2), st.lists(st.integers(0, 8), max_size=16)),
)


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_prices_are_those_of_every_sites_own_mix(
    steps: list[tuple[str, int, int | list[int]]],
) -> None:
    """A site weighs when it first prices something: sites that price rarely weigh otherwise."""
    shared, own = SharedMix(), [RequestMix() for _ in range(3)]
    sites = [FlatSite(pool("ant", 1), rank, shared) for rank in range(3)]
    weights: list[Weights] = [shared.weights()] * 3
    asked = 0
    for _, which, what in steps:
        if isinstance(what, int):
            for _ in range(what):
                asked += 1
                shared.note(asked, SHAPES[which])
                for mix in own:
                    mix.note(asked, (JOBS[which],))
            continue
        if sites[which].unweighed:
            sites[which].weigh_anew()
            weights[which] = shared.weights()
        assert weights[which].stranded(rack_key(what[:])) == own[which].stranded(rack_key(what[:]))


def test_what_was_asked_longest_ago_is_forgotten() -> None:
    mix = SharedMix()
    assert [mix.note(job, SHAPES[1]) for job in range(1_000)] == [None] * 1_000
    assert mix.forgotten_for(2, {0, 1, 2, 500}) == [0, 1, 2]  # those two are noted again
    assert mix.forgotten_for(0, {0, 1}) == []
    assert mix.note(1_000, SHAPES[1]) == 0
    assert not mix.knows(0)
    assert mix.knows(1)
