"""Who may ask for what, and what the answer is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from federator.audit.chain import AuditAct
from federator.config import FederationConfig
from federator.daemon.api import Api
from federator.daemon.effects import Effects
from federator.daemon.roles import operators
from federator.daemon.start_forecasts import StartForecasts
from federator.model.lifecycle import WorkloadState
from federator.model.message import Observation
from federator.model.reason import RefusalKind
from federator.model.start_estimate import HelpKind, NoEstimate, StartEstimate, StartHelp
from federator.model.submission import Option, Submission
from federator.model.workload import SiteName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.wire.agent_protocol import ClientCall
from federator.wire.client_protocol import (
    AccountingCall,
    AccountingReply,
    Call,
    CancelCall,
    CancelReply,
    ErrorReply,
    QueueCall,
    QueueReply,
    SitesCall,
    SitesReply,
    SnapshotCall,
    SubmitCall,
    SubmitReply,
    frame,
)
from federator.wire.framing import read_frame, skip_to_banner
from federator.wire.queue_rows import QueueOutcome
from federator.wire.replies import Reply, reply_decoder
from federator.wire.replies import TestOnlyReply as TrialReply
from tests.fakes.build import rack, tenant
from tests.fakes.loopback import Loopback

CONFIG = FederationConfig.model_validate(
    {
        "federation": "demo",
        "store": "memory:",
        "regions": {"west": {"shared": "/shared"}},
        "sites": {
            name: {"region": "west", "partitions": ["gpu"], "command": ["agent"]}
            for name in ("alpine", "baker")
        },
        "tenants": {
            "vision": {"priority": 2, "users": ["ada", "bob"]},
            "nlp": {"priority": 5, "users": ["ada"]},
            "bio": {"users": ["ada"], "require_project": True},
        },
    }
)


class Desk:
    """An ``Api`` over a simulated federation; ``ask`` is a user's command at alpine."""

    def __init__(
        self,
        federation: Loopback | None = None,
        config: FederationConfig = CONFIG,
    ) -> None:
        sites = {"alpine": rack("a", 2), "baker": rack("b", 2)}
        self.federation = Loopback(sites) if federation is None else federation
        self.noted: list[AuditAct] = []
        self.api = Api(
            config,
            self.federation.federation,
            self.observe,
            self.federation.clock,
        )
        self.api.audit = self.noted.append
        self._effects = Effects("demo", {}, self.api.reply, lambda _: None, {})

    def observe(self, observation: Observation) -> None:
        self.federation.observe(observation)
        self.pass_on_answers()

    def pass_on_answers(self) -> None:
        answers, self.federation.answers = self.federation.answers, {}
        for answer in answers.values():
            self._effects.carry_out(answer)

    def ask(self, call: Call, user: str = "ada") -> Reply:
        replies: list[Reply] = []
        self.api.take(
            ClientCall(call_id=1, user=user, call=call), SiteName("alpine"), replies.append
        )
        self.federation.run_for(1.0)
        self.pass_on_answers()
        (reply,) = replies
        return reply

    def submit(
        self, user: str = "ada", key: str = "key-00001", **options: str | None
    ) -> WorkloadId:
        reply = self.ask(submit_call(key, options), user)
        assert isinstance(reply, SubmitReply), reply
        return WorkloadId(reply.id)

    def refusal(self, call: Call, user: str = "ada") -> str:
        reply = self.ask(call, user)
        assert isinstance(reply, ErrorReply), reply
        return reply.message

    def cancel(self, call: CancelCall, user: str = "ada") -> CancelReply:
        reply = self.ask(call, user)
        assert isinstance(reply, CancelReply), reply
        return reply

    def queue(self, call: QueueCall) -> list[int]:
        reply = self.ask(call)
        assert isinstance(reply, QueueReply)
        return [row.id for row in reply.rows]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def submit_call(
    key: str = "key-00001",
    options: Mapping[str, str | None] = MappingProxyType({}),
    test_only: bool = False,
    as_user: str = "",
) -> SubmitCall:
    given: dict[str, str | None] = {"nodes": "1", "gres": "gpu:8", **options}
    component = tuple(Option(name=name, value=value) for name, value in given.items())
    submission = Submission(components=(component,), script="#!/bin/sh\ntrue\n")
    return SubmitCall(submission=submission, key=key, test_only=test_only, as_user=as_user)


