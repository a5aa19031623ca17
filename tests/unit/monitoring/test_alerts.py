"""Every alert fires in a case that it is for, and is silent in one beside it.

Series are in promtool's notation: ``0+1x60`` grows by one in each of 60 intervals of 30 s, ``5x60``
stays. ``tests/slurm/test_alerts.py`` fires all of them by real faults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.unit.monitoring.promtool import alerts, needs_promtool, outcome_of

Series = dict[str, str]

ONE: Final = 'job="federator",instance="a"'
TWO: Final = 'job="federator",instance="b"'
SITE: Final = f'{ONE},site="alpine"'


class Case(NamedTuple):
    """An alert fires with ``bad`` at a time, and not with ``good``."""

    alert: str
    at: str
    bad: Series
    good: Series


def histogram(name: str, labels: str, slow: float, per_step: int = 10) -> Series:
    """Observations that all lie below ``slow``, the bound of a bucket, and above the others."""
    some, none = f"0+{per_step}x800", "0x800"
    return {
        f'{name}_bucket{{{labels},le="{slow / 2:g}"}}': none,
        f'{name}_bucket{{{labels},le="{slow:g}"}}': some,
        f'{name}_bucket{{{labels},le="+Inf"}}': some,
    }


def went_back_at(values: str, instance: str = ONE) -> Series:
    name = "federator_site_job_ids_went_back_timestamp_seconds"
    return {f'{name}{{{instance},site="alpine"}}': values}


def ended(failed: int, completed: int) -> Series:
    name = "federator_ended_workloads_total"
    return {
        f'{name}{{{SITE},state="FAILED"}}': f"0+{failed}x800",
        f'{name}{{{SITE},state="COMPLETED"}}': f"0+{completed}x800",
    }


def launches(declined: str, accepted: str) -> Series:
    return {
        f"federator_launches_declined_total{{{SITE}}}": declined,
        f"federator_launches_accepted_total{{{SITE}}}": accepted,
    }


def queue(awards: str, free: str = "8x800", pending: str = "3x800") -> Series:
    return {
        f'federator_workloads{{{ONE},state="PENDING"}}': pending,
        f'federator_awards_total{{{SITE},quota="within"}}': awards,
        f'federator_gpus{{{SITE},use="free"}}': free,
    }


def claims(late: int, kept: int) -> Series:
    name = "federator_claims_ended_total"
    return {
        f'{name}{{{ONE},outcome="late"}}': f"0x10 {late}x800",
        f'{name}{{{ONE},outcome="kept"}}': f"0x10 {kept}x800",
    }


def copies(failed: int, done: int) -> Series:
    return {
        f"federator_copy_failures_total{{{ONE}}}": f"0+{failed}x800",
        f'federator_copies_ended_total{{{ONE},outcome="done"}}': f"0+{done}x800",
    }


def gpus(**uses: int) -> Series:
    return {f'federator_gpus{{{SITE},use="{use}"}}': f"{n}x800" for use, n in uses.items()}


def passes(last_s: int) -> Series:
    """Promtool's time begins at 0."""
    return {
        f"federator_term_start_timestamp_seconds{{{ONE}}}": "10x800",
        f"federator_pass_start_timestamp_seconds{{{ONE}}}": f"{last_s}x800",
    }


UP: Final = {f"up{{{ONE}}}": "1x800"}
LEADER: Final = {f"federator_leader{{{ONE}}}": "1x800"}
PAIR: Final = {**UP, f"up{{{TWO}}}": "1x800"}
TURN, COMMIT = "federator_turn_seconds", "federator_log_commit_seconds"
SITE_UP: Final = f"federator_site_up{{{SITE}}}"
SWEEP: Final = f"federator_site_sweep_age_seconds{{{SITE}}}"

