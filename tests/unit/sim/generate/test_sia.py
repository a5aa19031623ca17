"""The synthetic workload is what SIA's appendices say."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from federator.errors import InvalidRequest
from federator.sim.generate.sia import SIA_VARIANTS, WIDTHS, SiaWorkload, sia_workload
from federator.sim.trace import Trace

pytestmark = pytest.mark.slow

LONG = 60 * 86_400  # enough for shares to be told apart


def loads(trace: Trace, workload: SiaWorkload) -> list[float]:
    return [
        sum(trace.gpus[row] * trace.duration_s[row] for row in rows)
        / (workload.queue_gpus * workload.span_s)
        for rows in trace.by_pool()
    ]


@pytest.mark.parametrize("name", SIA_VARIANTS)
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(name: str) -> None:
    workload = sia_workload(name)
    assert workload.generate(3) == workload.generate(3)
    assert workload.generate(3) != workload.generate(4)


@pytest.mark.parametrize(
    ("name", "queues"), [("base", 4), ("more-queues", 8), ("fewer-queues", 2), ("more-wide", 4)]
)
def test_queues_have_eight_gpus_each(name: str, queues: int) -> None:
    trace = sia_workload(name).generate()
    assert [pool.gpus for pool in trace.pools] == [8] * queues
    assert sorted(set(trace.pool)) == list(range(queues))
    assert not trace.left_out


def test_a_queue_may_be_several_servers() -> None:
    trace = SiaWorkload(queue_gpus=32, queue_nodes=4).generate()
    assert {(pool.nodes, pool.gpus_per_node) for pool in trace.pools} == {(4, 8)}
    assert set(trace.num_nodes) == {1}
    assert not trace.left_out


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("base", 0.6, 0.95), ("higher-load", 0.63, 0.9975), ("lower-load", 0.45, 0.7125)],
)
def test_each_queue_has_a_load_of_the_range(name: str, least: float, most: float) -> None:
    workload = SiaWorkload(load_factor=sia_workload(name).load_factor, span_s=LONG, queues=8)
    found = loads(workload.generate(), workload)
    assert least <= min(found) < max(found) <= most + 0.05  # of the last burst
    assert max(found) - min(found) > (most - least) / 4


@pytest.mark.parametrize(
    ("name", "least_min", "most_min", "short_min", "share"),
    [
        ("base", 10**0.5, 1000, 100, 0.8),
        ("more-skewed", 10**0.5, 2000, 100, 0.9),
        ("less-skewed", 10**0.5, 300, 151.6, 0.5),
    ],
)
def test_durations_are_those_of_the_variant(
    name: str, least_min: float, most_min: float, short_min: float, share: float
) -> None:
    kinds = sia_workload(name).lengths_min
    found = SiaWorkload(lengths_min=kinds, span_s=LONG).generate().duration_s
    assert least_min * 60 - 1 <= min(found) <= least_min * 60 * 1.2
    assert most_min * 60 * 0.95 <= max(found) <= most_min * 60
    assert abs(sum(s <= short_min * 60 for s in found) / len(found) - share) < 0.02
    assert abs(sum(found) / len(found) / 60 - 151.5) < 5  # all have the same mean


@pytest.mark.parametrize("name", ["base", "more-wide", "fewer-wide"])
def test_widths_have_the_shares_of_the_variant(name: str) -> None:
    shares = sia_workload(name).width_shares
    trace = SiaWorkload(width_shares=shares, span_s=LONG).generate()
    counts = Counter(trace.gpus)
    for width, share in zip(WIDTHS, shares, strict=True):
        assert abs(counts[width] / len(trace) - share) < 0.03
    assert set(counts) == set(WIDTHS)


def test_jobs_come_in_bursts_of_at_most_a_queue() -> None:
    trace = SiaWorkload(queues=1, span_s=LONG, load_frac=(0.6, 0.6)).generate()
    bursts = [
        sum(trace.gpus[row] for row in rows)
        for _, rows in groupby(range(len(trace)), key=trace.submit_s.__getitem__)
    ]
    counts = Counter(bursts)
    assert sum(total > 8 for total in bursts) <= 2  # two bursts may meet in one second
    assert set(range(1, 9)) <= set(counts)
    assert 3.5 < sum(bursts) / len(bursts) < 5
    assert len(trace) > 1.5 * len(bursts)


def test_submissions_are_in_order_and_within_the_span() -> None:
    trace = SIA_VARIANTS["base"].generate(7)
    assert trace.submit_s == sorted(trace.submit_s)
    assert 0 <= trace.submit_s[0] < trace.submit_s[-1] < 3 * 86_400


def test_an_unknown_variant_is_told_what_there_is() -> None:
    with pytest.raises(InvalidRequest, match="'x' is unknown; expected one of base, higher-load"):
        sia_workload("x")
