"""Interactive jobs at the daemon: who is told where they are, and when nobody waits any more."""

from __future__ import annotations

import msgspec
import pytest

from federator.config import FederationConfig
from federator.daemon.interactive_jobs import LOOKS, InteractiveJobs
from federator.model.lifecycle import WorkloadState
from federator.model.message import CancelAsked
from federator.model.workload import WorkloadId
from federator.policies.mast import Mast
from federator.wire.client_protocol import (
    CancelCall,
    ControlCall,
    ErrorKind,
    ErrorReply,
    SessionCall,
    SessionReply,
    SubmitCall,
    SubmitReply,
)
from tests.fakes.build import rack, tenant
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import CONFIG, Desk, submit_call

SILENCE_S = 120.0


def asking(desk: Desk, user: str = "ada", watched: bool = True, **options: str) -> SubmitCall:
    call = submit_call(f"key-{desk.federation.clock.now_s}", {"time": "30", **options})
    return msgspec.structs.replace(call, interactive=True, watched=watched)


def begun(desk: Desk, user: str = "ada", watched: bool = True, **options: str) -> WorkloadId:
    """A session of a user; the daemon's loop has noted its record."""
    reply = desk.ask(asking(desk, user, watched, **options), user)
    assert isinstance(reply, SubmitReply), reply
    desk.api.sessions.note(desk.federation.log)
    return WorkloadId(reply.id)


def seen(desk: Desk, id_: WorkloadId, user: str = "ada") -> SessionReply:
    reply = desk.ask(SessionCall(id=id_), user)
    assert isinstance(reply, SessionReply), reply
    return reply


def look(desk: Desk) -> list[WorkloadId]:
    """What the daemon's loop finds to be cancelled, and cancels."""
    found = desk.api.sessions.unheard(desk.federation.clock.now_s)
    for cancel in found.cancels:
        desk.observe(cancel)
    return [id_ for cancel in found.cancels for id_ in cancel.ids]


