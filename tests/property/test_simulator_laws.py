"""Laws of a replay, for every trace and every policy; and each fast replay against a naive one."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federator.errors import InvalidRequest
from federator.sim.baselines.sia import Foresight, Knowledge, PerfectForesight, SiaReplay
from federator.sim.baselines.themis import ThemisReplay
from federator.sim.baselines.tiresias import TiresiasReplay
from federator.sim.importers.trace_csv import TraceBuilder, read_pools
from federator.sim.importers.trace_file import read_any_trace
from federator.sim.node_pool import NodeSpace
from federator.sim.registry import TRACE_POLICIES, trace_policy
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePolicy, TracePool
from tests.fakes.naive_replay import (
    NaiveJob,
    naive_federated,
    naive_maxmin,
    naive_perfect_load,
    naive_place,
    naive_sia,
    naive_sia_vc,
    naive_strict,
    naive_themis,
    naive_tiresias,
)

BOUNDS_GPU_S = (4, 11, 30)
LEASE_S = 5
WINDOWS_S = (2, 5, 11)
AUDITED = ReplayOptions(audit=True)


def scripted_load(now_s: int, window_s: int) -> list[int]:
    """Of three pools: as good as random, and often wrong."""
    return [(now_s * 7 + window_s * 3 + pool * 5) % 9 // 2 for pool in range(3)]


class ScriptedForesight(PerfectForesight):
    """Knows durations; loads are scripted."""

    def new_load(self, now_s: int, window: int) -> list[int]:
        return scripted_load(now_s, WINDOWS_S[window])[: len(self.pools)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedSia(SiaReplay):
    def foresight(self, trace: Trace, seed: int) -> Foresight:  # noqa: ARG002
        return ScriptedForesight(trace, self.windows_s)


PERFECT_SIA = SiaReplay(knowledge=Knowledge.PERFECT, windows_s=WINDOWS_S)

NAIVE: Mapping[str, tuple[TracePolicy, Callable[[Trace], list[NaiveJob]]]] = {
    "pool-fifo": (trace_policy("pool-fifo"), lambda t: naive_strict(t, lambda _: 0, True)),
    "pool-sjf": (trace_policy("pool-sjf"), lambda t: naive_strict(t, lambda j: j.duration_s, True)),
    "pool-fifo-count": (
        trace_policy("pool-fifo-count"),
        lambda t: naive_strict(t, lambda _: 0, False),
    ),
    "pool-sjf-count": (
        trace_policy("pool-sjf-count"),
        lambda t: naive_strict(t, lambda j: j.duration_s, False),
    ),
    "ssf": (
        trace_policy("ssf"),
        lambda t: naive_strict(t, lambda j: j.duration_s * j.gpus, False),
    ),
    "gssf": (
        trace_policy("gssf"),
        lambda t: naive_strict(t, lambda j: j.duration_s * j.gpus, False, shared=True),
    ),
    "maxmin": (trace_policy("maxmin"), naive_maxmin),
    "tiresias": (
        TiresiasReplay(bounds_gpu_s=BOUNDS_GPU_S),
        lambda t: naive_tiresias(t, BOUNDS_GPU_S),
    ),
    "themis": (ThemisReplay(lease_s=LEASE_S), lambda t: naive_themis(t, LEASE_S)),
    "themis without preemption": (ThemisReplay(lease_s=None), lambda t: naive_themis(t, None)),
    "federated": (trace_policy("federated"), lambda t: naive_federated(t)[0]),
    "sia-vc": (trace_policy("sia-vc"), naive_sia_vc),
    "sia, forecasts perfect": (
        PERFECT_SIA,
        lambda t: naive_sia(t, WINDOWS_S, naive_perfect_load(t)),
    ),
    "sia, forecasts wrong": (
        ScriptedSia(windows_s=WINDOWS_S),
        lambda t: naive_sia(t, WINDOWS_S, scripted_load),
    ),
}

ALL = sorted(TRACE_POLICIES)


def quick(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Jobs in any order of submission, some at one instant, some of duration 0, some too large."""
    pools = [
        TracePool(name=name, nodes=draw(st.integers(1, 4)), gpus_per_node=draw(st.integers(1, 4)))
        for name in ("ant", "bee", "cat")[: draw(st.integers(1, 3))]
    ]
    builder = TraceBuilder(pools)
    latest_s = draw(st.sampled_from((4, 12, 40)))
    for number in range(draw(st.integers(0, 25))):
        builder.add(
            job_id=str(number),
            line=number + 2,
            submit_s=draw(st.integers(0, latest_s)),
            duration_s=draw(st.integers(0, 12)),
            gpus=draw(st.one_of(st.integers(0, 4), st.integers(0, 17))),
            num_nodes=None,
            cpus=None,
            pool=draw(st.sampled_from(pools)).name,
            user="",
        )
    return builder.trace


