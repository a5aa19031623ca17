"""The record of sites' own jobs is replayed under the federation, and each site by itself."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from federator.config import FederationConfig, load_config
from federator.history.local_jobs import LocalHistory
from federator.model.local_record import UNKNOWN_GPUS
from federator.model.site_mode import SiteMode
from federator.model.workload import SiteName, TenantName
from federator.sim.importers.local_history import past_records, watched_period
from federator.sim.local_replay import LocalReplay, replay
from federator.sim.report.local_report import LocalReport, Modes, local_report
from federator.sim.report.promotion import broken_rules, leave_rule
from tests.fakes.local_jobs import T0_S, capacity, local_history, stay

CONFIG = """\
federation: demo
store: "memory:"
regions: {west: {shared: /shared}}
gpus: {a100: {mem_gib: 80}, h100: {mem_gib: 96}}
sites:
  alpine: {region: west, partitions: [gpu], mode: shadow, command: ["true"]}
  birch: {region: west, partitions: [gpu], mode: shadow, command: ["true"]}
tenants:
  bio: {priority: 2, quota: {gpus: 8}}
  nlp: {priority: 3}
"""
SITES = {"alpine": capacity("alpine", 1), "birch": capacity("birch", 1)}


@pytest.fixture
def config(tmp_path: Path) -> FederationConfig:
    (tmp_path / "federation.yaml").write_text(CONFIG)
    return load_config(tmp_path / "federation.yaml")


def replayed(
    history: LocalHistory, config: FederationConfig, *, any_gpu: bool = False
) -> tuple[LocalReplay, LocalReport]:
    names = list(history.capacities)
    period = watched_period(history, names, 0.0, 1e12)
    assert period is not None
    past = past_records(history, names, period, any_gpu=any_gpu)
    found = replay(past, history.capacities, config, period.begin_s)
    return found, reported(found, history)


def reported(found: LocalReplay, history: LocalHistory) -> LocalReport:
    names = list(history.capacities)
    period = watched_period(history, names, 0.0, 1e12)
    assert period is not None
    unseen = past_records(history, names, period, any_gpu=False).unseen
    modes = Modes(
        dict.fromkeys(names, "shadow"),
        {TenantName("nlp"): "advisory"},
        {SiteName("alpine"): leave_rule(None)},
    )
    return local_report(found, period, unseen, modes, "mast", 0)


def test_a_job_that_waited_at_a_full_site_would_have_started_at_an_empty_one(
    config: FederationConfig,
) -> None:
    first = stay(1, started_at_s=0.0, ended_at_s=7200.0)
    second = stay(2, submitted_at_s=60.0, started_at_s=7200.0, ended_at_s=10_800.0)
    history = local_history([("alpine", first), ("alpine", second)], SITES)
    found, report = replayed(history, config)
    assert [fate.federated_start_s for fate in found.fates] == [T0_S, T0_S + 60]
    assert [fate.alone_start_s for fate in found.fates] == [T0_S, T0_S + 7200]
    alpine, birch = report.sites
    assert (alpine.jobs, alpine.response_error_frac, alpine.start_error_s) == (2, 0.0, 0.0)
    assert (birch.jobs, birch.response_error_frac) == (0, None)
    assert report.in_all.real is not None
    assert report.in_all.federated is not None
    assert (report.in_all.real.mean_s, report.in_all.federated.mean_s) == (3570.0, 0.0)
    assert report.in_all.real.p95_s == 7140.0
    # 8 GPUs of birch were free for 7140 s while the second job waited, of 16 for a day.
    assert report.stranded.real_frac == pytest.approx(7140 * 8 / (86_400 * 16))
    assert report.stranded.federated_frac == 0.0
    held = 10_800 * 8 / (86_400 * 16)
    assert report.allocation.real_frac == pytest.approx(held)
    assert report.allocation.federated_frac == pytest.approx(held)


def test_a_job_goes_only_where_there_is_the_type_of_gpu_on_which_it_ran(
    config: FederationConfig,
) -> None:
    sites = {"alpine": capacity("alpine", 1), "birch": capacity("birch", 1, "h100")}
    first = stay(1, started_at_s=0.0, ended_at_s=7200.0)
    second = stay(2, submitted_at_s=60.0, started_at_s=7200.0, ended_at_s=10_800.0)
    history = local_history([("alpine", first), ("alpine", second)], sites)
    starts = [
        replayed(history, config, any_gpu=any_gpu)[0].fates[1].federated_start_s
        for any_gpu in (False, True)
    ]
    assert starts == [T0_S + 7200, T0_S + 60]


def test_what_ran_when_the_record_begins_and_ends_is_load_and_is_not_measured(
    config: FederationConfig,
) -> None:
    before = stay(1, submitted_at_s=-9000.0, started_at_s=-3600.0, ended_at_s=3600.0)
    waits = stay(2, submitted_at_s=0.0, started_at_s=3600.0, ended_at_s=4000.0)
    runs_on = stay(3, "RUNNING", submitted_at_s=80_000.0, started_at_s=80_001.0)
    pending = stay(4, "PENDING", submitted_at_s=80_002.0)
    only = {"alpine": capacity("alpine", 1)}
    records = [("alpine", each) for each in (before, waits, runs_on, pending)]
    found, report = replayed(local_history(records, only), config)
    starts = {f.past.job_id: (f.measured, f.alone_start_s) for f in found.fates}
    assert starts == {
        "1": (False, T0_S - 3600),
        "2": (True, T0_S + 3600),
        "3": (True, T0_S + 80_000),
    }
    (alpine,) = report.sites
    assert (alpine.jobs, alpine.unseen.waiting, alpine.left_out) == (
        2,
        1,
        {"never ran, or has not ended": 1},
    )
    assert report.allocation.real_frac == pytest.approx((4000 + 86_400 - 80_001) / 86_400)


def test_stays_that_say_too_little_are_counted_and_left_out(config: FederationConfig) -> None:
    known = stay(1, "GONE", started_at_s=0.0, ended_at_s=60.0)
    no_gpus = stay(2, started_at_s=0.0, ended_at_s=60.0, gpus=UNKNOWN_GPUS)
    lost = stay(3, "GONE", started_at_s=0.0, ended_at_s=9000.0)
    history = local_history([("alpine", known), ("alpine", no_gpus)], SITES)
    kept = history.kept[0]._replace(record=lost, unsure_s=8000.0)
    found, report = replayed(history._replace(kept=[*history.kept, kept]), config)
    assert [fate.past.job_id for fate in found.fates] == ["1"]
    unseen = report.sites[0].unseen
    assert (unseen.stays, unseen.ended_between) == (3, 1)
    assert (unseen.unknown_end, unseen.unknown_gpus, unseen.unwatched_s) == (1, 1, 0.0)
    assert unseen.left_out_frac == pytest.approx(2 / 3)


def test_jobs_of_the_federation_itself_are_load_where_and_when_they_ran(
    config: FederationConfig,
) -> None:
    ours = stay(1, submitted_at_s=5.0, started_at_s=10.0, ended_at_s=3610.0, federated=True)
    local = stay(2, submitted_at_s=20.0, started_at_s=3610.0, ended_at_s=3620.0)
    only = {"alpine": capacity("alpine", 1)}
    found, report = replayed(local_history([("alpine", ours), ("alpine", local)], only), config)
    assert [(f.past.job_id, f.measured, f.alone_start_s) for f in found.fates] == [
        ("1", False, T0_S + 10),
        ("2", True, T0_S + 3610),
    ]
    assert report.in_all.jobs == 1


def test_who_waited_in_vain_stood_in_the_way_of_those_behind_it(config: FederationConfig) -> None:
    """Not if something of its own held it: a dependency, a limit, a hold."""
    runs = stay(1, started_at_s=0.0, ended_at_s=7200.0, limit_s=7200.0, gpus=4)
    behind = stay(3, submitted_at_s=60.0, started_at_s=900.0, ended_at_s=9900.0, gpus=4)
    only = {"alpine": capacity("alpine", 1)}
    for word, eligible_at_s, expected_s in (
        ("Resources", 30.0, 900.0),
        ("AssocGrpGRES", 30.0, 60.0),
        ("Resources", 2e9, 60.0),
    ):
        ahead = stay(
            2,
            "CANCELLED",
            submitted_at_s=30.0,
            eligible_at_s=eligible_at_s,
            ended_at_s=900.0,
            held_by=word,
        )
        records = [("alpine", each) for each in (runs, ahead, behind)]
        found, _ = replayed(local_history(records, only), config)
        starts_s = {fate.past.job_id: fate.alone_start_s for fate in found.fates}
        assert starts_s["3"] == T0_S + expected_s


def test_who_waited_when_the_record_begins_does_not_start_before_it(
    config: FederationConfig,
) -> None:
    """They come before what ran by then: that comes when it started, to a site that looks empty."""
    early = stay(1, submitted_at_s=-9000.0, started_at_s=3600.0, ended_at_s=7200.0, limit_s=3600.0)
    in_vain = stay(
        2,
        "CANCELLED",
        submitted_at_s=-8000.0,
        eligible_at_s=-8000.0,
        ended_at_s=600.0,
        limit_s=90_000.0,
        held_by="Resources",
    )
    runs = stay(3, submitted_at_s=-7000.0, started_at_s=-3600.0, ended_at_s=3600.0, limit_s=7200.0)
    behind = stay(4, submitted_at_s=60.0, started_at_s=7200.0, ended_at_s=7300.0, limit_s=3600.0)
    only = {"alpine": capacity("alpine", 1)}
    records = [("alpine", each) for each in (early, in_vain, runs, behind)]
    found, _ = replayed(local_history(records, only), config)
    starts = {f.past.job_id: (f.measured, f.alone_start_s) for f in found.fates}
    assert starts == {
        "3": (False, T0_S - 3600),
        "1": (False, T0_S + 3600),
        "4": (True, T0_S + 7200),
    }


def test_one_that_waited_in_vain_holds_no_gpus_for_ever(config: FederationConfig) -> None:
    """It has no limit, and waits yet when the record ends."""
    runs = stay(1, started_at_s=0.0, ended_at_s=600.0)
    pending = stay(2, "PENDING", submitted_at_s=10.0, eligible_at_s=10.0, held_by="Priority")
    behind = stay(3, submitted_at_s=60.0, started_at_s=600.0, ended_at_s=1200.0)
    only = {"alpine": capacity("alpine", 1)}
    records = [("alpine", each) for each in (runs, pending, behind)]
    found, _ = replayed(local_history(records, only), config)
    assert [fate.alone_start_s for fate in found.fates] == [T0_S, T0_S + 86_400]


def test_a_site_whose_replay_never_starts_some_does_not_pass_by_the_others(
    config: FederationConfig,
) -> None:
    records = [
        stay(
            10 * day,
            account="nlp",
            submitted_at_s=86_400.0 * day,
            started_at_s=86_400.0 * day,
            ended_at_s=86_400.0 * day + 600.0,
        )
        for day in range(4)
    ]
    only = {"alpine": capacity("alpine", 1)}
    history = local_history([("alpine", each) for each in records], only, end_s=4 * 86_400.0)
    found, _ = replayed(history, config)
    fates = (*found.fates, replace(found.fates[0], alone_start_s=None))
    report = reported(replace(found, fates=fates), history)
    (site,) = report.sites
    (tenant,) = report.tenants
    assert site.jobs == 4
    for rules in (site.rules, tenant.rules):
        (rule,) = (each for each in rules if each.name == "simulator")
        assert not rule.holds
        assert rule.value == "0.00% (+0.00% to +0.00%); 20.00% never start in it"


def test_a_limit_of_zero_is_none(config: FederationConfig) -> None:
    runs = stay(1, started_at_s=0.0, ended_at_s=7200.0, limit_s=0.0)
    behind = stay(2, submitted_at_s=60.0, started_at_s=7200.0, ended_at_s=9000.0)
    only = {"alpine": capacity("alpine", 1)}
    found, _ = replayed(local_history([("alpine", runs), ("alpine", behind)], only), config)
    assert [fate.past.limit_s for fate in found.fates] == [inf, inf]
    assert [fate.alone_start_s for fate in found.fates] == [T0_S, T0_S + 7200]


def test_the_turnaround_of_a_site_is_learnt_from_jobs_that_waited(
    config: FederationConfig,
) -> None:
    """40 s pass between two jobs; a replay that took none would be early by as much each time."""
    records = [
        stay(
            k,
            submitted_at_s=float(k),
            started_at_s=1000.0 * k + 40.0 * k,
            ended_at_s=1000.0 * (k + 1) + 40.0 * k,
            limit_s=1200.0,
        )
        for k in range(22)
    ]
    only = {"alpine": capacity("alpine", 1)}
    history = local_history([("alpine", each) for each in records], only)
    found, report = replayed(history, config)
    assert [f.alone_start_s for f in found.fates] == [T0_S + 1040.0 * k for k in range(22)]
    assert report.sites[0].response_error_frac == 0.0
    held = [
        stay(
            100 + k,
            submitted_at_s=21_880.0 + k,
            started_at_s=22_880.0 + 900.0 + 10.0 * k,
            ended_at_s=22_880.0 + 900.0 + 10.0 * k + 1.0,
            limit_s=1.0,
            held_by=word,
        )
        for k, word in enumerate(["AssocGrpGRES", "Reservation", "JobHeldUser"] * 8)
    ]
    more = local_history([("alpine", each) for each in [*records, *held]], only)
    assert [f.alone_start_s for f in replayed(more, config)[0].fates[1:22]] == [
        T0_S + 1040.0 * k for k in range(1, 22)
    ]
    few, _ = replayed(history._replace(kept=history.kept[:20]), config)  # 19 waited
    assert few.fates[1].alone_start_s == T0_S + 1000.0


def test_the_turnaround_is_the_mean_since_in_a_queue_all_of_it_adds_up(
    config: FederationConfig,
) -> None:
    """A backfill every minute: 10 and 70 s in turns. Of 21 the largest does not count."""
    gaps_s = [0.0, *(10.0, 70.0) * 10, 10.0]
    starts_s = [1000.0 * k + sum(gaps_s[: k + 1]) for k in range(len(gaps_s))]
    records = [
        stay(k, submitted_at_s=float(k), started_at_s=at_s, ended_at_s=at_s + 1000, limit_s=1200.0)
        for k, at_s in enumerate(starts_s)
    ]
    only = {"alpine": capacity("alpine", 1)}
    found, _ = replayed(local_history([("alpine", each) for each in records], only), config)
    assert [f.alone_start_s for f in found.fates] == [T0_S + 1037.0 * k for k in range(22)]


def test_time_without_a_look_is_told(config: FederationConfig) -> None:
    history = local_history([], {"alpine": capacity("alpine", 1)}, end_s=1000.0)
    late = history.spans[0]._replace(since_s=T0_S + 3000, until_s=T0_S + 4000)
    _, report = replayed(history._replace(spans=[*history.spans, late]), config)
    assert report.sites[0].unseen.unwatched_s == 2000.0
    assert report.in_all.real is None


def test_the_time_looked_at_begins_when_the_last_site_was_first_watched() -> None:
    history = local_history([], SITES)
    late = history.spans[1]._replace(since_s=T0_S + 500)
    history = history._replace(spans=[history.spans[0], late])
    period = watched_period(history, list(history.capacities), 0.0, T0_S + 1000)
    assert period is not None
    assert (period.begin_s, period.end_s) == (T0_S + 500, T0_S + 1000)
    assert watched_period(history, [SiteName("cedar")], 0.0, 1e12) is None


def test_an_account_that_would_wait_longer_is_named_and_keeps_the_site_from_the_top(
    config: FederationConfig,
) -> None:
    """bio has a quota and goes first: nlp, which came first at its own site, would wait for it."""
    records = []
    for day in range(4):
        at_s = 86_400.0 * day
        for number, account, came_s, start_s in (
            (1, "bio", 0.0, 0.0),
            (2, "nlp", 10.0, 3600.0),
            (3, "bio", 20.0, 7200.0),
        ):
            one = stay(
                10 * day + number,
                account=account,
                submitted_at_s=at_s + came_s,
                started_at_s=at_s + start_s,
                ended_at_s=at_s + start_s + 3600.0,
            )
            records.append(("alpine", one))
    only = {"alpine": capacity("alpine", 1)}
    history = local_history(records, only, end_s=4 * 86_400.0)
    _, report = replayed(history, config)
    by_name = {account.name: account for account in report.accounts}
    assert [name for name, account in by_name.items() if account.worse] == ["nlp"]
    change_s = by_name["nlp"].change_s
    assert change_s is not None
    assert (change_s.low, change_s.high) == (3600.0, 3600.0)
    rules = report.sites[0].rules
    assert [r.name for r in broken_rules(rules, SiteMode.OPT_IN)] == ["watched", "jobs"]
    assert [r.name for r in broken_rules(rules, SiteMode.ENFORCED)] == [
        "watched",
        "jobs",
        "accounts",
        "leave drill",
    ]
    (nlp,) = report.tenants  # bio is not asked about
    assert (nlp.tenant, nlp.mode, nlp.jobs) == ("nlp", "advisory", 4)
    assert [r.name for r in broken_rules(nlp.rules, SiteMode.ENFORCED)] == [
        "watched",
        "jobs",
        "accounts",
    ]
    counts = {each.name: (each.divergences, each.reasons) for each in report.divergences.accounts}
    assert counts["nlp"] == (4, {"ORDER": 4})


@pytest.mark.parametrize(
    ("first_s", "second_s", "worse"),
    [(7200.0, 600.0, []), (7200.0, 800.0, ["nlp"]), (300.0, 55.0, []), (300.0, 70.0, ["nlp"])],
    ids=["by less than a tenth", "by more", "by less than a minute", "by more than a minute"],
)
def test_an_account_is_worse_off_by_more_than_a_minute_and_a_tenth(
    config: FederationConfig, first_s: float, second_s: float, worse: list[str]
) -> None:
    """nlp, which was next at its own site, waits for the second job of bio, which has a quota."""
    records = []
    for day in range(4):
        at_s = 86_400.0 * day
        for number, account, came_s, start_s, ran_s in (
            (1, "bio", 0.0, 0.0, first_s),
            (2, "nlp", 10.0, first_s, 100.0),
            (3, "bio", 20.0, first_s + 100.0, second_s),
        ):
            one = stay(
                10 * day + number,
                account=account,
                submitted_at_s=at_s + came_s,
                started_at_s=at_s + start_s,
                ended_at_s=at_s + start_s + ran_s,
            )
            records.append(("alpine", one))
    history = local_history(records, {"alpine": capacity("alpine", 1)}, end_s=4 * 86_400.0)
    _, report = replayed(history, config)
    assert [account.name for account in report.accounts if account.worse] == worse
    (rule,) = (rule for rule in report.sites[0].rules if rule.name == "accounts")
    assert (rule.holds, rule.value) == (not worse, "nlp" if worse else "none")