# ---- submissions ----


def test_a_submission_is_queued_for_the_users_first_tenant(desk: Desk) -> None:
    id_ = desk.submit()
    workload = desk.federation.entry(id_).workload
    assert (workload.user, workload.tenant, workload.priority) == ("ada", "vision", 2)
    assert desk.federation.state(id_) is WorkloadState.RUNNING


def test_an_account_of_ones_own_is_used(desk: Desk) -> None:
    workload = desk.federation.entry(desk.submit(account="nlp")).workload
    assert (workload.tenant, workload.priority) == ("nlp", 5)


def test_a_user_may_lower_a_workload_below_the_tenants_priority(desk: Desk) -> None:
    id_ = desk.submit(**{"fed-priority": "6", "nice": "50"})
    workload = desk.federation.entry(id_).workload
    assert (workload.priority, workload.asked_priority, workload.nice) == (6, 6, 50)


def test_what_is_asked_for_of_evictions_and_time_limits_is_queued_with_it(desk: Desk) -> None:
    reply = desk.ask(submit_call(options={"fed-no-preempt": None, "fed-continue": None}))
    assert isinstance(reply, SubmitReply), reply
    workload = desk.federation.entry(WorkloadId(reply.id)).workload
    assert (workload.no_preempt, workload.preemptible, workload.continues) == (True, False, True)


def test_what_is_said_of_a_workload_is_kept_and_shown(desk: Desk) -> None:
    said = {"fed-project": "p", "fed-elastic": "1-4"}
    id_ = desk.submit(**said)
    workload = desk.federation.entry(id_).workload
    assert workload.project == "p"
    reply = desk.ask(QueueCall(ids=(str(id_),), ended=True))
    assert isinstance(reply, QueueReply)
    (row,) = reply.rows
    assert (row.project, str(row.elastic)) == ("p", "1-4")


def test_a_partition_that_no_site_has_is_refused_in_sbatchs_words(desk: Desk) -> None:
    nowhere = submit_call("key-00001", {"partition": "nosuch"})
    assert desk.refusal(nowhere) == "Batch job submission failed: Invalid partition name specified"


def test_the_spare_nodes_of_a_gang_count_with_the_others(desk: Desk) -> None:
    """Each site has two nodes."""
    desk.submit(nodes="2")
    spare = submit_call("key-00002", {"nodes": "2", "fed-spare": "1"})
    assert desk.refusal(spare) == "no site can ever run this job"


@pytest.mark.parametrize("test_only", [False, True])
def test_a_tenant_may_take_no_job_without_a_project(desk: Desk, test_only: bool) -> None:
    call = submit_call(options={"account": "bio"}, test_only=test_only)
    assert desk.refusal(call) == (
        "tenant bio takes no job without a project; pass --fed-project=NAME (or SBATCH_FED_PROJECT)"
    )
    workload = desk.federation.entry(desk.submit(account="bio", **{"fed-project": "p"})).workload
    assert (workload.tenant, workload.project) == ("bio", "p")


def test_who_may_not_be_evicted_and_can_never_be_within_quota_is_told_so() -> None:
    tenants = (tenant("vision"), tenant("nlp", 8))
    evicting = Loopback({"alpine": rack("a", 2)}, Rules(preempt_gpus=8), None, Mast(), tenants)
    call = submit_call(options={"fed-no-preempt": None})
    assert Desk(evicting).refusal(call) == (
        "a job that may not be evicted must fit its tenant's quota"
    )


def test_a_workload_that_asks_for_nothing_is_not_lowered(desk: Desk) -> None:
    workload = desk.federation.entry(desk.submit()).workload
    assert (workload.priority, workload.asked_priority, workload.nice) == (2, 1, 0)