@pytest.mark.parametrize("name", NAIVE)
@quick(100)
@given(trace=traces())
def test_every_job_runs_when_a_naive_replay_says(name: str, trace: Trace) -> None:
    policy, naive = NAIVE[name]
    found = policy.replay(trace, AUDITED)
    for job in naive(trace):
        said = (found.start_s[job.row], found.end_s[job.row], found.preemptions[job.row])
        assert said == (job.start_s, job.end_s, job.preemptions), trace.job_id[job.row]


@quick(100)
@given(trace=traces())
def test_federated_binds_each_job_to_the_pool_that_a_naive_replay_says(trace: Trace) -> None:
    found = trace_policy("federated").replay(trace, AUDITED).site
    _, bound = naive_federated(trace)
    assert found == [trace.pools[bound[row]].name for row in range(len(trace))]


@pytest.mark.parametrize("policy", [trace_policy("sia-vc"), PERFECT_SIA], ids=["vc", "perfect"])
@quick(300)
@given(trace=traces())
def test_whoever_knows_what_comes_slows_no_job(policy: TracePolicy, trace: Trace) -> None:
    """SIA, theorem 1: no job starts later than if its pool shared nothing."""
    alone = trace_policy("pool-fifo-count").replay(trace, AUDITED).start_s
    shared = policy.replay(trace, AUDITED).start_s
    assert all(a <= b for a, b in zip(shared, alone, strict=True))


@pytest.mark.parametrize("name", ALL)
@quick(60)
@given(trace=traces())
def test_every_job_runs_once_it_has_come_and_as_long_as_it_lasts(name: str, trace: Trace) -> None:
    table = trace_policy(name).replay(trace, AUDITED)
    for row, submit_s in enumerate(trace.submit_s):
        ran_s = table.end_s[row] - table.start_s[row]
        assert table.start_s[row] >= submit_s
        assert 0 < ran_s <= trace.duration_s[row]
        assert ran_s == trace.duration_s[row] or table.preemptions[row]


@pytest.mark.parametrize(
    "name", ["pool-fifo", "pool-sjf", "pool-fifo-count", "pool-sjf-count", "ssf"]
)
@quick(60)
@given(trace=traces())
def test_no_pool_uses_more_than_it_has_at_any_instant(name: str, trace: Trace) -> None:
    table = trace_policy(name).replay(trace, ReplayOptions())
    for k, pool in enumerate(trace.pools):
        rows = [row for row, own in enumerate(trace.pool) if own == k]
        assert most_in_use(trace, table, rows) <= pool.gpus


@pytest.mark.parametrize("name", ["gssf", "maxmin", "sia", "sia-vc"])
@quick(60)
@given(trace=traces())
def test_pools_that_share_use_no_more_than_all_have(name: str, trace: Trace) -> None:
    table = trace_policy(name).replay(trace, ReplayOptions())
    assert most_in_use(trace, table, range(len(trace))) <= trace.capacity