def wait(desk: Desk, seconds: float) -> list[WorkloadId]:
    """Let time pass; what has been cancelled meanwhile."""
    gone: list[WorkloadId] = []
    for _ in range(int(seconds // 10)):
        desk.federation.run_for(10.0)
        gone += look(desk)
    return gone


def test_its_user_is_told_where_it_runs() -> None:
    desk = Desk()
    id_ = begun(desk)
    desk.federation.run_until(lambda: desk.federation.state(id_) is WorkloadState.RUNNING)
    reply = seen(desk, id_)
    assert (reply.state, reply.site, reply.here) == ("RUNNING", "alpine", True)
    assert (reply.node_names, reply.site_job_id > 0) == (("a1",), True)
    assert reply.silence_s == SILENCE_S
    assert 1790 < reply.left_s <= 1800


def test_another_user_is_told_nothing() -> None:
    desk = Desk()
    id_ = begun(desk)
    reply = desk.ask(SessionCall(id=id_), "bob")
    assert isinstance(reply, ErrorReply)
    assert reply.kind is ErrorKind.DENIED
    assert "Invalid job id" in desk.refusal(SessionCall(id=7))


def test_one_that_is_asked_about_lives() -> None:
    desk = Desk()
    id_ = begun(desk)
    for _ in range(10):
        assert wait(desk, 60) == []
        assert seen(desk, id_).state == "RUNNING"


def test_one_that_is_not_asked_about_is_cancelled_wherever_it_is() -> None:
    desk = Desk(Loopback({"alpine": rack("a", 1), "baker": []}))
    runs, waits = begun(desk), begun(desk)
    desk.federation.run_for(20.0)
    assert desk.federation.state(waits) is WorkloadState.PENDING
    assert wait(desk, SILENCE_S + SILENCE_S / 4) == [runs, waits]
    desk.federation.run_until(lambda: desk.federation.state(runs) is WorkloadState.CANCELLED)
    assert desk.federation.state(waits) is WorkloadState.CANCELLED


def test_who_only_attaches_does_not_keep_it() -> None:
    desk = Desk()
    id_ = begun(desk)
    for _ in range(14):
        desk.ask(SessionCall(id=id_, attach=True))
        wait(desk, 10)
    assert desk.federation.entry(id_).state not in (WorkloadState.RUNNING, WorkloadState.PENDING)


def test_one_that_was_started_to_stay_does() -> None:
    desk = Desk()
    id_ = begun(desk, watched=False)
    assert wait(desk, 5 * SILENCE_S) == []
    assert seen(desk, id_).silence_s == 0.0


def test_while_the_site_of_its_command_is_away_it_has_time() -> None:
    desk = Desk()
    id_ = begun(desk)
    seen(desk, id_)
    desk.federation.site_down("alpine")
    assert wait(desk, 5 * SILENCE_S) == []
    desk.federation.site_up("alpine")
    desk.federation.run_for(1.0)
    assert wait(desk, SILENCE_S / 2) == []
    assert wait(desk, SILENCE_S) == [id_]


def test_the_next_daemon_gives_it_the_whole_time_again() -> None:
    desk = Desk()
    id_ = begun(desk)
    wait(desk, SILENCE_S - 20)
    clock = desk.federation.clock
    desk.api.sessions = InteractiveJobs(CONFIG, desk.federation.federation, clock)
    assert wait(desk, SILENCE_S - 20) == []
    assert wait(desk, 60) == [id_]


def test_after_a_restart_a_command_at_a_site_that_is_away_has_time() -> None:
    """Whose it was nobody knows any more: until each site has been there, silence says nothing."""
    desk = Desk()
    id_ = begun(desk)
    seen(desk, id_)
    desk.federation.site_down("alpine")
    clock = desk.federation.clock
    desk.api.sessions = InteractiveJobs(CONFIG, desk.federation.federation, clock)
    assert wait(desk, 5 * SILENCE_S) == []
    desk.federation.site_up("alpine")
    desk.federation.run_for(1.0)
    assert wait(desk, SILENCE_S / 2) == []
    assert wait(desk, SILENCE_S) == [id_]


@pytest.mark.parametrize("stands_s", [600.0, SILENCE_S * 0.9])
def test_after_the_daemon_stood_still_it_has_the_whole_time_again(stands_s: float) -> None:
    """Nobody was heard meanwhile."""
    desk = Desk()
    id_ = begun(desk)
    assert wait(desk, 60.0) == []
    desk.federation.clock.now_s += stands_s
    assert look(desk) == []
    assert wait(desk, SILENCE_S - 10.0) == []
    assert wait(desk, SILENCE_S / 4 + 10.0) == [id_]


@pytest.mark.parametrize("set_by_s", [600.0, 50.0, 6.0])
def test_a_clock_that_is_set_takes_no_time_from_it(set_by_s: float) -> None:
    """By however little: corrections add up."""
    desk, set_s = Desk(), 0.0
    federation = desk.federation
    desk.api.sessions = InteractiveJobs(
        CONFIG, federation.federation, lambda: federation.clock() + set_s, federation.clock
    )
    id_ = begun(desk)
    gone: list[CancelAsked] = []
    for _ in range(int(SILENCE_S * 0.9 / 2)):
        federation.run_for(2.0)
        set_s += set_by_s
        gone += desk.api.sessions.unheard(federation.clock.now_s + set_s).cancels
    assert gone == []
    assert wait(desk, SILENCE_S / 2) == [id_]


def test_a_look_that_a_set_clock_has_called_too_early_is_called_again() -> None:
    desk = Desk()
    elapsed_s = desk.federation.clock.now_s
    desk.api.sessions = InteractiveJobs(
        CONFIG, desk.federation.federation, desk.federation.clock, lambda: elapsed_s
    )
    begun(desk)
    now_s = desk.federation.clock.now_s
    due_s = desk.api.sessions.unheard(now_s).look_at_s
    assert due_s == now_s + SILENCE_S / LOOKS
    assert desk.api.sessions.unheard(now_s + 1.0).look_at_s == 0.0  # said already
    assert desk.api.sessions.unheard(due_s).look_at_s == due_s + SILENCE_S / LOOKS


def test_one_that_is_being_cancelled_is_not_cancelled_again() -> None:
    desk = Desk()
    id_ = begun(desk)
    desk.federation.run_until(lambda: desk.federation.state(id_) is WorkloadState.RUNNING)
    desk.federation.site_down("alpine")
    assert wait(desk, 2 * SILENCE_S) == [id_]
    assert desk.federation.state(id_) is WorkloadState.CANCELLING
    assert wait(desk, 5 * SILENCE_S) == []


def test_a_reload_that_shortens_the_silence_waits_for_commands_that_know_the_old_one() -> None:
    desk = Desk()
    id_ = begun(desk)
    seen(desk, id_)
    policy = CONFIG.policy.model_dump() | {"interactive": {"silence_s": 10.0}}
    file = CONFIG.model_dump(mode="json", exclude_unset=True) | {"policy": policy}
    desk.api.sessions.reconfigure(FederationConfig.model_validate(file))
    assert wait(desk, SILENCE_S / 2) == []
    assert seen(desk, id_).silence_s == 10.0
    assert wait(desk, 30) == [id_]


def test_its_time_limit_cannot_be_changed_beyond_the_longest() -> None:
    desk = Desk()
    id_ = begun(desk, watched=False)
    week = ControlCall(verb="update", ids=(str(id_),), fields={"timelimit": "7-00:00:00"})
    assert "may last 480 min at most" in desk.refusal(week)


def test_one_that_is_over_is_not_looked_for_any_more() -> None:
    desk = Desk()
    id_ = begun(desk)
    desk.cancel(CancelCall(ids=(str(id_),)))
    desk.federation.run_for(30.0)
    assert wait(desk, 3 * SILENCE_S) == []
    assert desk.api.sessions.unheard(desk.federation.clock.now_s).look_at_s == 0.0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"time": "9:00:00"}, "480 min at most"),
        ({"time": "0"}, "480 min at most"),
        ({"array": "0-3"}, "no array"),
        ({"fed-continue": None}, "nobody continues"),
    ],
)
def test_what_is_no_session_is_refused(options: dict[str, str], why: str) -> None:
    desk = Desk()
    assert why in desk.refusal(asking(desk, "ada", True, **options))


