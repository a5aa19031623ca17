"""Whatever a site shows, ``federator bid`` reads back as it is."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federator.cli.bid_files import read_snapshot
from federator.model.site import LocalJob, Node, NodeShare, NodeState, RunningJob, Snapshot
from federator.model.workload import SiteName
from federator.sched.bid.site_scheduler import SiteScheduler
from tests.fakes.build import attempt, plan_on

names = st.sampled_from(["n0", "n1", "n2", "gone"])
ends = st.sampled_from([0.0, 1_000.5, inf])
shares = st.builds(NodeShare, gpus=st.integers(0, 8), cpus=st.integers(0, 64))
running = st.builds(
    RunningJob,
    id=st.integers(0, 2**40),
    tenant=st.text(max_size=5),
    priority=st.integers(1, 7),
    preemptible=st.booleans(),
    started_at_s=st.floats(0, 1e9),
    nodes=st.dictionaries(names, shares),
    ends_by_s=ends,
    saves_in_time=st.booleans(),
    optional=st.booleans(),
    optional_jobs=st.sampled_from([(), (1,), (1, 2)]),
).map(lambda job: replace(job, components={k: dict(job.nodes) for k in job.optional_jobs}))
local = st.builds(
    LocalJob,
    id=st.integers(0, 2**40),
    ends_by_s=ends,
    nodes=st.lists(names, unique=True).map(tuple),
)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    return tuple(
        Node(
            name=f"n{k}",
            partitions=draw(st.sampled_from([("gpu",), (), ("gpu", "b")])),
            closed_partitions=draw(st.sampled_from([(), ("c",)])),
            switch=draw(st.sampled_from(["", "r1"])),
            state=draw(st.sampled_from(NodeState)),
            cpus=64,
            cpus_alloc=draw(st.integers(0, 80)),
            mem_mib=1000,
            gpu_type=draw(st.sampled_from(["", "a100"])),
            gpus=draw(st.integers(0, 8)),
            gpu_mem_gib=draw(st.sampled_from([0.0, 80.0])),
            nvlink=draw(st.booleans()),
            gpu_weight=2.0,
            features=draw(st.sampled_from([(), ("nvlink",)])),
        )
        for k in range(draw(st.integers(1, 3)))
    )


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nodes(), st.lists(running, max_size=4), st.lists(local, max_size=4), st.booleans())
def test_a_snapshot_reads_back_as_it_was_shown(
    tmp_path: Path,
    site: tuple[Node, ...],
    runs: list[RunningJob],
    other: list[LocalJob],
    holding: bool,
) -> None:
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(site, (), running=runs, local=other, switches={"r1": "spine"})
    if holding:
        scheduler.hold(attempt(1), plan_on("n0", gpus=1))
    shown = scheduler.snapshot(SiteName("alpine"), 5.0)
    path = tmp_path / "s.json"
    path.write_bytes(msgspec.json.encode(shown))
    read = read_snapshot(path)
    assert replace(read, switches=dict(read.switches)) == replace(shown, switches={"r1": "spine"})
    assert isinstance(read, Snapshot)
