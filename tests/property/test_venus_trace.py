"""A month of a real cluster, end to end: the September 2020 trace of SenseTime Helios' Venus.

The trace lies in a folder ``shared/traces`` beside the repository, or where FEDERATOR_TRACES says.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federator.cli.simulate import simulate
from federator.sim.baselines.sia import Knowledge, SiaReplay
from federator.sim.experiments.speedup import compared
from federator.sim.importers.trace_csv import read_pools, read_trace
from federator.sim.registry import BASELINES
from federator.sim.trace import Timetable, Trace, TracePolicy, TracePool
from tests.fakes.naive_replay import naive_place
from tests.fakes.traces import replay

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "traces"
TRACES = Path(os.environ.get("FEDERATOR_TRACES", BESIDE))
TRACE = TRACES / "helios-venus-sept2020.csv.gz"
POOLS = TRACES / "helios-venus-sept2020.pools.csv"

pytestmark = pytest.mark.skipif(
    not TRACE.exists(), reason="no Venus trace in ../shared/traces; set FEDERATOR_TRACES"
)


@pytest.fixture(scope="module")
def venus() -> Trace:
    return read_trace(TRACE, read_pools(POOLS))


@pytest.fixture(scope="module")
def replayed(venus: Trace) -> Callable[[str], Timetable]:
    """The month under a policy; each is replayed once, for all tests."""

    @cache
    def table(policy: str) -> Timetable:
        return replay(venus, policy)

    return table


def plain_starts(
    trace: Trace, rows: Sequence[int], pool: TracePool, key: Callable[[int], int], placed: bool
) -> dict[int, int]:
    """One pool from event to event, with plain lists and the plain placement."""
    size = pool.gpus_per_node if placed else pool.gpus
    free = [size] * (pool.nodes if placed else 1)
    coming = sorted(rows, key=lambda row: (trace.submit_s[row], row))
    waiting: list[tuple[int, int, int]] = []
    running: list[tuple[int, dict[int, int]]] = []
    starts: dict[int, int] = {}
    while coming or waiting:
        times = [end_s for end_s, _ in running] + [trace.submit_s[row] for row in coming[:1]]
        now_s = min(times)
        for end_s, nodes in running:
            if end_s == now_s:
                for node, gpus in nodes.items():
                    free[node] += gpus
        running = [(end_s, nodes) for end_s, nodes in running if end_s > now_s]
        while coming and trace.submit_s[coming[0]] == now_s:
            row = coming.pop(0)
            waiting.append((key(row), now_s, row))
        waiting.sort()
        while waiting:
            row = waiting[0][2]
            placement = naive_place(free, trace.gpus[row], size)
            if placement is None:
                break
            waiting.pop(0)
            for node, gpus in placement.items():
                free[node] -= gpus
            running.append((now_s + trace.duration_s[row], placement))
            starts[row] = now_s
    return starts


@pytest.mark.parametrize("policy", ["pool-fifo", "pool-sjf", "pool-fifo-count", "pool-sjf-count"])
def test_every_job_starts_when_plain_loops_say(
    venus: Trace, replayed: Callable[[str], Timetable], policy: str
) -> None:
    found = replayed(policy).start_s
    for pool, rows in zip(venus.pools, venus.by_pool(), strict=True):
        key = venus.duration_s.__getitem__ if policy.startswith("pool-sjf") else lambda _: 0
        starts = plain_starts(venus, rows, pool, key, not policy.endswith("count"))
        assert starts == {row: found[row] for row in rows}, pool.name


# Of the daemon's policies mast alone: global-fifo sorts the whole queue in each pass.
@pytest.mark.parametrize("policy", ["mast", *BASELINES])
def test_the_month_runs_end_to_end(policy: str, tmp_path: Path) -> None:
    words = ["--trace", str(TRACE), "--pools", str(POOLS), "--policy", policy, "--json"]
    more = ["--jobs-out", str(tmp_path / "J.csv")]
    done = CliRunner().invoke(simulate, words + more, catch_exceptions=False)
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.stdout)
    # As the trace's own description counts them.
    assert (found["jobs"], found["left_out"], found["gpus"]) == (23_859, 0, 1_080)
    assert round(found["gpu_hours"]) == 601_983
    with (tmp_path / "J.csv").open(newline="") as file:
        jobs = list(csv.DictReader(file))
    assert len(jobs) == 23_859
    waits_s = [
        int(job["end_s"]) - int(job["submit_s"]) - int(row["duration_s"])
        for job, row in zip(jobs, _rows(), strict=True)
    ]
    assert min(waits_s) >= 0
    assert sum(waits_s) / len(waits_s) == found["wait_s"]["mean"]


@pytest.mark.parametrize(
    "policy",
    ["sia-vc", SiaReplay(knowledge=Knowledge.PERFECT)],
    ids=["sia-vc", "sia, forecasts perfect"],
)
def test_whoever_knows_what_comes_slows_none_of_the_month(
    venus: Trace, replayed: Callable[[str], Timetable], policy: TracePolicy | str
) -> None:
    alone = replayed("pool-fifo-count").start_s
    shared = (replayed(policy) if isinstance(policy, str) else replay(venus, policy)).start_s
    assert all(a <= b for a, b in zip(shared, alone, strict=True))
    earlier = sum(a < b for a, b in zip(shared, alone, strict=True))
    assert earlier > len(venus) / 4


def _rows() -> list[dict[str, str]]:
    """Read by other means than those of the simulator."""

    with gzip.open(TRACE, "rt", newline="") as file:
        return list(csv.DictReader(file))


def test_sharing_speeds_up_few_jobs_and_slows_down_fewer(
    venus: Trace, replayed: Callable[[str], Timetable]
) -> None:
    """As in SIA's table of all pools of Helios: most jobs never wait, and few are slowed."""
    rows = range(len(venus))
    base = replayed("pool-fifo-count")
    maxmin = compared(venus, base, replayed("maxmin"), rows)
    assert 3 < maxmin.geometric_mean < 5
    assert (maxmin.at(0.05), maxmin.at(0.5)) == (1, 1)
    assert maxmin.at(0.95) > 300
    assert 0.01 < maxmin.slowed_frac < 0.05
    assert compared(venus, base, replayed("sia-vc"), rows).slowed_s == []


def test_what_sharing_is_worth_on_this_month(
    venus: Trace, replayed: Callable[[str], Timetable]
) -> None:
    """The order that the papers find: sharing and shortest-first each wait less than FIFO."""

    def mean_wait_s(policy: str) -> float:
        table = replayed(policy)
        total = sum(table.end_s) - sum(venus.submit_s) - sum(venus.duration_s)
        return total / len(venus)

    fifo, sjf = mean_wait_s("pool-fifo-count"), mean_wait_s("pool-sjf-count")
    assert mean_wait_s("gssf") < mean_wait_s("maxmin") < mean_wait_s("ssf") < sjf < fifo
