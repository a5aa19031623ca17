"""The fast engine for ``mast`` against the federation's own code: job by job the same, for any trace.

What takes hundreds of jobs to show (windows, what the mix of requests forgets, what a message may
explain and try again) is also had with few, by making those numbers small on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from federator.sched import bidding, fragmentation
from federator.sim.fast import flat_pass, flat_site, shared_mix
from federator.sim.policies.mast import MastReplay
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePool
from federator.sim.trace_csv import TraceBuilder
from tests.property.test_venus_trace import POOLS, TRACE

AUDITED = ReplayOptions(audit=True)


def quick(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None,
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])  # fmt: skip


Row = tuple[int, int, int, int]
"""Submission, duration, GPUs, number of its pool."""


def made(pools: Sequence[TracePool], rows: Sequence[Row]) -> Trace:
    builder = TraceBuilder(pools)
    for number, (submit_s, duration_s, gpus, pool) in enumerate(rows):
        builder.add(
            job_id=str(number), line=number + 2, submit_s=submit_s, duration_s=duration_s,
            gpus=gpus, num_nodes=None, cpus=None, pool=pools[pool % len(pools)].name, user="",
        )  # fmt: skip
    return builder.trace


NAMES = ("bee", "ant", "cat9", "cat10")  # not in the order of the alphabet


@st.composite
def traces(draw: st.DrawFn, most_nodes: int, most_jobs: int, most_gpus: int) -> Trace:
    """Bursts of jobs of all sizes, on pools that have long too little for them."""
    pools = [
        TracePool(
            name=name, nodes=draw(st.integers(1, most_nodes)),
            gpus_per_node=draw(st.sampled_from((1, 2, 4, 8))),
        )
        for name in NAMES[: draw(st.integers(1, 4))]
    ]  # fmt: skip
    instants = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=6))
    longest_s = draw(st.sampled_from((5, 50, 4000)))
    sizes = st.one_of(
        st.sampled_from((0, 1, 2, 3, 4, 8)), st.integers(0, 20), st.integers(0, most_gpus)
    )
    rows = draw(
        st.lists(
            st.tuples(st.sampled_from(instants), st.integers(0, longest_s), sizes,
                      st.integers(0, 3)), max_size=most_jobs,
        )
    )  # fmt: skip
    return made(pools, rows)


def assert_same(trace: Trace, window: int = 500, interval_s: float = 300.0) -> None:
    def ran(exact: bool) -> Timetable:
        replay = MastReplay(exact=exact, window=window, pass_interval_s=interval_s)
        return replay.replay(trace, AUDITED)

    fast, slow = ran(exact=False), ran(exact=True)
    assert list(zip(fast.start_s, fast.end_s, fast.site, strict=True)) == list(
        zip(slow.start_s, slow.end_s, slow.site, strict=True)
    )


@contextmanager
def small(remembered: int, weighed_after: int, tried: int) -> Iterator[None]:
    """The same constants on both sides."""
    with ExitStack() as stack:
        for module, name, number in (
            (fragmentation, "REMEMBERED", remembered), (shared_mix, "REMEMBERED", remembered),
            (fragmentation, "WEIGHED_AFTER", weighed_after),
            (shared_mix, "WEIGHED_AFTER", weighed_after),
            (bidding, "RETRIED", tried), (flat_site, "RETRIED", tried),
            (bidding, "EXPLAINED", tried), (flat_pass, "EXPLAINED", tried),
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(module, name, number))
        yield


@quick(60)
@given(trace=traces(most_nodes=6, most_jobs=40, most_gpus=48))
def test_every_job_runs_when_and_where_the_federation_says(trace: Trace) -> None:
    assert_same(trace)


@quick(40)
@given(trace=traces(most_nodes=40, most_jobs=25, most_gpus=160))
def test_gangs_on_several_racks_get_the_same_nodes(trace: Trace) -> None:
    assert_same(trace)


@quick(60)
@given(
    trace=traces(most_nodes=6, most_jobs=40, most_gpus=48),
    window=st.integers(1, 12),
    remembered=st.integers(1, 20),
    weighed_after=st.sampled_from((2, 20)),
    tried=st.integers(0, 3),
    interval_s=st.sampled_from((1.0, 7.0, 300.0)),
)
def test_small_windows_and_short_memories_change_both_alike(
    trace: Trace, window: int, remembered: int, weighed_after: int, tried: int, interval_s: float
) -> None:
    with small(remembered, weighed_after, tried):
        assert_same(trace, window, interval_s)
