"""``federator status`` shows the federation on one screen."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from msgspec import structs

from federator import __version__
from federator.cli import status
from federator.errors import SiteUnavailable
from federator.model.partition import PartitionSummary
from federator.wire.client_protocol import Call, CancelReply, SiteRow, StatusCall, StatusReply
from federator.wire.replies import Reply
from federator.wire.status_rows import BudgetRow, ClaimRow, DrainRow, PassRow, TenantModeRow

GPU = PartitionSummary(
    partition="gpu",
    gpu_type="a100",
    nodes_idle=2,
    nodes_allocated=1,
    nodes_down=1,
    gpus=32,
    gpus_alloc=8,
    gpus_out=8,
)
STATUS = StatusReply(
    federation="demo",
    now_s=1000.0,
    policy="mast",
    epoch=7,
    sites=(
        SiteRow(
            name="alpine",
            region="west",
            up=True,
            slurm_version="24.11.5",
            agent_release=__version__,
            partitions=(GPU,),
            drains=(DrainRow(reason="new switch", by="root", since_s=900.0, left=3),),
        ),
        SiteRow(name="baker", region="west", up=False),
    ),
    queue={"PENDING": 12, "HELD": 0, "RUNNING": 3},
    gpus_held=24,
    last_pass=PassRow(began_s=960.0, ended_s=960.4, rounds=2, awarded=1),
    budget=BudgetRow(window_s=600.0, gpus=10.0, left_gpus=2.0, evicted_gpus=8, evictions=1),
    claims=(ClaimRow(id=4294967297, site="alpine", gpus=16, to_evict_gpus=8, starts_by_s=1600.0),),
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run the command against one answer; return what it prints."""

    def command(reply: Reply, *words: str) -> str:
        def call(message: Call) -> Reply:
            assert message == StatusCall()
            return reply

        monkeypatch.setattr(status, "call", call)
        ended = CliRunner().invoke(status.status, [*words])
        if ended.exception is not None:
            raise ended.exception
        return ended.output

    return command


def test_the_screen_has_a_line_for_each_thing(run: Callable[..., str]) -> None:
    shown = run(STATUS).splitlines()
    assert shown[0] == "Federation demo: 1 of 2 sites up; policy mast; epoch 7"
    assert shown[2].split() == ["SITE", "REGION", "STATE", "SLURM", "GPUS(F/A/O/T)", "NODES(U/O)"]
    assert shown[3].split() == ["alpine", "west", "drng", "24.11.5", "16/8/8/32", "3/1"]
    assert shown[4].split() == ["baker", "west", "down", "-", "0/0/0/0", "0/0"]
    assert shown[5].startswith("  alpine: drained since ")
    assert shown[5].endswith("by root; 3 workloads left: new switch")
    assert shown[7:] == [
        "Queue:     12 PENDING, 3 RUNNING; 24 GPUs held",
        "Pass:      40 s ago, took 0.4 s: 2 rounds, 1 award",
        "Evictions: 1 with 8 GPUs in the last 10 min; 2 of 10 GPUs of the budget left",
        "Claims:    1",
        "  job 4294967297 at alpine: 16 GPUs, 8 still to be evicted; starts within 10 min",
        "Lending:   off",
    ]


def test_a_site_in_shadow_mode_has_a_line_and_no_other(run: Callable[..., str]) -> None:
    alpine, baker = STATUS.sites
    sites = (alpine, structs.replace(baker, mode="shadow"))
    shown = run(structs.replace(STATUS, sites=sites)).splitlines()
    assert shown[6] == "  baker: mode shadow: no job is started there"
    assert "mode" not in run(STATUS)


@pytest.mark.parametrize(("release", "shown"), [("0.0.9", "0.0.9"), ("", "unknown")])
def test_agents_of_another_release_than_the_command_s_are_named(
    release: str, shown: str, run: Callable[..., str]
) -> None:
    alpine, baker = STATUS.sites
    up = structs.replace(baker, name="cedar", up=True, agent_release=release)
    screen = run(structs.replace(STATUS, sites=(alpine, baker, up))).splitlines()
    told = f"alpine {__version__}, cedar {shown}"
    assert f"Agents' releases, where this is {__version__}: {told}" in screen
    assert not any(line.startswith("Agents") for line in run(STATUS).splitlines())


def test_of_a_victim_larger_than_the_budget_is_told_when_it_is_paid_for(
    run: Callable[..., str],
) -> None:
    budget = BudgetRow(window_s=600.0, gpus=10.0, whole_in_s=1800.0, evicted_gpus=32, evictions=1)
    assert (
        "Evictions: 1 with 32 GPUs in the last 10 min; 0 of 10 GPUs of the budget left, all in "
        "30 min"
    ) in run(structs.replace(STATUS, budget=budget)).splitlines()


def test_an_idle_federation_says_so(run: Callable[..., str]) -> None:
    bare = StatusReply(
        federation="demo",
        now_s=1000.0,
        policy="mast",
        epoch=7,
        sites=(),
        queue={"PENDING": 0},
        budget=BudgetRow(window_s=600.0),
    )
    assert run(bare).splitlines()[-5:] == [
        "Queue:     empty; 0 GPUs held",
        "Pass:      none since the daemon's start",
        "Evictions: off",
        "Claims:    none",
        "Lending:   off",
    ]


def test_a_pass_under_way_says_since_when(run: Callable[..., str]) -> None:
    reply = StatusReply(
        federation="demo",
        now_s=1000.0,
        policy="mast",
        epoch=7,
        sites=(),
        queue={},
        last_pass=PassRow(began_s=997.0, rounds=1),
        budget=BudgetRow(window_s=600.0),
    )
    assert "Pass:      under way for 3 s: 1 round, 0 awards" in run(reply).splitlines()


def test_json_has_everything(run: Callable[..., str]) -> None:
    found = json.loads(run(STATUS, "--json"))
    assert found["schema"] == 1
    assert found["queue"] == {"PENDING": 12, "HELD": 0, "RUNNING": 3}
    assert found["sites"][0]["drains"] == [
        {"reason": "new switch", "by": "root", "since_s": 900.0, "left": 3}
    ]
    assert found["claims"][0]["to_evict_gpus"] == 8


def test_a_claim_of_a_job_that_one_may_not_see_has_no_id(run: Callable[..., str]) -> None:
    claims = tuple(structs.replace(each, id=0) for each in STATUS.claims)
    found = run(structs.replace(STATUS, claims=claims))
    assert "  another job at alpine: 16 GPUs, 8 still to be evicted" in found


def test_an_answer_to_something_else_is_an_error(run: Callable[..., str]) -> None:
    with pytest.raises(SiteUnavailable, match="unexpected answer"):
        run(CancelReply(ids=()))


def test_a_site_whose_job_ids_went_back_has_a_line() -> None:
    shown = list(
        status.lines(structs.replace(STATUS, job_ids_back={"baker": STATUS.now_s - 7200.0}))
    )
    (line,) = (line for line in shown if "job ids" in line)
    assert line.startswith("  baker: job ids went back 2.0 h ago")
    assert not [line for line in status.lines(STATUS) if "job ids" in line]


def test_tenants_in_lower_modes_have_a_line() -> None:
    rows = [
        TenantModeRow(tenant="bio", mode="shadow"),
        TenantModeRow(tenant="nlp", mode="opt-in"),
    ]
    shown = structs.replace(STATUS, tenant_modes=tuple(rows))
    assert "Tenants:   bio in mode shadow, nlp in mode opt-in" in list(status.lines(shown))
    assert not [line for line in status.lines(STATUS) if line.startswith("Tenants:")]
