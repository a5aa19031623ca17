"""The federation's own code on traces: what its promises come to, by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from federator.config_policy import PolicyConfig
from federator.errors import InvalidRequest
from federator.model.lending import Lending
from federator.policies.settings import POLICY_KEYS, RULE_KEYS, at_keys
from federator.sim.federation_replay import FederationReplay
from federator.sim.setting_names import TAKEN
from federator.sim.settings import settings_of
from federator.sim.trace import ReplayOptions
from tests.fakes.traces import pool, replay, starts, trace

ANT, BEE = pool("ant", 1, 4), pool("bee", 1, 4)


def test_a_job_runs_wherever_there_is_room_now() -> None:
    jobs = trace("a 0 10 4 ant\nb 1 10 4 ant\nc 2 10 2 ant", ANT, BEE)
    assert starts(jobs, "mast") == {"a": 0, "b": 1, "c": 10}
    assert replay(jobs, "mast").site[:2] == ["ant", "bee"]


def test_who_is_within_its_pools_quota_goes_before_who_borrows() -> None:
    """ant has its four GPUs and waits for four more; bee comes later and has had none."""
    jobs = trace("a 0 10 4 ant\nb 0 10 4 ant\nmore 1 10 4 ant\nown 2 10 4 bee", ANT, BEE)
    at = starts(jobs, "mast")
    assert (at["own"], at["more"]) == (10, 10)
    jobs = trace("a 0 10 4 ant\nb 0 20 4 ant\nmore 1 10 4 ant\nown 2 10 4 bee", ANT, BEE)
    at = starts(jobs, "mast")
    assert (at["own"], at["more"]) == (10, 20)


def test_what_does_not_fit_blocks_nobody() -> None:
    jobs = trace("a 0 10 3 ant\nwide 1 5 4 ant\nthin 2 5 1 ant", ANT)
    assert starts(jobs, "mast") == {"a": 0, "wide": 10, "thin": 2}


def test_a_job_of_several_nodes_takes_as_few_as_hold_it() -> None:
    jobs = trace("a 0 10 6 ant\nb 0 10 2 ant\nc 0 10 1 ant", pool("ant", 2, 4))
    assert starts(jobs, "mast") == {"a": 0, "b": 0, "c": 10}


def test_times_too_long_to_be_exact_are_refused_instead_of_ticked_through() -> None:
    with pytest.raises(InvalidRequest, match="too much for exact times"):
        replay(trace(f"a 0 {2**52} 4 ant", ANT), "mast")


# ---- with settings ----


def test_settings_reach_rules_and_physics() -> None:
    policy = FederationReplay.adjusted({"preempt_gpus": 8.0, "save_s": 60.0, "local_gpus": 4.0})
    assert policy.settings.rules.preempt_gpus == 8.0
    assert (policy.settings.physics.save_s, policy.settings.physics.local_gpus) == (60.0, 4)


@pytest.mark.parametrize(("home", "site"), [(0.0, "ant"), (1.0, "bee")])
def test_with_a_home_a_pools_own_work_is_in_the_pool(home: float, site: str) -> None:
    policy = FederationReplay.adjusted({"home": home})
    assert policy.replay(trace("a 0 10 4 bee", ANT, BEE), ReplayOptions()).site == [site]


@pytest.mark.parametrize(
    "settings", [{"colour": 1.0}, {"save_s": -1.0}, {"grace_s": float("nan")}, {"window": 3.0}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match=r"expected"):
        FederationReplay.adjusted(settings)


NOT_SET = {
    "name",
    "enable_user_top",
    "interactive.max_s",
    "max_data_sets",
    "max_data_sets_per_user",
    "interactive.silence_s",
    "unused_quota.mode",
    "unused_quota.below_frac",
    "unused_quota.days",
    "unused_quota.notice_h",
    "slow_nodes.budget_frac",
    "slow_nodes.quarantine_s",
    "slow_nodes.restart_s",
    "defragment.quiet_hours",
    "credit.cpu_weight",
    "credit.mem_gib_weight",
}  # an option of its own; what users may do, who here do nothing; the history, a clock, jobs
BORROWED = trace("a 0 5000 4 ant\nb 1 5000 4 ant\nc 2000 100 4 bee", ANT, BEE)


@pytest.mark.parametrize("budget", [{"preempt_frac": 1.0}, {"preempt_gpus": 8.0}])
def test_a_budget_to_evict_evicts_whichever_way_it_is_given(budget: dict[str, float]) -> None:
    policy = FederationReplay.adjusted({**budget, "cooldown_s": 1.0})
    assert policy.replay(BORROWED, ReplayOptions(audit=True)).preemptions == [0, 1, 0]


def test_each_setting_of_the_policy_reaches_what_the_daemon_reads_of_its_file() -> None:
    """One value for all that federation.yaml has, by both ways; and one for what is on or off."""
    texts = ("usage_window_h", "lending", "defragment")
    flat = {n: 0.5 for n in POLICY_KEYS if n not in texts}
    flat["forecast_ends"] = flat["cells"] = flat["max_saves_per_region"] = 1.0
    flat["spot_interruptions"] = 1.0
    flat["defragment_moves"] = 1.0
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *above, leaf = POLICY_KEYS[name].split(".")
        (tree.setdefault(above[0], {}) if above else tree)[leaf] = value
    policy = PolicyConfig.model_validate(tree)
    taken = settings_of({name: value for name, value in flat.items() if name in TAKEN}, "mast")
    in_file = at_keys(policy, RULE_KEYS)
    assert {n: getattr(taken.rules, n) for n in RULE_KEYS if n in TAKEN} == {
        n: value for n, value in in_file.items() if n in TAKEN
    }
    assert (taken.usage, taken.weights.fair_share) == (policy.credit.usage, 0.5)


def lent(rows: str, **more: float) -> dict[str, int]:
    jobs, changes = trace(rows, ANT, BEE), {"lending": 1.0, **more}
    table = FederationReplay.adjusted(changes).replay(jobs, ReplayOptions(audit=True))
    return dict(zip(jobs.job_id, table.start_s, strict=True))


def test_with_lending_nobody_borrows_who_may_run_longer_than_is_forecast() -> None:
    rows = "a 0 10 4 ant\nb 1 10 4 ant"
    assert starts(trace(rows, ANT, BEE), "mast") == {"a": 0, "b": 1}
    assert lent(rows) == {"a": 0, "b": 10}


def test_with_lending_short_work_borrows_and_owners_start_as_if_alone() -> None:
    learnt = "".join(f"k{k} {20 * k} 10 4 ant\n" for k in range(10))
    at = lent(f"{learnt}a 1000 10 4 ant\nb 1001 10 4 ant\nown 1001 10 4 bee")
    assert (at["a"], at["own"], at["b"]) == (1000, 1001, 1010)
    at = lent(f"{learnt}a 1000 10 4 ant\nb 1001 10 4 ant")
    assert at["b"] == 1001  # such work is known to last 10 s, and bee is not expected to bring any


def test_with_run_times_known_short_work_borrows_before_any_has_run() -> None:
    rows = "a 0 10 4 ant\nb 1 10 4 ant"
    assert lent(rows, known_durations=1.0) == {"a": 0, "b": 1}
    day = "a 0 10 4 ant\nb 1 86400 4 ant"  # longer than is forecast
    assert lent(day, known_durations=1.0) == {"a": 0, "b": 10}


def test_run_times_that_are_known_hold_after_an_eviction_too() -> None:
    changes = {"known_durations": 1.0, "preempt_frac": 1.0, "cooldown_s": 1.0}
    table = FederationReplay.adjusted(changes).replay(BORROWED, ReplayOptions(audit=True))
    assert table.preemptions == [0, 1, 0]


def test_what_is_on_or_off_is_one_or_zero() -> None:
    assert settings_of({"lending": 1.0}, "mast").rules.lending is Lending.ON
    assert settings_of({}, "mast").rules.lending is Lending.OFF
    with pytest.raises(InvalidRequest, match="lending: expected off or on, found"):
        settings_of({"lending": 0.5}, "mast")
    assert settings_of({"forecast_ends": 1.0}, "mast").rules.forecast_ends is True
    assert settings_of({"forecast_ends": 0.0}, "mast").rules.forecast_ends is False
    with pytest.raises(InvalidRequest, match="forecast_ends: expected 0 or 1, found"):
        settings_of({"forecast_ends": 0.5}, "mast")


def test_every_key_of_the_files_policy_that_decides_has_a_flat_name() -> None:
    def leaves(model: type[BaseModel], above: str = "") -> Iterator[str]:
        for key, field in model.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from leaves(kind, f"{above}{key}.")
            else:
                yield above + key

    assert sorted(POLICY_KEYS.values()) == sorted(set(leaves(PolicyConfig)) - NOT_SET)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"preempt_fraction": 0.1}, ["did you mean preempt_frac?"]),
        ({"budget_frac": 0.1}, ["did you mean preempt_frac?"]),
        ({"preemption.budget_frac": 0.1}, ["did you mean preempt_frac?"]),
        ({"colour": 1.0}, ["'colour' is unknown to policy mast; expected one of age_cap_h"]),
        ({"regions": 1.0}, ["'regions' is unknown to policy mast"]),
        ({"bid_timeout_s": 3.0}, ["does not apply to policy mast", "sites answer at once"]),
        ({"preempt_frac": 1.5}, ["preempt_frac: expected less than or equal to 1, found 1.5"]),
        ({"grace_s": float("nan")}, ["grace_s: expected"]),
        ({"preempt_gpus": -1.0}, ["preempt_gpus: expected a number from 0 on"]),
        ({"usage_window_h": 1.0, "usage_half_life_h": 1.0}, ["usage_half_life_h", "not both"]),
    ],
)
def test_a_wrong_setting_is_one_line_that_helps(
    changes: dict[str, float], words: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        FederationReplay.adjusted(changes)
    assert all(word in str(refused.value) for word in words), refused.value
    assert "\n" not in str(refused.value)


def test_what_has_no_effect_beside_the_other_settings_is_said() -> None:
    def said(**changes: float) -> list[str]:
        return [line.split()[1] for line in FederationReplay.adjusted(changes).remarks(changes)]

    assert said(grace_s=5.0, save_s=1.0) == ["grace_s", "save_s"]
    assert said(grace_s=5.0, save_s=1.0, preempt_frac=0.1) == []
    assert said(restore_s=5.0, node_mtbf_s=1e6, local_gpus=2.0) == ["local_gpus"]


def test_what_was_borrowed_is_given_back_by_eviction_and_saving_takes_its_time() -> None:
    policy = FederationReplay.adjusted({"preempt_gpus": 8.0, "save_s": 60.0, "cooldown_s": 1.0})
    timetable = policy.replay(BORROWED, ReplayOptions(audit=True))
    assert timetable.start_s == [0, 2160, 2060]
    assert timetable.preemptions == [0, 1, 0]
    assert timetable.end_s[1] == 2160 + 5000 - (2000 - 1)
