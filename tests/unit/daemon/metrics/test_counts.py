"""What happens is counted once, under labels that were there from the start."""

from __future__ import annotations

import pytest

from federator.daemon.metrics.catalogue import CATALOGUE, MetricType
from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent
from federator.model.message import SiteDown, SubmitAsked
from federator.model.reason import ReasonCode
from federator.model.workload import SiteName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.counted import Counted, values_of

EVICTING = Rules(preempt_gpus=16, preempt_window_s=300.0, grace_s=60.0, cooldown_s=600.0)
TENANTS = (tenant("guest"), tenant("owner", 64, priority=3))


def fleet(nodes: int = 2, duration_s: float | None = None) -> Counted:
    return Counted({"alpine": rack("a", nodes), "baker": rack("b", nodes)}, duration_s=duration_s)


def lending() -> Counted:
    """Guests have all of one site, and an owner claims six nodes of it."""
    f = Counted({"alpine": rack("a", 8)}, EVICTING, None, Mast(), TENANTS)
    for _ in range(8):
        f.submit(draft(gang(1, 8), tenant="guest"))
    f.run_for(10.0)
    f.submit(draft(gang(6, 8), tenant="owner"))
    f.run_for(20.0)
    return f


def test_a_life_is_counted_step_by_step_and_once() -> None:
    f = fleet(duration_s=30.0)
    f.submit(draft(gang(1, 8)))
    f.run_until_all_end()
    assert f.value("federator_submissions_total") == 1
    assert f.values("federator_awards_total") == {
        ("alpine", "within"): 0,
        ("alpine", "over"): 1,
        ("baker", "within"): 0,
        ("baker", "over"): 0,
    }
    for name in ("launches_accepted", "starts"):
        assert f.values(f"federator_{name}_total") == {("alpine",): 1, ("baker",): 0}
    ended = f.values("federator_ended_workloads_total")
    assert {labels for labels, count in ended.items() if count} == {("alpine", "COMPLETED")}
    steps = f.values("federator_steps_total")
    assert {step for (step,), count in steps.items() if count} == {
        "awarded",
        "launch_accepted",
        "started",
        "completed",
    }


@pytest.mark.parametrize(
    ("happening", "failed_nodes", "failures"),
    [
        (WorkloadEvent.NODE_FAILED, (), 1),
        (WorkloadEvent.SITE_REQUEUED, ("a1",), 1),  # as Slurm does by itself when a node fails
        (WorkloadEvent.SITE_REQUEUED, (), 0),  # by its user
        (WorkloadEvent.FAILED, ("a1",), 1),
        (WorkloadEvent.FAILED, (), 0),
    ],
)
def test_attempts_that_failed_nodes_ended_are_counted_whoever_puts_them_back(
    happening: WorkloadEvent, failed_nodes: tuple[str, ...], failures: int
) -> None:
    f = fleet()
    id_ = f.submit(draft(gang(1, 8)))
    assert f.metrics is not None
    assert f.value("federator_node_failures_total") == 0
    over = Changed(at_s=1.0, workload=id_, happening=happening, failed_nodes=failed_nodes)
    f.metrics.counts.recorded([over], 0.003)
    assert f.value("federator_node_failures_total") == failures


def test_an_array_is_one_submission_of_many_workloads() -> None:
    f = fleet()
    f.submit(draft(gang(1, 1), array_indices=(1, 2, 3)))
    assert f.value("federator_submissions_total") == 1
    assert f.value("federator_submitted_workloads_total") == 3


def test_what_no_site_can_ever_run_is_counted_as_refused() -> None:
    f = fleet()
    f.ask(draft(gang(9, 8)))
    assert f.value("federator_submissions_refused_total") == 1
    assert f.value("federator_submissions_total") == 0


def test_passes_are_counted_when_they_are_over_with_bids_refusals_and_answer_times() -> None:
    f = fleet(nodes=1)
    for _ in range(3):
        f.submit(draft(gang(1, 8)))
    f.run_for(10.0)
    passes = f.value("federator_pass_seconds_count")
    assert passes >= 1
    assert f.value("federator_pass_rounds_total") >= passes
    asked, bids = f.values("federator_bid_requests_total"), f.values("federator_bids_total")
    refused = f.values("federator_refusals_total")
    assert sum(asked.values()) == sum(bids.values()) + sum(refused.values())
    assert {code for (code,), count in refused.items() if count} == {"Resources"}
    assert f.value("federator_bid_seconds_count", "alpine") >= 1
    assert f.value("federator_bid_seconds_sum", "alpine") == pytest.approx(
        0.02 * f.value("federator_bid_seconds_count", "alpine")
    )
    assert set(f.values("federator_bid_timeouts_total").values()) == {0}


def test_a_pass_that_nobody_is_asked_in_is_counted_too() -> None:
    f = fleet()
    before = f.value("federator_pass_seconds_count")
    f.run_for(400.0)
    assert f.value("federator_pass_seconds_count") > before


