"""A site's queue as Slurm serves it: room is never exceeded, and who comes later delays nobody."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from federator.model.site import Node
from federator.model.workload import Job
from federator.sim.slurm_queue import QueuedJob, slurm_starts_s
from tests.fakes.plain_backfill import PlainQueue

NODES = [Node(name=f"n{k}", partitions=("gpu",), cpus=8, gpus=4) for k in range(3)]
MINUTE_S = 60.0


@st.composite
def jobs(draw: st.DrawFn, to_limit: bool) -> QueuedJob:
    came_s = MINUTE_S * draw(st.integers(0, 20))
    limit_s = MINUTE_S * draw(st.integers(1, 8))  # so that all is planned by the minute
    gpus, nodes = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    spread = draw(st.booleans())
    part = Job(name="job", gpus=gpus) if spread else Job(name="j", nodes=nodes, gpus_per_node=gpus)
    return QueuedJob(
        submitted_s=came_s,
        came_s=came_s,
        limit_s=limit_s,
        duration_s=limit_s if to_limit else draw(st.integers(1, int(limit_s))),
        parts=(part,),
    )


@given(st.lists(jobs(to_limit=False), max_size=12))
def test_all_start_when_they_have_come_and_never_on_more_than_there_is(
    queue: list[QueuedJob],
) -> None:
    starts_s = slurm_starts_s(queue, NODES)
    assert all(
        start_s is not None and start_s >= job.came_s
        for job, start_s in zip(queue, starts_s, strict=True)
    )
    for at_s in starts_s:
        assert at_s is not None
        held = sum(
            job.parts[0].total_gpus
            for job, start_s in zip(queue, starts_s, strict=True)
            if start_s is not None and start_s <= at_s < start_s + job.duration_s
        )
        assert held <= 12


@given(st.lists(jobs(to_limit=True), min_size=1, max_size=10))
def test_who_was_submitted_last_delays_nobody_where_all_run_to_their_limits(
    queue: list[QueuedJob],
) -> None:
    *before, last = sorted(queue, key=lambda job: job.submitted_s)
    alone = slurm_starts_s(before, NODES)
    assert slurm_starts_s([*before, last], NODES)[:-1] == alone


MIXED = [
    Node(name=f"{kind}{k}", partitions=("gpu",), cpus=8, gpus=gpus, gpu_type=kind)
    for kind, gpus in (("a100", 8), ("h100", 4), ("v100", 2))
    for k in range(3)
]
TYPES = ((), (), ("a100",), ("h100",), ("a100", "h100"), ("h100", "v100"))


@st.composite
def mixed_jobs(draw: st.DrawFn) -> QueuedJob:
    """Jobs of all forms, at any second, of minutes to two days."""
    came_s = float(draw(st.integers(0, 40_000)))
    limit_s = draw(st.integers(0, 200).map(lambda k: 60.0 * k) | st.sampled_from((90_000.0, inf)))
    longest = int(min(limit_s, 200_000.0))
    types = st.sampled_from(TYPES)
    even = st.builds(
        Job,
        name=st.just("even"),
        nodes=st.integers(1, 4),
        gpus_per_node=st.sampled_from((1, 2, 4, 8)),
        gpu_types=types,
    )
    spread = st.builds(Job, name=st.just("spread"), gpus=st.integers(1, 20), gpu_types=types)
    forms = ((even,), (spread,), (even, spread), (even, even))
    return QueuedJob(
        submitted_s=came_s - draw(st.sampled_from((0, 0, 500))),
        came_s=came_s,
        leaves_s=came_s + draw(st.integers(1, 30_000) | st.just(inf)),
        limit_s=limit_s,
        duration_s=float(draw(st.integers(1, max(1, longest)))),
        parts=draw(st.one_of(*(st.tuples(*parts) for parts in forms))),
    )


@given(
    st.lists(mixed_jobs(), max_size=30),
    st.sampled_from((0.0, 17.0)),
    st.sampled_from((0.0, 1_700_000_123.5)),
)
def test_the_replay_is_that_of_a_queue_which_tries_every_step_for_every_job(
    queue: list[QueuedJob], turnaround_s: float, begin_s: float
) -> None:
    later = [
        replace(
            job,
            submitted_s=begin_s + job.submitted_s,
            came_s=begin_s + job.came_s,
            leaves_s=begin_s + job.leaves_s,
        )
        for job in queue
    ]
    expected = PlainQueue(later, MIXED, turnaround_s).run()
    assert slurm_starts_s(later, MIXED, turnaround_s) == expected


THREE = [
    Node(name=kind, partitions=("gpu",), cpus=8, gpus=gpus, gpu_type=kind)
    for kind, gpus in (("a100", 8), ("h100", 6), ("v100", 2))
]


def of_types(gpus: st.SearchStrategy[int], *types: tuple[str, ...]) -> st.SearchStrategy[Job]:
    """What goes to one node."""
    named, kinds = st.just("job"), st.sampled_from(types)
    return st.builds(Job, name=named, nodes=st.just(1), gpus_per_node=gpus, gpu_types=kinds)


SIZES = st.sampled_from((3, 4))
ALONE = st.tuples(of_types(SIZES, ("a100",), ("h100",), ("a100", "h100")))
HET = st.tuples(of_types(st.just(4), ("a100", "h100")), of_types(SIZES, ("h100", "v100")))
RIVALS = st.builds(
    QueuedJob,
    submitted_s=st.just(0.0),
    came_s=st.just(0.0),
    limit_s=st.just(600.0),
    duration_s=st.just(600.0),
    parts=ALONE | HET,
)


@given(st.lists(RIVALS, min_size=3, max_size=8))
def test_het_jobs_whose_components_have_types_of_their_own_are_planned_at_every_step(
    queue: list[QueuedJob],
) -> None:
    """With less of a100 than of h100 the first component leaves h100 to the second."""
    assert slurm_starts_s(queue, THREE) == PlainQueue(queue, THREE, 0.0).run()
