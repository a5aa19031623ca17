"""A question to a site's agent gets one answer: the agent's, or why there is none."""

from __future__ import annotations

import asyncio

from federator.daemon.site_questions import SNAPSHOT_S, VERIFY_ANSWER_S, SiteQuestions
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.site import Node, Snapshot
from federator.model.tagged import Message
from federator.model.workload import SiteName
from federator.wire.agent_protocol import (
    SnapshotAsk,
    SnapshotTaken,
    VerifyAsk,
    VerifyDone,
    packed,
    unpacked,
)
from federator.wire.client_protocol import (
    ErrorKind,
    ErrorReply,
    SnapshotReply,
    VerifyCall,
    VerifyReply,
)
from federator.wire.replies import Reply

SITE = SiteName("alpine")
SNAPSHOT = Snapshot(site=SITE, now_s=5.0, nodes=(Node(name="n1", partitions=("gpu",)),))


class Asked:
    """Two questions for a snapshot and one for a proof, what was sent, and the answers."""

    def __init__(self, *answers: SnapshotTaken | VerifyDone, for_s: float = 1.0) -> None:
        self.sent: list[Message] = []
        self.snapshots: list[Reply] = []
        self.proofs: list[Reply] = []
        self.questions = SiteQuestions(SITE, self.sent.append)
        self.questions.connected = True
        run_virtual(VirtualClock(), self._ask(answers, for_s))

    async def _ask(self, answers: tuple[SnapshotTaken | VerifyDone, ...], for_s: float) -> None:
        self.questions.ask_snapshot(self.snapshots.append)
        self.questions.ask_snapshot(self.snapshots.append)
        call = VerifyCall(site=SITE, user="ada", nodes=("n1",))
        self.questions.ask_proof(call, "vision", self.proofs.append)
        for answer in answers:
            self.questions.take(answer)
        await asyncio.sleep(for_s)


def errors(replies: list[Reply]) -> list[str]:
    return [reply.message for reply in replies if isinstance(reply, ErrorReply)]


def test_each_question_has_a_number_of_its_own() -> None:
    assert Asked().sent == [
        SnapshotAsk(ask_id=1),
        SnapshotAsk(ask_id=2),
        VerifyAsk(ask_id=3, user="ada", account="vision", nodes=("n1",)),
    ]


def test_an_answer_is_handed_to_whom_it_is_for_and_once() -> None:
    taken = SnapshotTaken(ask_id=2, snapshot=packed(SNAPSHOT))
    unasked = SnapshotTaken(ask_id=9, snapshot=packed(SNAPSHOT))
    asked = Asked(taken, taken, unasked, VerifyDone(ask_id=3, findings=()))
    replies = [r for r in asked.snapshots if isinstance(r, SnapshotReply)]
    assert [unpacked(r.snapshot) for r in replies] == [SNAPSHOT]
    assert asked.proofs == [VerifyReply(findings=())]


def test_a_site_that_can_show_none_says_why() -> None:
    asked = Asked(SnapshotTaken(ask_id=1, detail="a message of 99 bytes"))
    (message,) = errors(asked.snapshots)
    assert "a message of 99 bytes" in message


def test_a_site_that_is_not_connected_shows_nothing() -> None:
    sent: list[Message] = []
    replies: list[Reply] = []
    SiteQuestions(SITE, sent.append).ask_snapshot(replies.append)
    (reply,) = replies
    assert isinstance(reply, ErrorReply)
    assert (reply.message, reply.kind) == ("site alpine is not connected", ErrorKind.UNAVAILABLE)
    assert sent == []


def test_a_site_that_does_not_answer_in_time_is_waited_for_no_longer() -> None:
    assert errors(Asked(for_s=SNAPSHOT_S - 1.0).snapshots) == []
    asked = Asked(for_s=VERIFY_ANSWER_S + 1.0)
    assert errors(asked.snapshots) == ["site alpine showed no snapshot within 20 s"] * 2
    assert errors(asked.proofs) == [f"site alpine was not verified within {VERIFY_ANSWER_S:.0f} s"]


def test_who_waits_when_the_channel_breaks_is_answered_and_later_questions_too() -> None:
    asked = Asked()
    asked.questions.hung_up()
    assert errors(asked.snapshots) == ["the connection to site alpine broke"] * 2
    asked.questions.ask_snapshot(asked.snapshots.append)
    assert errors(asked.snapshots)[-1] == "site alpine is not connected"
