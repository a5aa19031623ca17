"""Whatever a history holds: each job is simulated or left out, once; and all of it ends."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.config import FederationConfig
from federator.model.workload import SiteName
from federator.sim.importers.history import past_jobs, without_repeats
from federator.sim.importers.sacct import SacctRecord
from federator.sim.importers.whatif_workload import history_of
from federator.sim.report.before_after import compare
from federator.sim.trace import ReplayOptions, TracePool
from federator.sim.whatif import live_through, question_of, rules_of

CONFIG = FederationConfig.model_validate(
    {
        "federation": "laws",
        "store": "memory:",
        "regions": {"r": {"shared": "/s"}},
        "sites": {
            name: {"region": "r", "partitions": ["fed"], "command": ["true"]}
            for name in ("ant", "bee")
        },
        "tenants": {"red": {"priority": 2, "quota": {"gpus": 4}}, "blue": {"limit": {"gpus": 6}}},
    }
)
POOLS = {
    SiteName("ant"): (TracePool(name="ant", nodes=2, gpus_per_node=4, gpu_type="a100"),),
    SiteName("bee"): (
        TracePool(name="bee/gpu", nodes=1, gpus_per_node=8),
        TracePool(name="bee/big", nodes=3, gpus_per_node=2, gpu_type="h100"),
    ),
}


@st.composite
def histories(draw: st.DrawFn) -> list[SacctRecord]:
    """Records of two sites and a stranger, with ids that meet, and times that may be missing."""
    few = st.sampled_from
    records = []
    for line in range(draw(st.integers(0, 14))):
        submit_s = draw(st.integers(1, 30))
        records.append(
            SacctRecord(
                line=line,
                job_id=draw(few(["7", "8", "9_1", "9_2", "5+0", "5+1"])),
                cluster=draw(few(["ant", "bee", "bee", "cat"])),
                account=draw(few(["red", "Blue", "guests"])),
                user=draw(few(["ann", "bob"])),
                partition=draw(few(["gpu", "big", "cpu"])),
                states=(draw(few(["COMPLETED", "FAILED", "REQUEUED", "PREEMPTED", "RUNNING"])),),
                submit_s=submit_s,
                eligible_s=draw(few([None, submit_s, submit_s + 3])),
                start_s=draw(few([None, submit_s + 5, submit_s + 9, submit_s - 1])),
                elapsed_s=draw(st.none() | st.integers(0, 40)),
                limit_s=draw(few([30.0, 600.0])),
                ran=draw(few([True, True, False])),
                gpus=draw(st.integers(0, 10)),
                gpu_type=draw(few(["", "", "a100", "odd"])),
                nodes=draw(few([None, 1, 2, 3])),
                cpus=1,
            )
        )
    return records


def history_ids(records: list[SacctRecord]) -> Counter[tuple[str, str]]:
    return Counter(
        (job.last.cluster, job.last.job_id.partition("+")[0]) for job in past_jobs(records)
    )


@settings(max_examples=150, deadline=None)
@given(histories())
def test_each_job_is_simulated_or_left_out(records: list[SacctRecord]) -> None:
    history = history_of(records, POOLS)
    found = Counter((str(w.site), w.job_id) for w in history.workloads)
    found += Counter(
        (o.pool.partition("/")[0], o.job_id.partition("+")[0]) for o in history.left_out
    )
    told = history_ids(without_repeats(records))  # dumps may overlap
    assert found.keys() == told.keys()
    for key, count in found.items():
        assert count == told[key] if "5" not in key[1] else count <= told[key]
    assert [w.came_s for w in history.workloads] == sorted(w.came_s for w in history.workloads)


@settings(max_examples=60, deadline=None)
@given(records=histories(), evict=st.booleans())
def test_every_history_comes_to_its_end(records: list[SacctRecord], evict: bool) -> None:
    question = question_of(history_of(records, POOLS), POOLS, CONFIG)
    history, begin_s = question.history, question.begin_s
    rules = rules_of(CONFIG, 20 if evict else 0)
    lives = live_through(question.scenario, CONFIG, rules, ReplayOptions(audit=True))
    result = compare(question, lives, "mast", 0)
    whole = result.in_all
    assert whole.jobs + whole.never_started == len(history.workloads)
    assert whole.jobs == sum(change.jobs for change in result.tenants)
    assert whole.jobs == sum(site.jobs_here for site in result.sites)
    for part in (whole, *result.sites):
        assert 0 <= part.after.allocation_frac <= 1 + 1e-9
    for workload, life in zip(history.workloads, lives, strict=True):
        if life.first_start_s >= 0:
            assert life.first_start_s >= workload.came_s - begin_s
            assert life.end_s - life.start_s <= workload.duration_s
        assert evict or not life.preemptions