CASES: Final = (
    Case("FederatorDown", "5m", {f"up{{{ONE}}}": "0x800"}, UP),
    Case("FederatorNoLeader", "5m", {f"federator_leader{{{ONE}}}": "0x800"}, LEADER),
    Case("FederatorTwoLeaders", "5m", LEADER | {f"federator_leader{{{TWO}}}": "1x800"}, LEADER),
    Case(
        "FederatorNoStandby",
        "20m",
        PAIR | {f"federator_standby_up_to_date{{{TWO}}}": "0x800"},
        PAIR | {f"federator_standby_up_to_date{{{TWO}}}": "1x800"},
    ),
    Case(
        "FederatorLeaderChanges",
        "20m",
        {f"federator_epoch{{{ONE}}}": "1x10 2x10 3x10 4x10"},
        {f"federator_epoch{{{ONE}}}": "1x20 2x20"},
    ),
    Case("FederatorLoopSlow", "20m", histogram(TURN, ONE, 5.0), histogram(TURN, ONE, 0.5)),
    Case("FederatorLogSlow", "20m", histogram(COMMIT, ONE, 1.0), histogram(COMMIT, ONE, 0.05)),
    Case(
        "FederatorLogLong",
        "2h",
        {f"federator_log_tail_records{{{ONE}}}": "3000000x800"},
        {f"federator_log_tail_records{{{ONE}}}": "1000000x800"},
    ),
    Case(
        "FederatorHistoryBehind",
        "20m",
        {f"federator_history_lag_seconds{{{ONE}}}": "400x800"},
        {f"federator_history_lag_seconds{{{ONE}}}": "20x800"},
    ),
    Case(
        "FederatorDoctorFindings",
        "3h",
        {f'federator_doctor_findings{{{ONE},kind="idle"}}': "2x800"},
        {
            f'federator_doctor_findings{{{ONE},kind="idle"}}': "0x800",
            f'federator_doctor_findings{{{ONE},kind="failing"}}': "3x800",
        },
    ),
    Case(
        "FederatorSiteJobIdsWentBack",
        "2h",
        went_back_at("3600x800"),
        went_back_at("0x800"),
    ),
    Case(  # the daemon that had known of it leads no more
        "FederatorSiteJobIdsWentBack",
        "4h",
        went_back_at("3600x200") | went_back_at("0x800", TWO),
        went_back_at("0x200") | went_back_at("0x800", TWO),
    ),
    Case(  # a history made anew takes what was long ago
        "FederatorSiteJobIdsWentBack",
        "8h",
        went_back_at("0x900 28000x100"),
        went_back_at("0x900 3600x100"),
    ),
    Case("FederatorCopiesFail", "2h", copies(failed=1, done=0), copies(failed=1, done=1)),
    Case("FederatorCopiesFail", "2h", copies(failed=1, done=0), copies(failed=0, done=0)),
    Case(
        "FederatorScrapeCostly",
        "20m",
        {f"federator_collect_seconds{{{ONE}}}": "0.4x800"},  # of each 30 s: 1.3 %
        {f"federator_collect_seconds{{{ONE}}}": "0.2x800"},
    ),
    Case("FederatorNoPass", "40m", passes(20), passes(2000)),
    Case("FederatorNoPass", "40m", passes(0), passes(1500)),
    Case("FederatorQueueStalled", "50m", queue("7x800"), queue("0+1x800")),
    Case("FederatorQueueStalled", "50m", queue("7x800"), queue("7x800", free="0x800")),
    Case("FederatorQueueStalled", "50m", queue("7x800"), queue("7x800", pending="0x800")),
    Case(
        "FederatorOwnersWait",
        "1h",
        histogram("federator_wait_seconds", f'{ONE},quota="within"', 14400.0),
        histogram("federator_wait_seconds", f'{ONE},quota="over"', 14400.0),
    ),
    Case(
        "FederatorWorkloadsHeld",
        "40m",
        {f'federator_workloads{{{ONE},state="HELD"}}': "1x800"},
        {f'federator_workloads{{{ONE},state="HELD"}}': "1x10 0x800"},
    ),
    Case(
        "FederatorClaimsOverdue",
        "20m",
        {f"federator_claims_overdue{{{ONE}}}": "1x800"},
        {f"federator_claims_overdue{{{ONE}}}": "0x800"},
    ),
    Case("FederatorClaimsMissed", "1h", claims(late=5, kept=1), claims(late=5, kept=9)),
    Case("FederatorClaimsMissed", "1h", claims(late=5, kept=1), claims(late=1, kept=0)),
    Case(
        "FederatorWorkLost",
        "2h",
        gpus(owner=8, guest=8)
        | {f'federator_lost_gpu_seconds_total{{{ONE},tenant="v"}}': "0+60x800"},
        gpus(owner=8, guest=8)
        | {f'federator_lost_gpu_seconds_total{{{ONE},tenant="v"}}': "0+3x800"},
    ),
    Case(
        "FederatorLendingPlanMissing",
        "20m",
        {
            f"federator_lending_enabled{{{ONE}}}": "1x800",
            f"federator_lending_plan_in_force{{{ONE}}}": "0x800",
        },
        {
            f"federator_lending_enabled{{{ONE}}}": "0x800",
            f"federator_lending_plan_in_force{{{ONE}}}": "0x800",
        },
    ),
    Case("FederatorSiteDown", "10m", {SITE_UP: "0x800"}, {SITE_UP: "1x800"}),
    Case(
        "FederatorSiteDown",
        "10m",
        {SITE_UP: "0x800"},
        {SITE_UP: "0x800", f"federator_site_drained{{{SITE}}}": "1x800"},
    ),
    Case(
        "FederatorSiteFlapping",
        "20m",
        {f"federator_site_downs_total{{{SITE}}}": "0+1x800"},
        {f"federator_site_downs_total{{{SITE}}}": "0x10 1x800"},
    ),
    Case(
        "FederatorSiteSweepOld",
        "10m",
        {SWEEP: "300x800", SITE_UP: "1x800"},
        {SWEEP: "300x800", SITE_UP: "0x800"},
    ),
    Case(
        "FederatorSiteSweepOld",
        "10m",
        {SWEEP: "300x800", SITE_UP: "1x800"},
        {SWEEP: "15x800", SITE_UP: "1x800"},
    ),
    Case(
        "FederatorSiteAnswersLate",
        "20m",
        {f"federator_bid_timeouts_total{{{SITE}}}": "0+1x800"},
        {f"federator_bid_timeouts_total{{{SITE}}}": "0x10 1x800"},
    ),
    Case(
        "FederatorLaunchesDeclined",
        "30m",
        launches("0+2x800", "0+1x800"),
        launches("0+1x800", "0+9x800"),
    ),
    Case(
        "FederatorLaunchesDeclined",
        "30m",
        launches("0+2x800", "0+1x800"),
        launches("0x20 1x800", "0x800"),
    ),
    Case(
        "FederatorWorkloadsFail", "90m", ended(failed=3, completed=1), ended(failed=1, completed=3)
    ),
    Case(
        "FederatorNodesFail",
        "1h",
        {f"federator_node_failures_total{{{ONE}}}": "0+1x800"},
        {f"federator_node_failures_total{{{ONE}}}": "0x10 4x800"},
    ),
    Case("FederatorGpusOut", "30m", gpus(owner=8, drained=4, down=4), gpus(owner=40, drained=8)),
)


def _test(case: Case, series: Series, fires: bool) -> dict[str, object]:
    firing = f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}'
    expected = {"expr": f"count({firing}) or vector(0)", "eval_time": case.at}
    samples = [{"labels": "{}", "value": 1 if fires else 0}]
    return {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [expected | {"exp_samples": samples}],
    }


@needs_promtool
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[f"{c.alert}-{k}" for k, c in enumerate(CASES)])
def test_an_alert_fires_when_it_should_and_only_then(case: Case, tmp_path: Path) -> None:
    done = outcome_of(tmp_path, [_test(case, case.bad, True), _test(case, case.good, False)])
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_wrong_expectation_fails(tmp_path: Path) -> None:
    case = CASES[0]
    assert outcome_of(tmp_path, [_test(case, case.good, True)]).returncode != 0


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == set(alerts())
