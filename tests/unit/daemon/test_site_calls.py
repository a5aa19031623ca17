"""Calls that the sites' agents answer: nodes of all sites, and signals to jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from federator.config import FederationConfig
from federator.daemon.api import Api
from federator.daemon.links import SiteLink
from federator.daemon.site_questions import SiteQuestions
from federator.model.tagged import Message
from federator.model.workload import SiteName, WorkloadId
from federator.wire.agent_protocol import (
    ClientCall,
    NodesAsk,
    NodesTaken,
    SignalAsk,
    SignalDone,
    SignalTo,
)
from federator.wire.client_protocol import (
    Call,
    ErrorReply,
    NodesCall,
    NodesReply,
    QueueCall,
    QueueReply,
    SignalCall,
    SignalReply,
)
from federator.wire.replies import Reply
from tests.fakes.build import draft, gang, rack
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
        "tenants": {"vision": {"priority": 2, "users": ["ada", "bob"]}},
    }
)
Answer = Callable[[Message], Message | None]
ELSEWHERE = (
    "; a job that was submitted to a site itself is known there alone: use that site's Slurm"
)


class Link:
    """The questions of a link, answered by a function."""

    def __init__(self, site: str, answer: Answer, *, connected: bool = True) -> None:
        self.asked: list[Message] = []
        self.questions = SiteQuestions(SiteName(site), self._send)
        self.questions.connected = connected
        self.questions.answers = ("nodes", "signal")
        self._answer = answer

    def _send(self, message: Message) -> None:
        self.asked.append(message)
        told = self._answer(message)
        if told is not None:
            self.questions.take(told)  # type: ignore[arg-type]


class Desk:
    """The daemon's API over a federation of two sites, of which ``alpine`` runs jobs."""

    def __init__(self, **links: Link) -> None:
        self.federation = Loopback({"alpine": rack("a", 4), "baker": ()})
        f = self.federation
        self.api = Api(CONFIG, f.federation, lambda _: None, lambda: f.clock.now_s)
        self.api.site_calls.links = {SiteName(name): _link(link) for name, link in links.items()}

    def job(self, nodes: int = 1, user: str = "ada") -> WorkloadId:
        id_ = self.federation.submit(draft(gang(nodes), user=user))
        self.federation.run_for(1.0)
        return id_

    def ask(self, call: Call, user: str = "ada") -> Reply:
        answers: list[Reply] = []

        async def asking() -> None:
            asked = ClientCall(call_id=1, user=user, call=call)
            self.api.take(asked, SiteName("alpine"), answers.append)

        asyncio.run(asking())
        (reply,) = answers
        return reply


def _link(link: Link) -> SiteLink:
    found: Any = link
    assert isinstance(found.questions, SiteQuestions)
    return found  # type: ignore[no-any-return]


def lists(message: Message) -> Message:
    assert isinstance(message, NodesAsk)
    return NodesTaken(ask_id=message.ask_id, nodes=b"list of " + message.partitions[0].encode())


def sends(message: Message) -> Message:
    assert isinstance(message, SignalAsk)
    return SignalDone(ask_id=message.ask_id)


# ---- nodes ----


def test_every_site_lists_its_nodes_or_says_why_not() -> None:
    desk = Desk(alpine=Link("alpine", lists), baker=Link("baker", lists, connected=False))
    reply = desk.ask(NodesCall())
    assert isinstance(reply, NodesReply)
    assert [(row.site, row.region, row.nodes, row.detail) for row in reply.sites] == [
        ("alpine", "west", b"list of gpu", ""),
        ("baker", "west", b"", "site baker is not connected"),
    ]


def test_a_site_whose_agent_knows_no_such_question_is_not_asked() -> None:
    old = Link("alpine", lists)
    old.questions.answers = ()
    reply = Desk(alpine=old).ask(NodesCall(clusters=("alpine",)))
    assert isinstance(reply, NodesReply)
    ((site, detail),) = [(row.site, row.detail) for row in reply.sites]
    assert (site, old.asked) == ("alpine", [])
    assert "its agent is of an earlier build" in detail


def test_a_site_may_say_why_it_lists_none() -> None:
    def fails(message: Message) -> Message:
        return NodesTaken(ask_id=1, detail="slurmctld is away")

    reply = Desk(alpine=Link("alpine", fails)).ask(NodesCall(clusters=("alpine",)))
    assert isinstance(reply, NodesReply)
    assert [row.detail for row in reply.sites] == ["slurmctld is away"]