def most_in_use(trace: Trace, table: Timetable, rows: Iterable[int]) -> int:
    used: Counter[int] = Counter()
    for row in rows:
        for at_s in range(table.start_s[row], table.end_s[row]):
            used[at_s] += trace.gpus[row]
    return max(used.values(), default=0)


@pytest.mark.parametrize("name", ALL)
@quick(25)
@given(trace=traces())
def test_the_same_trace_gives_the_same_timetable(name: str, trace: Trace) -> None:
    def once(audit: bool) -> Timetable:
        return trace_policy(name).replay(trace, ReplayOptions(seed=7, audit=audit))

    assert once(audit=False) == once(audit=False) == once(audit=True)


@pytest.mark.parametrize(
    "name", ["pool-fifo", "pool-sjf", "pool-fifo-count", "pool-sjf-count", "ssf", "tiresias"]
)
@quick(25)
@given(trace=traces())
def test_a_pool_that_shares_nothing_is_not_changed_by_the_others(name: str, trace: Trace) -> None:
    together = trace_policy(name).replay(trace, AUDITED)
    for k, pool in enumerate(trace.pools):
        alone = TraceBuilder([pool])
        rows = [row for row, own in enumerate(trace.pool) if own == k]
        for row in rows:
            alone.add(
                job_id="",
                line=0,
                submit_s=trace.submit_s[row],
                duration_s=trace.duration_s[row],
                gpus=trace.gpus[row],
                num_nodes=None,
                cpus=None,
                pool=pool.name,
                user="",
            )
        ends_s = trace_policy(name).replay(alone.trace, AUDITED).end_s
        assert ends_s == [together.end_s[row] for row in rows]


@quick(300)
@given(
    nodes=st.integers(1, 70),
    per_node=st.integers(1, 9),
    asked=st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 99)), max_size=60),
)
def test_jobs_get_the_nodes_that_the_rules_say(
    nodes: int, per_node: int, asked: list[tuple[bool, int, int]]
) -> None:
    space, free = NodeSpace(nodes, per_node), [per_node] * nodes
    running: list[tuple[tuple[int, int, int], dict[int, int]]] = []
    for ends, gpus, which in asked:
        if ends and running:
            held, placed = running.pop(which % len(running))
            space.give(held)
            for node, share in placed.items():
                free[node] += share
            continue
        expected = naive_place(free, gpus, per_node)
        taken = space.take(gpus)
        assert (taken is None) == (expected is None)
        if taken is None or expected is None:
            continue
        whole, last, part = taken
        found = {n: per_node for n in range(nodes) if whole >> n & 1}
        found |= {last.bit_length() - 1: part} if last else {}
        assert found == expected
        for node, share in expected.items():
            free[node] -= share
        running.append((taken, expected))


POOLS = (TracePool(name="ant", nodes=2, gpus_per_node=8),)
PIECES = st.sampled_from(
    [
        " ",
        ",",
        "2026-11-21T20:00:00",
        "submit_s,duration_s,gpus,pool",
        "JobID|Partition|State|Submit|ElapsedRaw|AllocTRES",
        "\n",
        "|",
        '"',
        "ant",
        "0",
        "1",
        "-1",
        "1e9",
        "\0",
        "\x1f\x8b",
        "{",
        '{"jobs":[',
        "]}",
        "; SWF",
        "COMPLETED",
        "gres/gpu=1",
        "\ufeff",
        "9" * 30,
        "1 " * 18,
        "\x85",
    ]
)


@quick(400)
@given(data=st.one_of(st.binary(), st.lists(PIECES).map(lambda p: "".join(p).encode())))
def test_any_file_is_read_or_refused_with_one_line(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_bytes(data)
        messages = [told(lambda: read_any_trace(file, POOLS)), told(lambda: read_pools(file))]
    for message in filter(None, messages):
        assert message.startswith(str(file))
        assert message.isprintable()


def told(read: Callable[[], object]) -> str:
    """The message of a refusal; "" if it was read."""
    try:
        read()
    except InvalidRequest as error:
        return str(error)
    return ""