def test_the_tenants_own_priority_may_be_asked_for(desk: Desk) -> None:
    workload = desk.federation.entry(desk.submit(**{"fed-priority": "2"})).workload
    assert (workload.priority, workload.asked_priority) == (2, 2)


@pytest.mark.parametrize("test_only", [False, True])
def test_a_priority_above_the_tenants_is_refused_with_the_tenants(
    desk: Desk, test_only: bool
) -> None:
    call = submit_call(options={"account": "nlp", "fed-priority": "1"}, test_only=test_only)
    assert desk.refusal(call) == (
        "--fed-priority=1 (or SBATCH_FED_PRIORITY) is above the tenant's priority 5; "
        "it can only lower it"
    )
    assert not desk.federation.federation.ledger.entries


def test_an_account_of_others_is_refused_with_the_choice(desk: Desk) -> None:
    message = desk.refusal(submit_call(options={"account": "nlp"}), user="bob")
    assert "Invalid account" in message
    assert "vision" in message


def test_a_user_without_a_tenant_is_refused(desk: Desk) -> None:
    assert "eve belongs to no tenant" in desk.refusal(submit_call(), user="eve")


def test_the_same_key_again_gives_the_same_id(desk: Desk) -> None:
    assert desk.submit() == desk.submit()


def test_the_same_key_for_another_job_is_refused_with_the_job_that_has_it(desk: Desk) -> None:
    id_ = desk.submit()
    message = desk.refusal(submit_call(options={"nodes": "2"}))
    assert message == (
        f"submit key {submit_call().key!r} was used for job {id_} with other options: "
        "use another key (FED_SUBMIT_KEY) for another job"
    )
    assert len(desk.federation.federation.ledger.entries) == 1


def test_the_key_of_one_user_does_not_meet_anothers(desk: Desk) -> None:
    assert desk.submit("ada") != desk.submit("bob")


@pytest.mark.parametrize("key", ["", "short", "x" * 129])
def test_a_key_that_could_repeat_by_chance_is_refused(desk: Desk, key: str) -> None:
    assert "submit key" in desk.refusal(submit_call(key))


def test_a_wrong_option_is_refused_in_one_line(desk: Desk) -> None:
    message = desk.refusal(submit_call(options={"nodes": "many"}))
    assert "\n" not in message
    assert not desk.federation.federation.ledger.entries


def test_a_job_that_no_site_can_run_is_refused_with_each_sites_reason(desk: Desk) -> None:
    reply = desk.ask(submit_call(options={"nodes": "3"}))
    assert isinstance(reply, ErrorReply)
    assert {site: r.kind for site, r in reply.reasons.items()} == {
        "alpine": RefusalKind.REJECT,
        "baker": RefusalKind.REJECT,
    }


def test_a_trial_shows_every_sites_bid(desk: Desk) -> None:
    reply = desk.ask(submit_call(test_only=True))
    assert isinstance(reply, TrialReply)
    assert (reply.winner, sorted(b.site for b in reply.bids)) == ("alpine", ["alpine", "baker"])
    assert not desk.federation.federation.ledger.entries


def full(desk: Desk) -> StartForecasts:
    """Every node is taken; starts are estimated from now on."""
    for number in range(4):
        desk.submit(key=f"key-1000{number}")
    clock = desk.federation.clock
    starts = StartForecasts(desk.federation.federation, clock, clock)
    desk.api.show_starts(starts)
    return starts


def test_a_trial_that_would_wait_is_answered_with_its_estimate(desk: Desk) -> None:
    starts = full(desk)
    replies: list[Reply] = []
    call = ClientCall(call_id=1, user="ada", call=submit_call(test_only=True))
    desk.api.take(call, SiteName("alpine"), replies.append)
    desk.federation.run_for(1.0)
    desk.pass_on_answers()
    assert replies == []  # the queue is played first
    asyncio.run(starts.look())
    (reply,) = replies
    assert isinstance(reply, TrialReply)
    assert (reply.winner, reply.start) == ("", StartEstimate(none=NoEstimate.UNTRIED.value))