def test_lists_that_one_answer_does_not_hold_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("federator.daemon.site_calls.MAX_LISTED_BYTES", 15)
    reply = Desk(alpine=Link("alpine", lists), baker=Link("baker", lists)).ask(NodesCall())
    assert isinstance(reply, NodesReply)
    assert [(row.nodes, row.detail) for row in reply.sites] == [
        (b"list of gpu", ""),
        (b"", "too many nodes for one answer; see --clusters"),
    ]


@pytest.mark.parametrize("names", [(), ("all",), ("demo",), ("demo", "alpine")])
def test_the_federation_is_every_cluster(names: tuple[str, ...]) -> None:
    reply = Desk().ask(NodesCall(clusters=names))
    assert isinstance(reply, NodesReply)
    assert [row.site for row in reply.sites] == ["alpine", "baker"]


def test_a_cluster_that_is_none_is_refused_by_name() -> None:
    for call in (NodesCall(clusters=("other",)), QueueCall(clusters=("alpine", "other"))):
        reply = Desk().ask(call)
        assert isinstance(reply, ErrorReply)
        assert reply.message == (
            "No cluster 'other' known by federation demo; its sites: alpine, baker"
        )


def test_the_daemon_says_that_it_selects() -> None:
    reply = Desk().ask(QueueCall(clusters=("baker",)))
    assert isinstance(reply, QueueReply)
    assert reply.selects


# ---- signals ----


def test_a_signal_goes_to_the_site_of_each_job() -> None:
    link = Link("alpine", sends)
    desk = Desk(alpine=link)
    one, two = desk.job(), desk.job()
    asked = SignalCall(ids=(str(one), f"{two};demo", str(one)), signal="USR1", to="batch")
    with capture_logs() as said:
        reply = desk.ask(asked)
    (line,) = [line for line in said if line["event"] == "signal_asked"]
    assert (line["user"], line["workloads"]) == ("ada", [one, two])
    assert reply == SignalReply(ids=(one, two))
    assert [
        (m.user, m.site_job_id, m.signal, m.to) for m in link.asked if isinstance(m, SignalAsk)
    ] == [
        ("ada", 101, "USR1", SignalTo.BATCH),
        ("ada", 102, "USR1", SignalTo.BATCH),
    ]


def test_what_cannot_be_signalled_is_said_of_each_job() -> None:
    link = Link("alpine", sends)
    desk = Desk(alpine=link)
    runs, waits = desk.job(nodes=4), desk.job()
    reply = desk.ask(SignalCall(ids=("7", str(waits), str(runs)), signal="USR1"))
    assert reply == SignalReply(
        ids=(runs,),
        errors=(
            f"Invalid job id specified: 7{ELSEWHERE}",
            f"Job is pending execution, or has ended: {waits}",
        ),
    )


def test_nobody_signals_anothers_job() -> None:
    link = Link("alpine", sends)
    desk = Desk(alpine=link)
    id_ = desk.job()
    reply = desk.ask(SignalCall(ids=(str(id_),), signal="USR1"), user="bob")
    assert reply == SignalReply(
        ids=(), errors=(f"Access/permission denied: {id_} belongs to another user",)
    )
    assert link.asked == []


def test_the_sites_own_words_are_passed_on() -> None:
    def refuses(message: Message) -> Message:
        assert isinstance(message, SignalAsk)
        return SignalDone(ask_id=message.ask_id, detail="the job is about to end")

    desk = Desk(alpine=Link("alpine", refuses))
    id_ = desk.job()
    reply = desk.ask(SignalCall(ids=(str(id_),), signal="USR1"))
    assert reply == SignalReply(ids=(), errors=(f"{id_}: the job is about to end",))
    assert desk.ask(SignalCall(ids=(str(desk.job()),), signal="USR1", to="all")).errors  # type: ignore[union-attr]


def test_a_site_that_is_away_is_said() -> None:
    desk = Desk()
    id_ = desk.job()
    reply = desk.ask(SignalCall(ids=(str(id_),), signal="USR1"))
    assert reply == SignalReply(ids=(), errors=(f"{id_}: site alpine is not connected",))


@pytest.mark.parametrize(
    ("signal", "to"), [("KILL", "steps"), ("XCPU", "all"), ("USR1", "program")]
)
def test_only_signals_that_sites_send_are_taken(signal: str, to: str) -> None:
    reply = Desk().ask(SignalCall(ids=("1",), signal=signal, to=to))
    assert isinstance(reply, ErrorReply)
    assert "cannot be sent; one of ALRM, CONT, HUP" in reply.message


def test_many_signals_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federator.daemon.site_calls.MAX_SIGNALS", 1)
    desk = Desk()
    ids = (str(desk.job()), str(desk.job()))
    reply = desk.ask(SignalCall(ids=ids, signal="USR1"))
    assert isinstance(reply, ErrorReply)
    assert reply.message == "signals to 2 jobs at once, at most 1"
