"""The daemon's log has one line for each step of a workload's life, and says each refusal once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from federator.daemon.transition_log import LogLine, TransitionLog
from federator.daemon.views import exit_code_of
from federator.model.event import Amended, Changed
from federator.model.lifecycle import WorkloadEvent
from federator.model.message import Command, Observation, Record
from federator.model.reason import Reason, ReasonCode
from federator.model.submission import Option
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import TenantName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

TENANTS = (
    Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=8)),
    Tenant(name=TenantName("guest")),
)


@pytest.fixture
def fleet() -> Loopback:
    rules = Rules(preempt_gpus=64, grace_s=60.0)
    return Loopback({"alpine": rack("a", 1)}, rules, None, Mast(), TENANTS)


def lines_while(fleet: Loopback, happens: Callable[[], object]) -> list[LogLine]:
    """What is written of the records made meanwhile, each turn's in turn."""
    log = TransitionLog(fleet.federation.ledger)
    found: list[LogLine] = []
    handle = fleet.federation.handle

    def turn(observation: Observation, now_s: float) -> list[Command]:
        commands = handle(observation, now_s)
        found.extend(log.lines([c.event for c in commands if isinstance(c, Record)]))
        return commands

    fleet.federation.handle = turn  # type: ignore[method-assign]
    happens()
    return found


def of(tenant: str, **more: Any) -> Any:
    return replace(draft(gang(1, 8)), tenant=TenantName(tenant), **more)


def brief(lines: Sequence[LogLine]) -> list[str]:
    return [line.event for line in lines]


def test_a_life_is_told_from_submission_to_end(fleet: Loopback) -> None:
    fleet.duration_s = 100.0

    def happens() -> None:
        fleet.submit(of("owner"))
        fleet.run_for(300.0)

    lines = lines_while(fleet, happens)
    assert brief(lines) == ["submitted", "awarded", "launch_accepted", "started", "ended"]
    submitted, awarded, accepted, started, ended = (line.fields for line in lines)
    assert (submitted["user"], submitted["tenant"], submitted["gpus"]) == ("ada", "owner", 8)
    assert awarded["nodes"] == ["a1"]
    assert {f["workload"] for f in (awarded, accepted, started, ended)} == {submitted["workload"]}
    assert {f["site"] for f in (awarded, accepted, started, ended)} == {"alpine"}
    assert accepted["job_id"] == ended["job_id"] > 0
    assert (ended["state"], ended["exit_code"], ended["user"]) == ("COMPLETED", 0, "ada")
    assert 90 <= ended["ran_s"] <= 110


def test_a_launch_that_is_declined_again_for_the_same_reason_is_one_line(fleet: Loopback) -> None:
    fleet.refuse_launches("alpine")

    def happens() -> None:
        fleet.submit(of("owner"))
        fleet.run_for(3600.0)
        fleet.refuse_launches("alpine", False)
        fleet.run_for(1200.0)

    lines = lines_while(fleet, happens)
    assert brief(lines).count("awarded") > 3
    (declined,) = [line for line in lines if line.event == "launch_declined"]
    assert declined.warning
    assert declined.fields["site"] == "alpine"
    assert declined.fields["reason"]
    assert brief(lines)[-1] == "started"


def test_an_eviction_names_the_one_it_is_for(fleet: Loopback) -> None:
    def happens() -> None:
        fleet.submit(of("guest"))
        fleet.run_for(10.0)
        fleet.submit(of("owner"))
        fleet.run_for(100.0)

    lines = lines_while(fleet, happens)
    (evicted,) = [line for line in lines if line.event == "evicted"]
    guest, owner = (line.fields["workload"] for line in lines if line.event == "submitted")
    assert (evicted.fields["workload"], evicted.fields["for"]) == (guest, owner)
    assert "preempted" in brief(lines)


def test_one_cancelled_while_it_waits_has_ended_and_the_user_is_named(fleet: Loopback) -> None:
    def happens() -> None:
        fleet.submit(of("owner"))
        fleet.run_for(10.0)
        fleet.cancel(fleet.submit(of("guest")))

    lines = lines_while(fleet, happens)
    (ended,) = [line.fields for line in lines if line.event == "ended"]
    assert (ended["state"], ended["by"]) == ("CANCELLED", "ada")
    assert not {"ran_s", "exit_code"} & ended.keys()


def test_one_cancelled_while_it_runs_has_no_exit_code_but_the_sites(fleet: Loopback) -> None:
    def happens() -> None:
        id_ = fleet.submit(of("owner"))
        fleet.run_for(100.0)
        fleet.cancel(id_)
        fleet.run_for(100.0)

    lines = lines_while(fleet, happens)
    (ended,) = [line.fields for line in lines if line.event == "ended"]
    assert (ended["state"], ended["ran_s"] > 0) == ("CANCELLED", True)
    entry = fleet.federation.ledger.entries[ended["workload"]]
    assert ended.get("exit_code") == exit_code_of(entry)
    assert ended.get("exit_code") != 0


def test_one_that_is_lost_has_no_exit_code(fleet: Loopback) -> None:
    id_ = fleet.submit(of("owner"))
    fleet.run_for(100.0)
    ledger = fleet.federation.ledger
    lost = Changed(
        workload=id_,
        attempt=ledger.entries[id_].attempt,
        happening=WorkloadEvent.LOST,
        at_s=fleet.clock.now_s,
        ended_at_s=fleet.clock.now_s,
        reason=Reason(code=ReasonCode.LOST),
    )
    ledger.apply(lost)
    (ended,) = TransitionLog(ledger).lines([lost])
    assert (ended.event, ended.fields["reason"]) == ("ended", "FedLost")
    assert ended.fields["ran_s"] > 0
    assert "exit_code" not in ended.fields


def test_an_array_is_one_line_when_it_is_submitted(fleet: Loopback) -> None:
    lines = lines_while(fleet, lambda: fleet.submit(of("owner", array_indices=(1, 2, 3))))
    (submitted,) = [line.fields for line in lines if line.event == "submitted"]
    assert submitted["tasks"] == 3


def test_a_change_is_told_with_who_asked_for_it(fleet: Loopback) -> None:
    id_ = fleet.submit(of("guest"))
    log = TransitionLog(fleet.federation.ledger)
    account = Option(name="account", value="owner")
    (line,) = log.lines([Amended(at_s=1.0, workloads=(id_,), by="ada", options=(account,))])
    assert line == LogLine("amended", {"workloads": [id_], "user": "ada", "options": ["account"]})
    (line,) = log.lines([Amended(at_s=1.0, workloads=(id_,), by="ada", array_max_running=0)])
    assert line.fields["throttle"] == "0"
