"""A user lowers the time limit of a job that runs: its site does first, then it is recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from federator.model.lifecycle import WorkloadState
from federator.model.tagged import Message
from federator.model.workload import SiteName, WorkloadId
from federator.wire.agent_protocol import ClientCall, LimitAsk, LimitDone
from federator.wire.client_protocol import ControlCall, ControlReply, QueueCall, QueueReply
from federator.wire.replies import Reply
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import Desk
from tests.unit.daemon.test_site_calls import Link

DENIED = "Access/permission denied"


def lowers(message: Message) -> Message:
    assert isinstance(message, LimitAsk)
    return LimitDone(ask_id=message.ask_id)


def refuses(message: Message) -> Message:
    assert isinstance(message, LimitAsk)
    return LimitDone(ask_id=message.ask_id, detail=f"{DENIED} for job {message.site_job_id}")


@pytest.fixture
def desk() -> Desk:
    return Desk(Loopback({"alpine": rack("a", 2)}))


def connect(desk: Desk, answer: Any, answers: tuple[str, ...] = ("limit",)) -> Link:
    link = Link("alpine", answer)
    found: Any = link
    link.questions.answers = answers
    desk.api.site_calls.links = {SiteName("alpine"): found}
    return link


def call(id_: object, **fields: str) -> ControlCall:
    return ControlCall(verb="update", ids=(str(id_),), fields=fields)


def update(desk: Desk, id_: object, user: str = "ada", **fields: str) -> ControlReply:
    async def asking() -> Reply:  # a link's patience needs a loop
        return desk.ask(call(id_, **fields), user)

    reply = asyncio.run(asking())
    assert isinstance(reply, ControlReply), reply
    return reply


def minutes(desk: Desk, id_: object) -> list[float]:
    reply = desk.ask(QueueCall(ids=(str(id_),)))
    assert isinstance(reply, QueueReply)
    return [row.time_limit_s / 60 for row in reply.rows]


def asked(link: Link) -> list[tuple[str, int, int]]:
    return [(m.user, m.site_job_id, m.minutes) for m in link.asked if isinstance(m, LimitAsk)]


def running(desk: Desk, **options: str | None) -> WorkloadId:
    id_ = desk.submit("ada", "key-00001", **{"time": "60", **options})
    assert desk.federation.state(id_) is WorkloadState.RUNNING
    return id_


@pytest.mark.parametrize(
    ("fields", "limit"),
    [({"timelimit": "0:10:00"}, 10), ({"timelimit-": "20"}, 40), ({"timelimit": "60"}, 60)],
)
def test_the_site_lowers_the_limit_and_then_it_is_recorded(
    desk: Desk, fields: dict[str, str], limit: int
) -> None:
    id_, link = running(desk), connect(desk, lowers)
    assert update(desk, id_, **fields) == ControlReply(ids=(id_,))
    assert asked(link) == [("ada", desk.federation.entry(id_).site_job_id, limit)]
    assert minutes(desk, id_) == [limit]
    assert desk.federation.state(id_) is WorkloadState.RUNNING
    desk.federation.restart()
    assert desk.federation.entry(id_).workload.time_limit_s == limit * 60


@pytest.mark.parametrize("fields", [{"timelimit": "61"}, {"timelimit+": "1"}, {"timelimit": "0"}])
def test_a_limit_that_is_raised_is_refused_and_no_site_is_asked(
    desk: Desk, fields: dict[str, str]
) -> None:
    id_, link = running(desk), connect(desk, lowers)
    reply = update(desk, id_, **fields)
    assert not reply.ids
    assert reply.errors[0].startswith(f"{DENIED} for job {id_}: the limit of a job that runs ")
    assert (link.asked, minutes(desk, id_)) == ([], [60])


def test_what_the_site_refuses_is_said_and_changes_nothing(desk: Desk) -> None:
    id_, _ = running(desk), connect(desk, refuses)
    job = desk.federation.entry(id_).site_job_id
    reply = update(desk, id_, timelimit="10")
    assert reply == ControlReply(ids=(), errors=(f"{id_}: {DENIED} for job {job}",))
    assert minutes(desk, id_) == [60]


def test_an_agent_of_an_earlier_build_lowers_none(desk: Desk) -> None:
    id_, link = running(desk), connect(desk, lowers, answers=("signal",))
    reply = update(desk, id_, timelimit="10")
    assert "its agent is of an earlier build" in reply.errors[0]
    assert (reply.ids, link.asked, minutes(desk, id_)) == ((), [], [60])


def test_nobody_lowers_the_limit_of_anothers_job(desk: Desk) -> None:
    id_, link = running(desk), connect(desk, lowers)
    assert update(desk, id_, "bob", timelimit="10").errors == (f"{DENIED} for job {id_}",)
    assert not link.asked


def test_other_fields_of_a_running_job_stay_as_they_are(desk: Desk) -> None:
    id_, link = running(desk), connect(desk, lowers)
    reply = update(desk, id_, timelimit="10", nice="5")
    assert reply.errors == (f"Job is no longer pending execution for job {id_}",)
    assert (link.asked, minutes(desk, id_)) == ([], [60])


def test_of_an_array_what_runs_and_what_waits_gets_the_new_limit(desk: Desk) -> None:
    id_, link = running(desk, array="0-5%2"), connect(desk, lowers)
    assert len(update(desk, id_, timelimit="10").ids) == 6
    assert len(asked(link)) == 2
    assert set(minutes(desk, id_)) == {10}


def test_a_job_that_has_ended_meanwhile_keeps_what_it_had(desk: Desk) -> None:
    id_, link = running(desk), connect(desk, lambda _: None)
    replies: list[Reply] = []

    async def asking() -> None:
        asked = ClientCall(call_id=1, user="ada", call=call(id_, timelimit="10"))
        desk.api.take(asked, SiteName("alpine"), replies.append)
        desk.federation.cancel(id_)
        desk.federation.run_for(60.0)
        (ask,) = link.asked
        link.questions.take(lowers(ask))  # type: ignore[arg-type]

    asyncio.run(asking())
    desk.pass_on_answers()
    (reply,) = replies
    assert isinstance(reply, ControlReply)
    assert (reply.ids, len(reply.errors)) == ((), 1)
    assert desk.federation.entry(id_).workload.time_limit_s == 3600


def test_one_that_continues_is_told_before_its_new_limit(desk: Desk) -> None:
    id_, _ = running(desk, **{"fed-continue": None}), connect(desk, lowers)
    update(desk, id_, timelimit="20")
    desk.federation.run_for(16 * 60.0)
    assert desk.federation.entry(id_).attempt == 1
    desk.federation.run_for(4 * 60.0)
    assert desk.federation.entry(id_).attempt == 2
