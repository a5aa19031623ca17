"""A fleet with MAST's percentiles, in small as in large."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from federator.model.tenant import LOWEST_PRIORITY, Tenancy
from federator.sim.generate.mast_like import LEVEL_SHARES, MastLike, mean_run_time_s, run_time_s
from federator.sim.scenario import Arrival, Scenario

pytestmark = pytest.mark.slow

DAY_S = 86_400
SMALL = MastLike()
LARGE = MastLike(span_s=14 * DAY_S)


@pytest.fixture(scope="module", params=[SMALL, LARGE], ids=["2 days", "14 days"])
def drawn(request: pytest.FixtureRequest) -> tuple[MastLike, Scenario]:
    size: MastLike = request.param
    return size, size.generate(seed=5)


def gpus_of(arrival: Arrival) -> int:
    (job,) = arrival.draft.jobs
    return job.gpus or job.gpus_per_node * (job.nodes or 1)


def at(values: list[float], share: float) -> float:
    return sorted(values)[int(share * len(values))]


def test_the_same_seed_gives_the_same_scenario_and_another_seed_another() -> None:
    assert SMALL.generate(1) == SMALL.generate(1)
    assert SMALL.generate(1) != SMALL.generate(2)


def test_gpus_have_the_papers_percentiles(drawn: tuple[MastLike, Scenario]) -> None:
    gpus = [float(gpus_of(arrival)) for arrival in drawn[1].arrivals]
    assert [at(gpus, share) for share in (0.5, 0.9, 0.99)] == [16, 64, 128]


def test_run_times_have_the_papers_percentiles(drawn: tuple[MastLike, Scenario]) -> None:
    times_s = [arrival.duration_s for arrival in drawn[1].arrivals]
    for share, expected_s in ((0.5, 1200), (0.9, 6.7 * 3600), (0.99, 66 * 3600)):
        found = sum(time_s <= expected_s for time_s in times_s) / len(times_s)
        assert abs(found - share) <= 1.5 / len(times_s)
    assert 60 <= min(times_s) < max(times_s) <= 7 * DAY_S


def test_the_mean_run_time_is_that_of_the_distribution() -> None:
    fine = [run_time_s((k + 0.5) / 100_000) for k in range(100_000)]
    assert sum(fine) / len(fine) == pytest.approx(mean_run_time_s(), rel=1e-3)


@pytest.mark.parametrize("load", [0.7, 1.0, 1.4])
def test_demand_is_the_load_times_supply(load: float) -> None:
    size = replace(SMALL, load=load)
    gpu_s = sum(gpus_of(a) * a.duration_s for a in size.generate(2).arrivals)
    assert gpu_s / (size.gpus * size.span_s) == pytest.approx(load, rel=0.02)


def test_priorities_have_the_papers_shares(drawn: tuple[MastLike, Scenario]) -> None:
    arrivals = drawn[1].arrivals
    counts = Counter(arrival.draft.priority for arrival in arrivals)
    for level, share in enumerate(LEVEL_SHARES, 1):
        assert counts[level] / len(arrivals) == pytest.approx(share, abs=0.005)


def test_a_third_less_a_bit_recurs(drawn: tuple[MastLike, Scenario]) -> None:
    _, scenario = drawn
    runs: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in scenario.arrivals:
        if arrival.draft.name.startswith("pipeline"):
            runs[arrival.draft.name].append(arrival)
    count = sum(map(len, runs.values()))
    assert count / len(scenario.arrivals) == pytest.approx(0.3, abs=0.01)
    assert max(map(len, runs.values())) > 5
    for pipeline in runs.values():
        gaps_s = [b.at_s - a.at_s for a, b in pairwise(pipeline)]
        assert {round(gap_s) for gap_s in gaps_s} <= {3600, 21_600, 86_400}
        assert len({round(gap_s) for gap_s in gaps_s}) <= 1
        assert len({(gpus_of(run), run.draft.tenant) for run in pipeline}) == 1
        assert all(b.at_s >= a.at_s + a.duration_s - 1 for a, b in pairwise(pipeline))


def test_arrivals_are_in_order_and_within_the_span(drawn: tuple[MastLike, Scenario]) -> None:
    size, scenario = drawn
    times_s = [arrival.at_s for arrival in scenario.arrivals]
    assert times_s == sorted(times_s)
    assert 0 <= times_s[0] < times_s[-1] < size.span_s


def test_afternoons_are_busier_than_nights() -> None:
    size = replace(LARGE, recurring_frac=0.0)
    hours = [arrival.at_s % DAY_S / 3600 for arrival in size.generate(1).arrivals]
    day, night = (sum(low <= hour < low + 8 for hour in hours) for low in (11, 23 - 24))
    night += sum(hour >= 23 for hour in hours)
    assert day > 1.8 * night
    flat = replace(size, diurnal_frac=0.0, burst_sigma=0.0)
    hours = [arrival.at_s % DAY_S / 3600 for arrival in flat.generate(1).arrivals]
    assert sum(11 <= hour < 19 for hour in hours) == pytest.approx(len(hours) / 3, rel=0.1)


def test_every_workload_fits_every_site_and_its_tenant_is_known() -> None:
    size = MastLike(sites=2, nodes=4, span_s=DAY_S, regions=5)
    scenario = size.generate(1)
    assert [site.gpus for site in scenario.sites] == [32, 32]
    assert max(map(gpus_of, scenario.arrivals)) <= 32
    names = {tenant.name: tenant for tenant in scenario.tenants}
    for arrival in scenario.arrivals:
        assert names[arrival.draft.tenant].priority == arrival.draft.priority


def test_sites_have_racks_and_regions() -> None:
    sites = SMALL.generate().sites
    assert len(sites) == 6
    for k, site in enumerate(sites):
        assert site.gpus == 320
        assert Counter(node.switch for node in site.nodes) == {f"s{k}r{n}": 8 for n in range(5)}
        assert {node.features for node in site.nodes} == {(f"region{k % 3}",)}
    names = [node.name for site in sites for node in site.nodes]
    assert len(set(names)) == 240


def test_quotas_follow_the_shares_and_the_lowest_level_has_none() -> None:
    size = replace(SMALL, nodes=400)
    tenants = size.generate().tenants
    Tenancy(tenants, {})  # a valid one
    assert [tenants.count(t) for t in tenants] == [1] * 21
    assert {tenant.priority for tenant in tenants} == set(range(1, 8))
    total = 0.0
    for tenant in tenants:
        if tenant.priority == LOWEST_PRIORITY:
            assert tenant.quota is None
            continue
        assert tenant.quota is not None
        assert size.least_quota_gpus <= tenant.quota.gpus < inf
        assert tenant.quota.gpus % 8 == 0
        total += tenant.quota.gpus
    assert total == pytest.approx(size.gpus * (1 - 0.06), rel=0.02)
    assert all(t.quota is None or t.quota.gpus >= 64 for t in MastLike().generate().tenants)
