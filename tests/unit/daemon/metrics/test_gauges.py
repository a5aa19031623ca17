"""What a scrape shows of a federation is what its views know."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from federator.daemon.metrics.catalogue import BY_NAME, as_metrics
from federator.daemon.metrics.gauges import standby_metrics
from federator.daemon.metrics.held_gpus import uses_of
from federator.daemon.metrics.kept import KEEP, Kept
from federator.daemon.metrics.pending_reasons import NOT_EXAMINED, PATIENCE_S, PendingReasons
from federator.daemon.metrics.term_metrics import TermMetrics
from federator.faults.clock import VirtualClock
from federator.model.lending import Lending, LendingPlan
from federator.model.message import DrainAsked, PlanAsked
from federator.model.partition import PartitionSummary
from federator.model.workload import SiteName
from federator.policies.mast import Mast
from federator.sched.passes.site_view import SiteView
from federator.sched.state.rules import Rules
from federator.wire.status_rows import StartsClassRow, StartsRow
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.counted import Counted, FakeHistory, values_of
from tests.unit.daemon.metrics.test_counts import lending


def test_gpus_of_a_site_are_told_by_use_and_sum_to_what_it_has() -> None:
    f = lending()
    gpus = f.values("federator_gpus")
    assert gpus == {
        ("alpine", "owner"): 0,
        ("alpine", "guest"): 48,
        ("alpine", "local"): 0,
        ("alpine", "free"): 16,
        ("alpine", "drained"): 0,
        ("alpine", "down"): 0,
    }
    assert sum(gpus.values()) == 64


def test_stranded_gpus_are_those_of_a_partition() -> None:
    f = lending()
    free = f.values("federator_partition_gpus")["alpine", "gpu", "free"]
    stranded = f.values("federator_partition_gpus_stranded")
    assert stranded.keys() == {("alpine", "gpu")}
    assert 0.0 <= stranded["alpine", "gpu"] <= free


def test_of_an_agent_that_does_not_tell_no_stranded_gpus_are_shown() -> None:
    f = lending()
    view = f.federation.sites[SiteName("alpine")]
    view.summary = tuple(msgspec.structs.replace(r, gpus_stranded=None) for r in view.summary)
    assert f.values("federator_partition_gpus_stranded") == {}
    assert f.values("federator_partition_gpus")


def test_the_training_time_ratio_is_that_of_sites_there_are_and_none_before_it_is_known() -> None:
    f, name = lending(), "federator_site_effective_training_ratio"
    assert f.values(name) == {}
    assert f.metrics is not None
    f.metrics.show_training(lambda: {"alpine": 0.97, "gone": 0.5})
    assert f.values(name) == {("alpine",): 0.97}


def _site(gpus: int, *rows: PartitionSummary) -> SiteView:
    site = SiteView(partitions=("gpu", "all"))
    site.gpus, site.summary = gpus, rows
    return site


def test_what_the_federation_does_not_hold_is_local_and_what_is_out_is_drained_or_down() -> None:
    row = PartitionSummary(
        partition="gpu", gpu_type="a100", gpus=64, gpus_alloc=24, gpus_out=16, gpus_down=8
    )
    assert dict(uses_of(_site(64, row), 8, 8)) == {
        "owner": 8,
        "guest": 8,
        "local": 8,
        "free": 24,
        "drained": 8,
        "down": 8,
    }


def test_nodes_in_two_partitions_count_once() -> None:
    row = PartitionSummary(partition="gpu", gpu_type="a100", gpus=64, gpus_alloc=32)
    twin = PartitionSummary(partition="all", gpu_type="a100", gpus=64, gpus_alloc=32)
    assert dict(uses_of(_site(64, row, twin), 0, 0))["local"] == 32
    assert sum(dict(uses_of(_site(64, row, twin), 0, 0)).values()) == 64


def test_what_was_awarded_since_the_last_report_is_not_free_any_more() -> None:
    row = PartitionSummary(partition="gpu", gpu_type="a100", gpus=64, gpus_alloc=0)
    assert dict(uses_of(_site(64, row), 24, 0))["free"] == 40


def test_a_site_that_has_told_nothing_has_no_gpus() -> None:
    assert set(dict(uses_of(_site(0), 0, 0)).values()) == {0}


def test_the_queue_is_told_by_state_by_reason_and_by_its_oldest() -> None:
    f = lending()
    states = f.values("federator_workloads")
    assert (states[("PENDING",)], states[("RUNNING",)]) == (3, 6)
    assert ("COMPLETED",) not in states
    reasons = f.values("federator_pending_workloads")
    assert sum(reasons.values()) == 3
    assert reasons[("Resources",)] + reasons[("FedClaim",)] == 3
    assert f.value("federator_oldest_wait_seconds") == pytest.approx(30.0, abs=0.1)


def test_an_empty_queue_has_waited_for_no_time() -> None:
    f = Counted({"alpine": rack("a", 1)})
    assert f.value("federator_oldest_wait_seconds") == 0
    assert set(f.values("federator_pending_workloads").values()) == {0}


def test_a_hit_rate_has_a_sample_only_where_estimates_were_shown_and_judged() -> None:
    f = Counted({"alpine": rack("a", 1)})
    row = StartsRow(frac=0.9, judged=40, latest=0, hit_frac=0.0)
    assert f.metrics is not None
    f.metrics.show_starts(lambda: row)
    assert f.value("federator_start_estimates_judged_total") == 40
    assert f.values("federator_start_estimates_hit_ratio") == {}
    row = StartsRow(frac=0.9, judged=41, latest=1, hit_frac=1.0)
    assert f.value("federator_start_estimates_hit_ratio") == 1.0
    assert f.values("federator_start_estimates_class_hit_ratio") == {}


def test_a_hit_rate_has_a_sample_for_each_size_and_quota_class() -> None:
    f = Counted({"alpine": rack("a", 1)})
    burst = StartsClassRow(gpus="1", quota="over", latest=98, hit_frac=0.5)
    others = StartsClassRow(gpus="5-8", quota="within", latest=100, hit_frac=0.92)
    row = StartsRow(frac=0.9, judged=400, latest=198, hit_frac=0.7, classes=(burst, others))
    assert f.metrics is not None
    f.metrics.show_starts(lambda: row)
    rates = f.values("federator_start_estimates_class_hit_ratio")
    assert rates == {("1", "over"): 0.5, ("5-8", "within"): 0.92}
    latest = f.values("federator_start_estimates_class_latest")
    assert latest == {("1", "over"): 98, ("5-8", "within"): 100}


def test_claims_and_the_budget_are_shown() -> None:
    f = lending()
    assert f.value("federator_claims") == 1
    assert f.value("federator_claims_overdue") == 0
    assert f.values("federator_claimed_gpus") == {("alpine",): 48}
    assert f.value("federator_eviction_budget_gpus") == 16
    assert f.value("federator_eviction_budget_left_gpus") == 0


def test_tenants_show_quota_use_borrowed_lent_and_demand() -> None:
    f = lending()
    for name, guest, owner in (
        ("quota", 0, 64),
        ("used", 48, 0),
        ("borrowed", 48, 0),
        ("lent", 0, 48),
        ("demand", 16, 48),
    ):
        found = f.values(f"federator_tenant_{name}_gpus")
        assert found == {("guest",): guest, ("owner",): owner}, name
    assert f.value("federator_tenant_pending_workloads", "owner") == 1
    assert f.value("federator_tenant_usage_ratio", "guest") == 1


def test_sites_show_whether_they_are_up_and_drained_and_how_old_their_sweep_is() -> None:
    f = Counted({"alpine": rack("a", 1), "baker": rack("b", 1)})
    f.site_down("baker")
    f.run_for(1.0)
    f.observe(DrainAsked(client=1, site=SiteName("alpine"), reason="maintenance", by="root"))
    assert f.values("federator_site_up") == {("alpine",): 1, ("baker",): 0}
    assert f.values("federator_site_drained") == {("alpine",): 1, ("baker",): 0}
    assert f.values("federator_site_sweep_age_seconds")[("alpine",)] == 0.5
    assert f.values("federator_site_connections_total") == {("alpine",): 1, ("baker",): 1}


def test_a_lending_plan_is_in_force_until_it_expires() -> None:
    f = Counted(
        {"alpine": rack("a", 4)}, Rules(lending=Lending.ON), None, Mast(), (tenant("v", 16),)
    )
    assert f.value("federator_lending_enabled") == 1
    assert f.value("federator_lending_plan_timestamp_seconds") == 0
    now_s = f.clock()
    plan = LendingPlan(made_at_s=now_s, expires_at_s=now_s + 60, windows_s=(300.0,))
    f.observe(PlanAsked(client=1, plan=plan))
    assert f.value("federator_lending_plan_in_force") == 1
    assert f.value("federator_lending_plan_timestamp_seconds") == now_s
    f.run_for(60.0)
    assert f.value("federator_lending_plan_in_force") == 0


def test_the_history_lags_by_the_age_of_its_newest_record_in_the_log() -> None:
    f = Counted({"alpine": rack("a", 1)})
    f.submit(draft(gang(1, 1)))
    latest_s = f.federation.ledger.latest_s
    assert f.value("federator_history_lag_seconds") == 0  # there is none

    def lag_s(at_s: float) -> float:
        metrics = TermMetrics(
            f.federation, f.config, f.links, FakeHistory(at_s), elapsed=f.clock, wall=f.clock
        )
        return values_of(as_metrics(metrics.collect(f.config)), "federator_history_lag_seconds")[()]

    assert lag_s(latest_s - 7.0) == 7.0
    assert lag_s(latest_s) == 0.0


def test_the_time_at_which_job_ids_went_back_is_by_site() -> None:
    f = Counted({"alpine": rack("a", 1), "cedar": rack("c", 1)})
    name = "federator_site_job_ids_went_back_timestamp_seconds"
    assert f.value(name, "cedar") == 0  # there is no history
    history = FakeHistory(0.0, went_back={"alpine": 1_795_000_000.0})
    metrics = TermMetrics(f.federation, f.config, f.links, history, elapsed=f.clock, wall=f.clock)
    found = values_of(as_metrics(metrics.collect(f.config)), name)
    assert found == {("alpine",): 1_795_000_000.0, ("cedar",): 0}


def test_a_standby_shows_that_it_is_one_and_no_more() -> None:
    found = as_metrics(standby_metrics(up_to_date=True))
    assert values_of(found, "federator_leader") == {(): 0}
    assert values_of(found, "federator_standby_up_to_date") == {(): 1}
    assert all(BY_NAME[metric.name].of_standby for metric in found)


def test_labels_are_those_of_the_catalogue_and_never_name_users_or_jobs() -> None:
    allowed = {"site", "partition", "tenant", "region", "slurm", "federation", "policy", "store"}
    allowed |= {"state", "reason", "quota", "budget", "step", "use", "kind", "outcome", "version"}
    allowed |= {"via", "domain", "from", "to", "phase", "data", "at", "host", "gpus", "regions"}
    assert {label for spec in BY_NAME.values() for label in spec.labels} <= allowed
    for metric in lending().collected():
        for sample in metric.samples:
            name = sample.name if sample.name in BY_NAME else sample.name.rpartition("_")[0]
            assert set(sample.labels) - {"le"} == set(BY_NAME[name].labels)


# ---- bounded cost ----


def test_what_took_long_is_kept_a_hundred_times_as_long() -> None:
    clock, looked = VirtualClock(0.0), Counter[str]()

    def look() -> int:
        looked["at"] += 1
        clock.now_s += 0.3
        return looked["at"]

    view = Kept(look, clock)
    assert [view.now(), view.now()] == [1, 1]
    clock.now_s += KEEP * 0.3 - 0.01
    assert view.now() == 1
    clock.now_s += 0.02
    assert view.now() == 2


def test_reasons_of_many_lanes_are_asked_for_over_several_scrapes() -> None:
    f = Counted({"alpine": rack("a", 2)})
    f.submit(draft(gang(2, 8)))
    f.run_for(1.0)
    for k in range(1, 9):
        f.submit(draft(gang(2, k)))
        f.submit(draft(gang(2, k)))
    clock = VirtualClock(0.0)

    def ticking() -> float:
        clock.now_s += PATIENCE_S / 2
        return clock.now_s

    view = PendingReasons(f.federation, ticking)
    seen = [view.now()[NOT_EXAMINED] for _ in range(5)]
    assert seen[0] == 12  # two lanes of eight
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0
    assert sum(view.now().values()) == 16
