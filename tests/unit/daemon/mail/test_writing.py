"""A job's mails: those it asks for, one an event, and an array is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from federator.config_mail import MailConfig
from federator.daemon.mail.letters import Letter
from federator.daemon.mail.writing import _RETURNS, LetterWriter
from federator.model.draft import Draft
from federator.model.lifecycle import TRANSITIONS, WorkloadState
from federator.model.message import Command, DrainAsked, Observation, Record
from federator.model.submission import Option, Submission, pack_submission
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

TENANTS = (
    Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=8)),
    Tenant(name=TenantName("guest")),
)
CONFIG = MailConfig(smtp="localhost:25", domain="example.org")


@pytest.fixture
def fleet() -> Loopback:
    rules = Rules(preempt_gpus=64, grace_s=60.0)
    fleet = Loopback({"alpine": rack("a", 1)}, rules, None, Mast(), TENANTS)
    fleet.duration_s = 100.0
    return fleet


def mails_while(fleet: Loopback, happens: Callable[[], object]) -> list[Letter]:
    """What is mailed of the records made meanwhile, each turn's in turn."""
    news = LetterWriter(fleet.federation.ledger, CONFIG)
    found: list[Letter] = []
    handle = fleet.federation.handle

    def turn(observation: Observation, now_s: float) -> list[Command]:
        commands = handle(observation, now_s)
        found.extend(news.of([c.event for c in commands if isinstance(c, Record)]))
        return commands

    fleet.federation.handle = turn  # type: ignore[method-assign]
    try:
        happens()
    finally:
        fleet.federation.handle = handle  # type: ignore[method-assign]
    return found


def asking(types: str, *, tenant: str = "owner", tasks: int = 0, user: str = "") -> Draft:
    options = [Option(name="mail-type", value=types)]
    options += [Option(name="mail-user", value=user)] if user else []
    submission = Submission(components=(tuple(options),), script="#!/bin/sh\n")
    plain = draft(gang(1, 8), tenant=tenant, array_indices=tuple(range(tasks)))
    return replace(plain, submission=pack_submission(submission))


def kinds(letters: list[Letter]) -> list[str]:
    return [letter.id.rpartition(".")[2] for letter in letters]


def test_a_job_is_mailed_when_it_begins_and_when_it_has_ended(fleet: Loopback) -> None:
    def happens() -> None:
        fleet.submit(asking("BEGIN,END"))
        fleet.run_for(300.0)

    began, ended = mails_while(fleet, happens)
    assert began.to == ended.to == "ada@example.org"
    assert "Name=train Began, Queued time 00:00:0" in began.subject
    assert began.subject.startswith("Slurm Job_id=")
    assert "Ended, Run time 00:01:4" in ended.subject
    assert ended.subject.endswith("COMPLETED, ExitCode 0")
    assert "Site:   alpine" in began.body
    assert "Nodes:  a1" in began.body


@pytest.mark.parametrize("types", ["NONE", "BEGIN,NONE", "TIME_LIMIT_80", "FAIL"])
def test_nothing_is_mailed_that_was_not_asked_for(fleet: Loopback, types: str) -> None:
    def happens() -> None:
        fleet.submit(asking(types))
        fleet.run_for(300.0)

    assert mails_while(fleet, happens) == []


def test_an_address_is_taken_as_it_is_given(fleet: Loopback) -> None:
    def happens() -> None:
        fleet.submit(asking("END", user="team@example.com"))
        fleet.run_for(300.0)

    assert [letter.to for letter in mails_while(fleet, happens)] == ["team@example.com"]


def test_an_array_is_one_mail_when_it_begins_and_one_when_all_of_it_has_ended(
    fleet: Loopback,
) -> None:
    def happens() -> None:
        fleet.submit(asking("ALL", tasks=4))
        fleet.run_for(1200.0)

    began, ended = mails_while(fleet, happens)
    assert "Slurm Array Summary Job_id=" in began.subject
    assert began.subject.endswith("Began")
    assert ended.subject.endswith("Ended, COMPLETED, MaxExitCode 0")


def test_each_task_is_mailed_where_array_tasks_is_asked_for(fleet: Loopback) -> None:
    def happens() -> None:
        fleet.submit(asking("END,ARRAY_TASKS", tasks=3))
        fleet.run_for(1200.0)

    assert kinds(mails_while(fleet, happens)) == ["end"] * 3


