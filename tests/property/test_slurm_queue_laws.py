"""A site's queue as Slurm serves it: room is never exceeded, and who comes later delays nobody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federator.model.site import Node
from federator.model.workload import Job
from federator.sim.slurm_queue import QueuedJob, slurm_starts_s

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
