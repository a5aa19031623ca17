"""Laws of the experiments' own machinery, for every fleet, stream and rule of placing."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federator.sim.experiments.base import seeded
from federator.sim.experiments.fragmentation import PLACERS
from federator.sim.experiments.placers import NODE_GPUS, Layout
from federator.sim.experiments.stranding import Floor, Watch
from federator.sim.experiments.stream import StreamJob

MIX = ((1, 0.5), (4, 0.2), (8, 0.2), (16, 0.1))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    return Layout(
        sites=draw(st.integers(1, 3)), racks=draw(st.integers(1, 2)), nodes=draw(st.integers(2, 3))
    )


@st.composite
def streams(draw: st.DrawFn) -> list[StreamJob]:
    """Whole seconds, so that ends and arrivals fall together now and then."""
    jobs = draw(
        st.lists(
            st.tuples(st.integers(0, 60), st.integers(1, 30), st.sampled_from((1, 2, 4, 8, 16))),
            min_size=1,
            max_size=25,
        )
    )
    return [StreamJob(at_s=a, duration_s=d, gpus=g) for a, d, g in sorted(jobs)]


def naive_stranded(layout: Layout, free: Sequence[int]) -> float:
    """Pack jobs of each size one by one until none fits."""
    total = 0.0
    for size, share in MIX:
        left = list(free)
        for site in range(layout.sites):
            nodes = list(layout.nodes_of(site))
            while True:
                count = max(1, size // NODE_GPUS)
                fitting = [n for n in nodes if left[n] >= size // count][:count]
                if len(fitting) < count:
                    break
                for node in fitting:
                    left[node] -= size // count
        total += share * sum(left)
    return total


@settings(max_examples=60, deadline=None)
@given(layouts(), st.data())
def test_stranded_gpus_are_those_left_when_jobs_of_a_size_are_packed(
    layout: Layout, data: st.DataObject
) -> None:
    floor = Floor(layout, MIX)
    for node in range(len(floor.free)):
        floor.change([node], -data.draw(st.integers(0, NODE_GPUS)))
    assert abs(floor.stranded - naive_stranded(layout, floor.free)) < 1e-9


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layouts(), streams(), st.sampled_from(sorted(PLACERS)))
def test_every_job_starts_in_order_and_every_gpu_comes_back(
    layout: Layout, jobs: list[StreamJob], name: str
) -> None:
    floor = Floor(layout, MIX)  # raises where a GPU is used twice
    placer = PLACERS[name](layout, seeded("1"))
    watch = Watch(layout, floor, placer, jobs, warm_up_frac=0.0, steps=3)
    seen = watch.run()
    starts = [job.at_s + seen.wait_s[number] for number, job in enumerate(jobs)]
    assert starts == sorted(starts)
    assert min(seen.wait_s.values()) >= 0
    last_s = jobs[-1].at_s
    used = sum(
        job.gpus * max(0.0, min(start + job.duration_s, last_s) - min(start, last_s))
        for start, job in zip(starts, jobs, strict=True)
    )
    since_s = seen.lasted_s
    assert abs(since_s * layout.gpus - seen.free_gpu_s - used) < 1e-6
    assert 0 <= seen.stranded_gpu_s <= seen.free_gpu_s