@pytest.mark.parametrize(
    "options", [{"hold": None}, {"begin": "uts1798704000"}, {"dependency": "singleton"}]
)
def test_a_trial_that_may_not_start_yet_has_no_estimate(
    desk: Desk, options: dict[str, str]
) -> None:
    full(desk)
    reply = desk.ask(submit_call(options=options, test_only=True))
    assert isinstance(reply, TrialReply)
    assert reply.start == StartEstimate(none=NoEstimate.MAY_NOT_START.value)


def test_a_trial_that_would_start_now_is_answered_at_once(desk: Desk) -> None:
    clock = desk.federation.clock
    desk.api.show_starts(StartForecasts(desk.federation.federation, clock, clock))
    reply = desk.ask(submit_call(test_only=True))
    assert isinstance(reply, TrialReply)
    assert (reply.winner, reply.start) == ("alpine", None)


def test_rows_have_estimates_only_where_they_are_asked_for_and_somebody_waits(desk: Desk) -> None:
    starts = full(desk)
    waits = desk.submit(key="key-20000")
    asyncio.run(starts.look())

    def estimates(call: QueueCall) -> dict[int, StartEstimate]:
        reply = desk.ask(call)
        assert isinstance(reply, QueueReply)
        return {row.id: row.start for row in reply.rows if row.start is not None}

    assert estimates(QueueCall()) == {}
    assert list(estimates(QueueCall(starts=True))) == [waits]