def test_a_question_without_an_answer_is_counted_when_the_next_one_is_asked() -> None:
    f = Counted({"alpine": rack("a", 1)}, Rules(bid_timeout_s=5.0, pass_interval_s=30.0))
    agent = f.sites[SiteName("alpine")].agent
    assert agent is not None
    agent.do = lambda _command: []  # type: ignore[method-assign,assignment]  # busy
    f.submit(draft(gang(1, 8)))
    f.run_for(40.0)
    assert f.value("federator_bid_timeouts_total", "alpine") >= 1
    assert f.value("federator_bid_seconds_count", "alpine") == 0


def test_a_site_that_goes_down_is_counted_and_its_question_is_no_timeout() -> None:
    f = fleet()
    f.observe(SiteDown(site=SiteName("alpine")))
    assert f.values("federator_site_downs_total") == {("alpine",): 1, ("baker",): 0}


def test_calls_that_are_denied_are_counted_by_the_site_that_made_them() -> None:
    f = fleet()
    assert f.metrics is not None
    f.metrics.counts.denied("alpine")
    f.metrics.counts.denied("")
    denied = f.values("federator_denied_calls_total")
    assert denied == {("",): 1, ("alpine",): 1, ("baker",): 0}


def test_evictions_are_counted_with_their_gpus_and_the_time_until_they_are_gone() -> None:
    f = lending()
    assert f.values("federator_evictions_total") == {("within",): 2, ("beyond",): 0}
    assert f.values("federator_evicted_gpus_total") == {("within",): 16, ("beyond",): 0}
    assert f.value("federator_eviction_seconds_count") == 2
    assert f.value("federator_eviction_seconds_sum") == pytest.approx(2.04, abs=0.01)
    assert f.value("federator_lost_gpu_seconds_total", "guest") == pytest.approx(16.0)
    assert f.value("federator_lost_gpu_seconds_total", "owner") == 0


def test_a_claim_is_made_once_and_ends_kept_late_or_withdrawn() -> None:
    f = lending()
    assert f.value("federator_claims_made_total") == 1
    assert set(f.values("federator_claims_ended_total").values()) == {0}
    (claim,) = f.federation.ledger.claims
    f.cancel(claim)
    f.run_for(1.0)
    ended = f.values("federator_claims_ended_total")
    assert ended == {("kept",): 0, ("late",): 0, ("broken",): 0, ("withdrawn",): 1}


def test_a_claim_whose_workload_is_awarded_in_time_is_kept() -> None:
    f = lending()
    f.run_for(2_000.0)
    assert not f.federation.ledger.claims
    ended = f.values("federator_claims_ended_total")
    assert ended[("kept",)] + ended[("late",)] == 1
    assert ended[("broken",)] == ended[("withdrawn",)] == 0


def test_waiting_is_measured_to_the_first_award_by_quota() -> None:
    f = lending()
    f.run_for(2_000.0)
    assert f.value("federator_wait_seconds_count", "over") == 8
    assert f.value("federator_wait_seconds_count", "within") == 1
    assert f.value("federator_wait_seconds_sum", "within") > 300
    assert f.value("federator_launch_seconds_count") >= 9


def test_every_series_with_words_of_a_list_is_there_before_anything_happens() -> None:
    found = fleet().collected()
    names = {metric.name for metric in found}
    for spec in CATALOGUE:
        name = spec.name.removesuffix("_total") if spec.kind is MetricType.COUNTER else spec.name
        assert name in names or spec.of_standby, spec.name
    assert len(values_of(found, "federator_refusals_total")) == len(ReasonCode)
    assert set(values_of(found, "federator_bids_total")) == {("alpine",), ("baker",)}
    assert values_of(found, "federator_wait_seconds_count") == {("within",): 0, ("over",): 0}


def test_a_site_that_a_reload_brings_is_there_with_zeros_and_nothing_is_forgotten() -> None:
    f = fleet(duration_s=1.0)
    f.submit(draft(gang(1, 8)))
    f.run_until_all_end()
    assert f.metrics is not None
    f.metrics.counts.know([SiteName("baker"), SiteName("crest")])
    assert f.values("federator_starts_total") == {("alpine",): 1, ("baker",): 0, ("crest",): 0}


def test_the_log_and_turns_are_timed() -> None:
    f = fleet()
    before = f.value("federator_turn_seconds_count")
    f.observe(SubmitAsked(client=9, key="one-more-key", draft=draft(gang(1, 1))))
    assert f.value("federator_turn_seconds_count") == before + 1
    assert f.value("federator_log_commit_seconds_count") >= 1
    assert f.value("federator_log_records_total", "submitted") == 1
    buckets = f.values("federator_log_commit_seconds_bucket")
    assert buckets[("0.002",)] == 0
    assert buckets[("0.005",)] == buckets[("+Inf",)] >= 1