LOGINS = CONFIG.model_dump(include={"federation", "store", "regions", "tenants"}) | {
    "sites": {
        "alpine": {"region": "west", "partitions": ["gpu"], "command": ["agent"], "login": "a:22"},
        "baker": {
            "region": "west",
            "partitions": ["gpu"],
            "ssh": {"host": "baker.example", "port": 2222, "key": "k", "known_hosts": "h"},
        },
    }
}


@pytest.mark.parametrize(("node", "login"), [("a1", "a:22"), ("b1", "baker.example:2222")])
def test_users_log_in_where_the_file_says_or_where_the_agent_is(node: str, login: str) -> None:
    desk = Desk(config=FederationConfig.model_validate(LOGINS))
    id_ = begun(desk, nodelist=node)
    desk.federation.run_until(lambda: desk.federation.state(id_) is WorkloadState.RUNNING)
    assert seen(desk, id_).login == login


@pytest.mark.parametrize("login", ["-oProxyCommand=x", "a b", "user@host", "host:0", "a;b", "::1"])
def test_a_login_host_is_a_host(login: str) -> None:
    with pytest.raises(ValueError, match="expected HOST"):
        FederationConfig.model_validate(
            LOGINS | {"sites": {"alpine": LOGINS["sites"]["alpine"] | {"login": login}}}
        )


def test_it_comes_before_older_work_of_its_tenant_and_keeps_its_place_in_the_log() -> None:
    federation = Loopback(
        {"alpine": rack("a", 1)}, policy=Mast(), tenants=[tenant("vision", 8), tenant("nlp", 8)]
    )
    desk = Desk(federation)
    runs = desk.submit(key="key-first")
    older = desk.submit(key="key-older")
    federation.run_for(200 * 3600.0)
    session = begun(desk)
    order = [ranked.id for ranked in federation.federation.ranked(federation.clock.now_s)]
    assert order == [session, older]
    ledger = federation.replayed()
    assert ledger.entries[session].workload.interactive
    assert ledger.entries[session].workload.watched
    assert not ledger.entries[runs].workload.interactive


@pytest.mark.parametrize(
    ("names", "caller", "account"),
    [
        ({}, "ada", ""),
        ({"baker": "a.two"}, "ada", "a.two"),
        ({"alpine": "a.one"}, "a.one", "ada"),
        ({"alpine": "a.one", "baker": "a.one"}, "a.one", ""),
    ],
)
def test_users_log_in_by_the_name_that_the_site_has_for_them(
    names: dict[str, str], caller: str, account: str
) -> None:
    sites = {
        name: site | ({"names": {"users": {"ada": names[name]}}} if name in names else {})
        for name, site in LOGINS["sites"].items()
    }
    desk = Desk(config=FederationConfig.model_validate(LOGINS | {"sites": sites}))
    id_ = begun(desk, caller, nodelist="b1")
    desk.federation.run_until(lambda: desk.federation.state(id_) is WorkloadState.RUNNING)
    reply = desk.ask(SessionCall(id=id_), caller)
    assert isinstance(reply, SessionReply)
    assert reply.account == account