def evicts(fleet: Loopback, types: str) -> Callable[[], None]:
    def happens() -> None:
        fleet.duration_s = 1000.0
        fleet.submit(asking(types, tenant="guest"))
        fleet.run_for(50.0)
        fleet.submit(replace(draft(gang(1, 8)), tenant=TenantName("owner")))
        fleet.run_for(400.0)

    return happens


def test_an_eviction_is_one_mail_by_its_most_telling_type(fleet: Loopback) -> None:
    begun, left = mails_while(fleet, evicts(fleet, "ALL"))
    assert kinds([begun, left]) == ["begin", "preempt"]
    assert "Preempted, Run time 00:0" in left.subject
    assert left.body.endswith("Reason: FedPreempted\n"), "no id of a stranger's job"


def test_an_eviction_is_a_requeue_for_those_who_ask_for_no_more(fleet: Loopback) -> None:
    assert kinds(mails_while(fleet, evicts(fleet, "REQUEUE"))) == ["requeue"]


def test_a_new_daemon_mails_the_rest_and_nothing_again(fleet: Loopback) -> None:
    def begins() -> None:
        fleet.submit(asking("ALL", tasks=2))
        fleet.run_for(50.0)

    assert kinds(mails_while(fleet, begins)) == ["begin"]
    assert kinds(mails_while(fleet, lambda: fleet.run_for(600.0))) == ["end"]


def test_an_array_whose_only_task_starts_anew_has_begun_before(fleet: Loopback) -> None:
    fleet.duration_s = 1000.0

    def begins() -> None:
        fleet.submit(asking("BEGIN", tenant="guest", tasks=1))
        fleet.run_for(50.0)

    def is_evicted() -> None:
        fleet.submit(replace(draft(gang(1, 8)), tenant=TenantName("owner")))
        fleet.run_for(400.0)

    assert kinds(mails_while(fleet, begins)) == ["begin"]
    assert kinds(mails_while(fleet, is_evicted)) == []
    assert kinds(mails_while(fleet, lambda: fleet.run_for(3000.0))) == []
    (task,) = [e for e in fleet.federation.ledger.entries.values() if e.workload.array is not None]
    assert (task.state, task.attempt) == (WorkloadState.COMPLETED, 2)


def test_a_job_that_starts_at_another_site_is_told_so_by_a_new_daemon_too() -> None:
    rules = Rules(preempt_gpus=64, grace_s=60.0)
    sites = {"alpine": rack("a", 1), "boreal": rack("b", 1)}
    fleet = Loopback(sites, rules, None, Mast(), TENANTS)
    fleet.duration_s = 5000.0

    def begins() -> None:
        fleet.submit(asking("MOVE,NEW_SITE"))
        fleet.run_for(50.0)

    assert mails_while(fleet, begins) == []
    first = next(iter(fleet.federation.ledger.entries.values())).site

    def drained() -> None:
        fleet.observe(DrainAsked(client=-1, site=first, reason="switch", by="root", migrate=True))
        fleet.run_for(400.0)

    moving, started = mails_while(fleet, drained)
    assert kinds([moving, started]) == ["move", "new_site"]
    assert started.subject.endswith(f", after {first}")


def test_a_name_with_a_line_break_stays_in_one_header_line(fleet: Loopback) -> None:
    def happens() -> None:
        fleet.submit(replace(asking("BEGIN"), name="a\r\nBcc: all@example.org"))
        fleet.run_for(50.0)

    (began,) = mails_while(fleet, happens)
    assert "\n" not in began.subject
    assert "\r" not in began.subject


def test_a_large_array_is_looked_through_once_for_each_of_its_two_mails(
    fleet: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[WorkloadId] = []
    tasks_of = LetterWriter._tasks

    def tasks(writer: LetterWriter, array_id: WorkloadId) -> list[WorkloadId]:
        looks.append(array_id)
        return tasks_of(writer, array_id)

    monkeypatch.setattr(LetterWriter, "_tasks", tasks)

    def happens() -> None:
        array_id = fleet.submit(asking("ALL", tasks=500))
        fleet.run_for(50.0)
        fleet.cancel(*fleet.federation.ledger.array_tasks[array_id].values())
        fleet.run_for(100.0)

    assert kinds(mails_while(fleet, happens)) == ["begin", "end"]
    assert len(looks) <= 3


def test_every_way_back_into_the_queue_from_running_is_a_requeue() -> None:
    back = {
        happening
        for (state, happening), edge in TRANSITIONS.items()
        if state is WorkloadState.RUNNING and edge.to is WorkloadState.PENDING
    }
    assert back <= _RETURNS
