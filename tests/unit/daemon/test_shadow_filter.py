"""Whatever is sent to a site in shadow mode is a question, or does not leave the daemon."""

from __future__ import annotations

import asyncio
from typing import get_args

import msgspec
import pytest
from structlog.testing import capture_logs

from federator.daemon.links import SiteLink
from federator.daemon.shadow_filter import is_order
from federator.daemon.site_links import SiteLinks
from federator.model.data_output import OutputPlace
from federator.model.site_message import Ask, CancelOrder, ShrinkOrder
from federator.model.site_mode import SiteMode
from federator.model.tagged import Message
from federator.model.workload import WorkloadId
from federator.wire.agent_protocol import (
    Admission,
    CallAnswer,
    CopyOrder,
    LimitAsk,
    NodesAsk,
    OutputOrder,
    Ping,
    PreemptOrder,
    RecoverAsk,
    SignalAsk,
    SignalTo,
    SnapshotAsk,
    TenantCap,
    TidyOrder,
    ToAgent,
    UsageAsk,
    VerifyAsk,
)
from federator.wire.client_protocol import ErrorReply, VerifyCall, frame
from federator.wire.replies import Reply
from tests.fakes.agent import order
from tests.fakes.build import attempt
from tests.unit.daemon.test_links import HELLO, SITE, WELCOME, FakeChannel, FakeTransport, play

PLACE = OutputPlace(
    id=WorkloadId(1), name="maps", version="1", domain="west", root="/data", path="ada/maps/1"
)
COPY = CopyOrder(
    name="web",
    version="1",
    domain="west",
    user="ada",
    host="",
    source="/a",
    root="/w",
    path="b",
    digest="sha256tree:00",
)
ORDERS: tuple[Message, ...] = (
    Ask(pass_id=1, requests=()),
    order(),
    PreemptOrder(attempt=attempt(), user="ada", site_job_id=7, grace_s=60.0),
    ShrinkOrder(attempt=attempt(), user="ada", components=(1,)),
    CancelOrder(attempt=attempt(), user="ada"),
    TidyOrder(shared="/s"),
    Admission(tenants=()),
    VerifyAsk(ask_id=1, user="ada"),
    SignalAsk(ask_id=1, user="ada", site_job_id=7, signal="USR1", to=SignalTo.ALL),
    LimitAsk(ask_id=1, user="ada", site_job_id=7, minutes=90),
    OutputOrder(place=PLACE, attempt=1, user="ada"),
    COPY,
)
QUESTIONS: tuple[Message, ...] = (
    VerifyAsk(ask_id=1),
    SnapshotAsk(ask_id=1),
    NodesAsk(ask_id=1, partitions=("gpu",)),
    UsageAsk(ask_id=1, jobs=()),
    RecoverAsk(ask_id=1),
    WELCOME,
    CallAnswer(call_id=1, reply=ErrorReply(message="no")),
    Ping(),
)


def leaves(message: Message, mode: SiteMode) -> bool:
    """A site in mode advisory is asked to bid: by the core, for ``--test-only`` jobs alone."""
    return mode.acts or (mode is SiteMode.ADVISORY and isinstance(message, Ask))


class Played:
    """A link to a site in a mode, and what was written to its agent."""

    def __init__(self, mode: SiteMode) -> None:
        self.channel = FakeChannel()
        self.channel.say(msgspec.structs.replace(HELLO, answers=("copy", "shadow", "signal")))
        welcome = msgspec.structs.replace(WELCOME, mode=mode.there)
        self.link = SiteLink(SITE, FakeTransport([self.channel]), welcome, lambda _: None, self)
        self.link.filter.mode = mode

    def take(self, *_call: object) -> None:
        """No user of this site calls."""

    async def up(self) -> asyncio.Task[None]:
        running = asyncio.create_task(self.link.run())
        await asyncio.sleep(0.5)
        return running

    async def sent(self, message: Message) -> bool:
        before = len(self.channel.written)
        self.link.send(message)
        self.link.send_frame(message, frame(message))
        await asyncio.sleep(0.01)
        return self.channel.written[before:] == [frame(message)] * 2


def test_a_kind_of_message_is_an_order_unless_it_is_known_to_be_harmless() -> None:
    assert {type(m) for m in (*ORDERS, *QUESTIONS)} == set(get_args(ToAgent))  # all that there are
    assert all(is_order(message) for message in ORDERS)
    assert not any(is_order(message) for message in QUESTIONS)


@pytest.mark.parametrize("mode", list(SiteMode))
def test_no_order_leaves_for_a_site_that_is_only_watched(mode: SiteMode) -> None:
    async def script() -> None:
        played = Played(mode)
        running = await played.up()
        for message in ORDERS:
            assert await played.sent(message) == leaves(message, mode), message
        for message in QUESTIONS:
            assert await played.sent(message), message
        running.cancel()

    with capture_logs() as logs:
        play(script)
    dropped = [line["order"] for line in logs if line["event"] == "shadow_order_dropped"]
    expected = [type(m).__name__ for m in ORDERS if not leaves(m, mode)]
    assert dropped == expected  # each kind once


def test_who_asks_for_probe_jobs_there_is_answered_at_once() -> None:
    async def script() -> None:
        replies: list[Reply] = []
        played = Played(SiteMode.SHADOW)
        running = await played.up()
        asked = VerifyCall(site=SITE, user="ada")
        played.link.questions.ask_proof(asked, "vision", replies.append)
        (reply,) = replies
        assert isinstance(reply, ErrorReply)
        assert "site alpine is in mode shadow" in reply.message
        assert "leave out --user" in reply.message
        running.cancel()

    play(script)


@pytest.mark.parametrize("mode", list(SiteMode))
def test_a_site_in_shadow_mode_is_not_chosen_to_copy_data_sets(mode: SiteMode) -> None:
    async def script() -> None:
        played = Played(mode)
        links = SiteLinks(lambda _: played.link)
        links.begin([SITE])
        await asyncio.sleep(0.5)
        assert links.copies(SITE) == mode.acts
        links.stop()

    play(script)


@pytest.mark.parametrize("mode", [SiteMode.OPT_IN, SiteMode.ENFORCED])
def test_in_mode_opt_in_a_sites_rules_get_no_limits(mode: SiteMode) -> None:
    figures = Admission(tenants=(TenantCap(name="bio", limit_gpus=8, used_gpus=2),))

    async def script() -> None:
        played = Played(mode)
        running = await played.up()
        before = len(played.channel.written)
        played.link.admission.renew(figures)
        await asyncio.sleep(0.01)
        expected = Admission(tenants=()) if mode is SiteMode.OPT_IN else figures
        assert played.channel.written[before:] == [frame(expected)]
        running.cancel()

    play(script)