def test_one_that_waits_is_told_with_what_would_help_after_that_was_played(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = full(desk)
    waits = desk.submit(key="key-20000")
    found = (StartHelp(kind=HelpKind.ANY_PARTITION.value, start=StartEstimate(likely_s=1.0)),)
    monkeypatch.setattr(starts.estimates, "helps", lambda *_: found)
    replies: list[Reply] = []

    def ask(call: QueueCall) -> None:
        desk.api.take(
            ClientCall(call_id=1, user="ada", call=call), SiteName("alpine"), replies.append
        )

    ask(QueueCall(ids=(str(waits),), helps=True))
    assert replies == []  # the queue is played first
    asyncio.run(starts.look())
    (reply,) = replies
    assert isinstance(reply, QueueReply)
    assert [(row.helps, row.helps_untried) for row in reply.rows] == [(found, False)]
    ask(QueueCall(ids=(str(waits - 1),), helps=True))  # it runs
    ask(QueueCall(helps=True))  # more than one
    for reply in replies[1:]:
        assert isinstance(reply, QueueReply)
        assert {row.helps for row in reply.rows} == {()}
    assert len(replies) == 3


def test_one_whose_changes_were_not_tried_says_so(desk: Desk) -> None:
    starts = full(desk)
    waits = desk.submit(key="key-20000")
    replies: list[Reply] = []
    for _ in range(2):  # of one user, one at a time
        call = QueueCall(ids=(str(waits),), helps=True)
        desk.api.take(
            ClientCall(call_id=1, user="ada", call=call), SiteName("alpine"), replies.append
        )
    asyncio.run(starts.look())
    untried = [row.helps_untried for each in replies for row in each.rows]  # type: ignore[union-attr]
    assert untried == [True, False]


def test_nobody_at_a_site_may_act_for_another(desk: Desk) -> None:
    for user in ("ada", "root"):  # root of a site is no operator of the federation
        assert "may not act for bob" in desk.refusal(submit_call(as_user="bob"), user=user)


# ---- cancels ----


def test_ones_own_workload_is_cancelled(desk: Desk) -> None:
    id_ = desk.submit()
    assert desk.cancel(CancelCall(ids=(str(id_),))) == CancelReply(ids=(id_,))
    assert desk.federation.state(id_) is WorkloadState.CANCELLED


def test_another_users_workload_is_not(desk: Desk) -> None:
    id_ = desk.submit()
    reply = desk.cancel(CancelCall(ids=(str(id_),)), user="bob")
    assert reply.ids == ()
    assert "belongs to another user" in reply.errors[0]
    assert desk.federation.state(id_) is WorkloadState.RUNNING


def test_an_id_that_does_not_exist_spoils_nothing_else(desk: Desk) -> None:
    id_ = desk.submit()
    unknown = str(id_ + 99)
    reply = desk.cancel(CancelCall(ids=(unknown, str(id_), "x")))
    assert reply.ids == (id_,)
    assert reply.errors == (f"Invalid job id specified: {unknown}", "Invalid job id specified: x")


def test_a_number_that_a_job_has_at_its_site_is_told_to_whom_it_belongs(desk: Desk) -> None:
    id_ = desk.submit()
    number = desk.federation.entry(id_).site_job_id
    site = desk.federation.entry(id_).site
    reply = desk.cancel(CancelCall(ids=(str(number), str(number + 500))))
    assert reply.ids == ()
    assert reply.errors == (
        f"Invalid job id specified: {number}; job {id_} has this number at {site}",
        f"Invalid job id specified: {number + 500}; a job that was submitted to a site itself is "
        "known there alone: use that site's Slurm",
    )
    others = desk.cancel(CancelCall(ids=(str(number),)), user="bob")
    assert str(id_) not in others.errors[0]
    assert desk.federation.state(id_) is WorkloadState.RUNNING


def test_one_task_of_an_array_is_cancelled_by_its_index(desk: Desk) -> None:
    first = desk.submit(array="3-5")
    assert desk.cancel(CancelCall(ids=(f"{first}_4",))).ids == (first + 1,)


def test_an_array_is_cancelled_by_its_id(desk: Desk) -> None:
    first = desk.submit(array="3-5")
    assert desk.cancel(CancelCall(ids=(str(first),))).ids == (first, first + 1, first + 2)


def test_all_of_ones_own_are_cancelled_and_no_others(desk: Desk) -> None:
    mine, theirs = desk.submit("ada"), desk.submit("bob")
    assert desk.cancel(CancelCall(users=("ada",))).ids == (mine,)
    assert "may cancel only" in desk.refusal(CancelCall(users=("bob",)))
    assert desk.federation.state(theirs) is WorkloadState.RUNNING


def test_ids_named_with_a_user_are_only_those_of_the_user(desk: Desk) -> None:
    id_ = desk.submit("ada")
    assert desk.cancel(CancelCall(ids=(str(id_),), users=("bob",))).ids == ()


# ---- views ----


def test_the_queue_shows_live_workloads_and_on_request_ended_ones(desk: Desk) -> None:
    done, live = desk.submit("ada"), desk.submit("bob")
    desk.cancel(CancelCall(ids=(str(done),)))
    assert desk.queue(QueueCall()) == [live]
    assert desk.queue(QueueCall(ended=True)) == [done, live]
    assert desk.queue(QueueCall(users=("ada",), ended=True)) == [done]
    assert desk.queue(QueueCall(ids=(str(live), "12"))) == [live]


def test_the_sites_are_shown_with_their_regions(desk: Desk) -> None:
    reply = desk.ask(SitesCall())
    assert isinstance(reply, SitesReply)
    assert [(s.name, s.region, s.up) for s in reply.sites] == [
        ("alpine", "west", True),
        ("baker", "west", True),
    ]


# ---- the daemon's own socket ----


@pytest.mark.asyncio
async def test_an_operator_on_the_daemons_host_acts_for_others(desk: Desk, tmp_path: Path) -> None:
    server = await desk.api.serve(tmp_path / "run" / "daemon.sock")
    reader, writer = await asyncio.open_unix_connection(tmp_path / "run" / "daemon.sock")
    await skip_to_banner(reader)
    writer.write(frame(submit_call(as_user="bob")))
    body = await read_frame(reader)
    assert body is not None
    reply = reply_decoder.decode(body)
    assert isinstance(reply, SubmitReply)
    assert desk.federation.entry(WorkloadId(reply.id)).workload.user == "bob"
    writer.write((3).to_bytes(4, "big") + b"???")
    body = await read_frame(reader)
    assert body is not None
    assert isinstance(reply_decoder.decode(body), ErrorReply)
    writer.close()
    await writer.wait_closed()
    server.close()


def test_an_inherited_logname_makes_nobody_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setenv("USER", "ada")
    assert "ada" not in operators()


def test_a_fault_of_ours_in_one_call_is_an_answer_not_the_end_of_the_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise IndexError

    monkeypatch.setattr("federator.daemon.view_calls.queue_rows", fails)
    assert "its log says how" in Desk().refusal(QueueCall())


def test_a_request_with_too_many_ids_is_refused() -> None:
    ids = tuple(map(str, range(2000)))
    assert "at most 1000" in Desk().refusal(CancelCall(ids=ids))
    assert "at most 1000" in Desk().refusal(QueueCall(ids=ids))


def test_one_answer_holds_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federator.daemon.view_calls.MAX_ROWS", 2)
    desk = Desk()
    first = desk.submit(array="0-2")
    reply = desk.ask(QueueCall(ended=True))
    assert isinstance(reply, QueueReply)
    assert (len(reply.rows), reply.left_off) == (2, 1)
    assert reply.rows[-1].id == first + 2  # the newest stay


def test_the_outcome_of_an_array_with_more_tasks_than_rows_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("federator.daemon.view_calls.MAX_ROWS", 2)
    desk = Desk()
    array = desk.submit(array="0-4")
    reply = desk.ask(QueueCall(ids=(str(array),), ended=True, outcome=True))
    assert isinstance(reply, QueueReply)
    assert (reply.outcome, reply.rows) == (QueueOutcome(unsettled=5), ())
    desk.cancel(CancelCall(ids=(str(array),)))
    desk.federation.run_for(30.0)
    reply = desk.ask(QueueCall(ids=(str(array),), ended=True, outcome=True))
    assert isinstance(reply, QueueReply)
    assert reply.outcome == QueueOutcome(failed=5, exit_code=1)
    assert len(reply.rows) == 5
    gone = desk.ask(QueueCall(ids=("7",), ended=True, outcome=True))
    assert isinstance(gone, QueueReply)
    assert gone.unknown == ("7",)


def test_only_an_operator_sees_what_a_site_bids_on(desk: Desk) -> None:
    assert desk.refusal(SnapshotCall(site="alpine")) == (
        "ada is no operator, or not on the daemon's host"
    )
    root = "root"  # at a site even root is a user
    assert "no operator" in desk.refusal(SnapshotCall(site="alpine"), root)


def test_a_refused_call_is_in_the_log_with_its_user() -> None:
    desk = Desk()
    with capture_logs() as said:
        desk.ask(SitesCall())
        never = desk.refusal(submit_call(options={"nodes": "900"}))
        account = desk.refusal(submit_call(options={"account": "nlp"}), "bob")
    refused = [(line["user"], line["detail"]) for line in said if line["event"] == "call_refused"]
    assert refused == [("ada", never), ("bob", account)]


def test_ids_may_name_the_federation_and_no_other(desk: Desk) -> None:
    """``fsbatch --parsable -M NAME`` writes ``ID;NAME``, which every command takes."""
    id_ = desk.submit()
    name = CONFIG.federation
    assert desk.queue(QueueCall(ids=(f"{id_};{name}",))) == [id_]
    assert "another federation" in desk.refusal(QueueCall(ids=(f"{id_};other",)))
    assert desk.cancel(CancelCall(ids=(f"{id_};{name}",))).ids == (id_,)


def test_a_submission_may_name_this_federation_and_no_other(desk: Desk) -> None:
    call = submit_call()
    named = structs.replace(call, federation=CONFIG.federation)
    assert isinstance(desk.ask(named), SubmitReply)
    other = structs.replace(call, federation="elsewhere")
    assert desk.refusal(other).startswith("--clusters=elsewhere: this federation is called ")


@pytest.mark.parametrize(
    ("privacy", "user", "seen"),
    [
        ("open", "cat", {"ada's", "bob's", "nlp's"}),
        ("tenant", "bob", {"ada's", "bob's"}),
        ("tenant", "ada", {"ada's", "bob's", "nlp's"}),
        ("own", "ada", {"ada's", "nlp's"}),
        ("own", "bob", {"bob's"}),
        ("tenant", "cat", set()),
    ],
)
def test_strangers_jobs_are_shown_as_far_as_privacy_lets(
    privacy: str, user: str, seen: set[str]
) -> None:
    desk = Desk(config=private(privacy))
    made = {desk.submit("ada"): "ada's", desk.submit("bob"): "bob's"}
    reply = desk.ask(submit_call(key="key-00002", options={"account": "nlp"}))
    assert isinstance(reply, SubmitReply)
    made[WorkloadId(reply.id)] = "nlp's"
    by_id = QueueCall(ids=tuple(map(str, made)))
    for call in (QueueCall(), by_id, QueueCall(why=True, ended=True)):
        reply = desk.ask(call, user)
        assert isinstance(reply, QueueReply)
        assert {made[WorkloadId(row.id)] for row in reply.rows} == seen
        unknown = {made[WorkloadId(int(id_))] for id_ in reply.unknown}
        assert unknown == (set(made.values()) - seen if call.ids else set())
    reply = desk.ask(QueueCall(outcome=True), user)
    assert isinstance(reply, QueueReply)
    assert reply.outcome is not None
    assert reply.outcome.unsettled == len(seen)


CALLS: dict[str, QueueCall | AccountingCall] = {
    "fsqueue": QueueCall(brief=True, collapsed=True),
    "fsqueue -l": QueueCall(brief=True, collapsed=True, details=True),
    "fsqueue --json": QueueCall(files=True),
    "fsqueue --start": QueueCall(starts=True),
    "fsqueue --why": QueueCall(why=True),
    "fsprio": QueueCall(states=("PENDING",), why=True, collapsed=True, details=True),
    "fscontrol show job": QueueCall(collapsed=True, files=True, details=True),
    "federator explain": QueueCall(why=True, details=True, helps=True),
    "fsacct": AccountingCall(),
    "fsacct -a": AccountingCall(attempts=True, use=True),
    "fseff": AccountingCall(attempts=True, use=True),
}


@pytest.mark.parametrize("named", [False, True], ids=["all", "by id"])
@pytest.mark.parametrize("command", CALLS)
@pytest.mark.parametrize(("privacy", "sees"), [("open", True), ("tenant", False), ("own", False)])
def test_no_command_shows_a_strangers_job_unless_all_may_see_it(
    privacy: str, sees: bool, command: str, named: bool
) -> None:
    desk = Desk(config=private(privacy))
    ids = {desk.submit("bob", f"key-0000{k}", nodes="2") for k in range(3)}
    call = CALLS[command]
    if named:
        call = structs.replace(call, ids=tuple(map(str, ids)))

    def seen(user: str) -> set[int]:
        reply = desk.ask(call, user)
        assert isinstance(reply, QueueReply | AccountingReply), reply
        return {row.id for row in reply.rows}

    assert seen("bob")
    assert seen("cat") == (seen("bob") if sees else set())


@pytest.mark.asyncio
async def test_an_operator_sees_everybody_s_jobs_whatever_privacy_says() -> None:
    desk = Desk(config=private("own"))
    desk.submit("ada")
    desk.api.roles._operators = frozenset({"eve"})
    reply = await desk.api._answered("eve", QueueCall())
    assert isinstance(reply, QueueReply)
    assert len(reply.rows) == 1


def private(privacy: str) -> FederationConfig:
    values = CONFIG.model_dump(mode="json", exclude_unset=True)
    return FederationConfig.model_validate(values | {"privacy": privacy})
