"""A site may do what it likes to its channel; the daemon lives on and tells the core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from federator.daemon import links
from federator.daemon.links import SiteLink
from federator.daemon.site_links import SiteLinks
from federator.errors import SiteUnavailable
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.message import (
    AttemptsShown,
    Observation,
    Remembered,
    SiteDown,
    SiteSent,
    SiteUp,
)
from federator.model.site import Node, Snapshot
from federator.model.site_message import CancelOrder, Report
from federator.model.tagged import Message
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    ClientCall,
    Hello,
    NodesAsk,
    NodesTaken,
    Ping,
    Pong,
    RecoverDone,
    RememberedAttempt,
    SignalTo,
    SnapshotAsk,
    SnapshotTaken,
    Trouble,
    Welcome,
    from_agent_decoder,
    packed,
    to_agent_decoder,
    unpacked,
)
from federator.wire.client_protocol import (
    BANNER,
    ErrorReply,
    NodesReply,
    SitesCall,
    SitesReply,
    SnapshotReply,
    frame,
)
from federator.wire.framing import ByteReader
from federator.wire.login_nodes import LoginNodes
from federator.wire.replies import Reply
from federator.wire.transport import Channel
from tests.fakes.build import attempt
from tests.fakes.frames import FROM_AGENT

SITE = SiteName("alpine")
WELCOME = Welcome(
    protocol=PROTOCOL_VERSION,
    epoch=1,
    site=SITE,
    partitions=("gpu",),
    poll_interval_s=1.0,
    federation="main",
)
HELLO = Hello(protocol=PROTOCOL_VERSION, site=SITE, slurm_version="24.11.5")


class FakeChannel:
    """The daemon's end of a channel whose other end the test plays."""

    def __init__(self, greeting: bytes = BANNER) -> None:
        self.stream = asyncio.StreamReader()
        self.stream.feed_data(greeting)
        self.reader: ByteReader = self.stream
        self.written: list[bytes] = []
        self.writes = 0  # of any number of frames
        self.broken = False
        self.closed = False

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.stream.feed_data(frame(message))

    def write(self, data: bytes) -> None:
        if self.broken:
            raise BrokenPipeError("Channel not open for sending")
        self.written.append(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.writes += 1
        for part in parts:
            self.write(part)

    async def drain(self) -> None: ...

    async def close(self) -> None:
        self.closed = True

    def last_words(self) -> str:
        return "out of cheese"


class FakeTransport:
    """Opens the channels that the test has prepared, one after the other."""

    def __init__(self, channels: list[FakeChannel]) -> None:
        self.channels = channels

    async def open(self) -> Channel:
        if not self.channels:
            raise SiteUnavailable("nobody there")
        return self.channels.pop(0)

    async def probe(self) -> None: ...


class Played:
    """A link, what it observed, and the calls that came over it."""

    def __init__(self, *channels: FakeChannel) -> None:
        self.began_s = asyncio.get_running_loop().time()
        self.seen: list[Observation] = []
        self.link = SiteLink(SITE, FakeTransport(list(channels)), WELCOME, self.seen.append, self)

    def take(self, call: ClientCall, origin: SiteName, answer: Callable[[Reply], None]) -> None:
        assert (call.user, origin) == ("ada", SITE)
        answer(SitesReply(sites=()))

    async def running(self, script: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self.link.run())
        await script
        assert not task.done(), "a link never ends by itself"
        task.cancel()


def play(script: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(VirtualClock(), script())


def kinds(seen: list[Observation]) -> list[str]:
    return [type(o).__name__ for o in seen]


def test_a_site_is_up_once_its_agent_has_introduced_itself() -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(HELLO, Report(attempts=(), complete=True))
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        assert kinds(played.seen) == ["SiteUp", "SiteSent"]
        numbered = msgspec.structs.replace(WELCOME, channel=int(played.began_s * 1000))
        assert channel.written[0] == frame(numbered)
        assert frame(Ping()) in channel.written

    play(script)


SHARES = msgspec.structs.replace(HELLO, answers=("tenure",), host="login1", folder_id="a")


def with_standby(*channels: FakeChannel) -> Played:
    played = Played(*channels)
    played.link.has_standby = lambda: True
    return played


def test_a_site_whose_login_node_falls_silent_is_served_by_the_other_one_within_5_s() -> None:
    async def script() -> None:
        one, two = FakeChannel(), FakeChannel()
        one.say(SHARES, Report(attempts=(), complete=True))
        two.say(msgspec.structs.replace(SHARES, host="login2"))
        played = with_standby(one, two)
        task = asyncio.create_task(played.running(asyncio.sleep(30.0)))
        await asyncio.sleep(1.0)
        assert played.link.login_node == "login1"
        one.say(Pong())
        await asyncio.sleep(4.0)
        assert (played.link.login_node, one.closed) == ("login2", True)
        assert isinstance(up := played.seen[-1], SiteUp)
        assert up.login_node == "login2"
        await task

    play(script)


def by_login_nodes(*channels: FakeChannel) -> tuple[Played, FakeTransport]:
    """A link whose site has two login nodes, with channels by whichever is asked."""
    way = FakeTransport(list(channels))
    played = Played()
    played.link = SiteLink(SITE, LoginNodes([way, way]), WELCOME, played.seen.append, played)
    played.link.has_standby = lambda: True
    return played, way


def test_an_agent_at_the_other_login_node_waits_by_when_silence_counts_as_a_loss() -> None:
    async def script() -> None:
        one, two = FakeChannel(), FakeChannel()
        one.say(SHARES, Report(attempts=(), complete=True))
        two.say(msgspec.structs.replace(SHARES, host="login2"))
        played, way = by_login_nodes(one, two)
        task = asyncio.create_task(played.running(asyncio.sleep(10.0)))
        await asyncio.sleep(links.STANDBY_SILENCE_S - 0.5)
        assert (way.channels, two.written, kinds(played.seen)[-1]) == ([], [], "SiteSent")
        await asyncio.sleep(1.0)
        assert played.link.login_node == "login2"
        assert isinstance(to_agent_decoder.decode(two.written[0][4:]), Welcome)
        await task

    play(script)


def test_a_site_that_speaks_again_keeps_its_channel_and_the_other_is_let_go() -> None:
    async def script() -> None:
        one, two, three = FakeChannel(), FakeChannel(), FakeChannel()
        one.say(SHARES, Report(attempts=(), complete=True))
        played, way = by_login_nodes(one, two, three)
        task = asyncio.create_task(played.running(asyncio.sleep(20.0)))
        for _ in range(4):  # it is slow each time, and the machine is not made busier by that
            await asyncio.sleep(links.STANDBY_SILENCE_S - 0.5)
            one.say(Pong())
        await asyncio.sleep(links.STANDBY_PING_S)
        assert (two.written, two.closed, way.channels) == ([], True, [three])
        assert (one.closed, played.link.connections) == (False, 1)
        await task

    play(script)


class Answering(FakeChannel):
    """Its agent answers each ping."""

    def write(self, data: bytes) -> None:
        super().write(data)
        if data == frame(Ping()):
            asyncio.get_running_loop().call_later(0.01, self.say, Pong())


@pytest.mark.parametrize(
    "begins_s",
    [
        0.7,
        links.STANDBY_PING_S + 0.005,  # the answer is under way
        2 * links.STANDBY_PING_S + 5e-7,  # in the turn of the event loop in which a ping is sent
    ],
)
def test_a_long_turn_of_the_daemon_itself_is_no_silence_of_a_site(begins_s: float) -> None:
    clock = VirtualClock()

    async def script() -> None:
        one, two = Answering(), FakeChannel()
        one.say(SHARES, Report(attempts=(), complete=True))
        played, way = by_login_nodes(one, two)
        task = asyncio.create_task(played.running(asyncio.sleep(10.0)))
        loop = asyncio.get_running_loop()
        loop.call_at(played.began_s + begins_s, loop.call_soon, clock.advance, 2.0)
        await asyncio.sleep(5.0)
        assert (way.channels, played.link.connections) == ([two], 1)
        await task

    run_virtual(clock, script())


def test_a_link_that_stops_opens_no_channel_to_another_login_node() -> None:
    async def script() -> None:
        one, two = FakeChannel(), FakeChannel()
        one.say(SHARES, Report(attempts=(), complete=True))
        played, way = by_login_nodes(one, two)
        task = asyncio.create_task(played.running(asyncio.sleep(links.STANDBY_SILENCE_S - 0.3)))
        await asyncio.sleep(links.STANDBY_PING_S / 2)
        played.link.stop()
        await task  # it is cancelled only now
        assert way.channels == [two]

    play(script)


def test_channels_of_a_site_are_numbered_so_that_the_later_has_the_greater() -> None:
    async def script() -> None:
        channels = [FakeChannel() for _ in range(3)]
        for each in channels:
            each.say(SHARES)
            each.stream.feed_eof()
        await with_standby(*channels).running(asyncio.sleep(5.0))
        welcomes = [to_agent_decoder.decode(each.written[0][4:]) for each in channels]
        numbers = [each.channel for each in welcomes if isinstance(each, Welcome)]
        assert len(numbers) == 3
        assert numbers == sorted(set(numbers))

    play(script)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (msgspec.structs.replace(SHARES, folder_id="b", host="login2"), "state_dir at login2"),
        (msgspec.structs.replace(SHARES, answers=()), "does not know of several login nodes"),
        (msgspec.structs.replace(SHARES, other_folder=True), "state_dir at login1 is a copy"),
    ],
    ids=["another folder", "an earlier release", "a copy"],
)
def test_a_login_node_that_does_not_share_the_site_s_memory_serves_nobody(
    other: Hello, says: str
) -> None:
    async def script() -> None:
        one, two = FakeChannel(), FakeChannel()
        one.say(SHARES, Report(attempts=(), complete=True))
        one.stream.feed_eof()
        two.say(other)
        played = with_standby(one, two)
        with capture_logs() as logs:
            await played.running(asyncio.sleep(5.0))
        assert kinds(played.seen) == ["SiteUp", "SiteSent", "SiteDown"]
        assert any(says in str(line.get("detail")) for line in logs)

    play(script)


def test_the_agent_of_another_login_node_is_told_which_channel_served_last() -> None:
    async def script() -> None:
        channels = [FakeChannel() for _ in range(3)]
        for each, hello in zip(channels, (SHARES, HELLO, SHARES), strict=True):
            each.say(hello)  # the second is refused, and served nobody
            each.stream.feed_eof()
        await with_standby(*channels).running(asyncio.sleep(5.0))
        first, *later = (to_agent_decoder.decode(each.written[0][4:]) for each in channels)
        assert isinstance(first, Welcome)
        assert (first.served_channel, first.served_host) == (0, "")
        for welcome in later:
            assert isinstance(welcome, Welcome)
            assert (welcome.served_channel, welcome.served_host) == (first.channel, "login1")

    play(script)


def test_a_link_that_is_made_anew_knows_the_folder_that_its_site_had() -> None:
    async def script() -> None:
        one, two = FakeChannel(), FakeChannel()
        one.say(SHARES, Report(attempts=(), complete=True))
        two.say(msgspec.structs.replace(SHARES, folder_id="b", host="login2"))
        waiting, seen = [Played(one), with_standby(two)], []

        def make(_site: SiteName) -> SiteLink:
            played = waiting.pop(0)
            seen.append(played.seen)
            return played.link

        kept = SiteLinks(make)
        kept.begin([SITE])
        await asyncio.sleep(1.0)
        kept.renew([SITE], [SITE])  # a reload has given it a standby
        with capture_logs() as logs:
            await asyncio.sleep(1.0)
        kept.stop()
        assert [kinds(each) for each in seen] == [["SiteUp", "SiteSent"], ["SiteDown"]]
        assert any("state_dir at login2" in str(line.get("detail")) for line in logs)

    play(script)


@pytest.mark.parametrize("host", ["", "a b", "-x", "x" * 65, "\x1b[2J"])
def test_a_login_node_s_name_that_could_be_none_is_not_shown(host: str) -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(msgspec.structs.replace(HELLO, host=host))
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        assert (played.link.connections, played.link.login_node) == (1, "")

    play(script)


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("1.2.0", "1.2.0"),
        ("0.1.0+g94fdc7a", "0.1.0+g94fdc7a"),
        ("", ""),
        ("a b", ""),
        ("\x1b[2J", ""),
    ],
)
def test_of_an_agent_s_release_only_what_could_be_one_is_told(said: str, known: str) -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(msgspec.structs.replace(HELLO, release=said))
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        (up,) = [seen for seen in played.seen if isinstance(seen, SiteUp)]
        assert up.release == known

    play(script)


def test_the_age_of_the_last_sweep_is_what_the_agent_said_and_grows_when_it_is_gone() -> None:
    async def script() -> None:
        channel, again = FakeChannel(), FakeChannel()
        for each in (channel, again):
            each.say(HELLO, Report(attempts=(), complete=True))
        played = Played(channel, again)
        running = asyncio.create_task(played.running(asyncio.sleep(60.0)))
        await asyncio.sleep(1.0)
        assert (played.link.connections, played.link.sweep_age_s()) == (1, 1.0)  # nothing was said
        channel.say(Pong(sweep_age_s=-1.0))  # an older release
        await asyncio.sleep(1.0)
        assert played.link.sweep_age_s() == 2.0
        channel.say(Pong(sweep_age_s=0.5))
        await asyncio.sleep(1.0)
        assert played.link.sweep_age_s() == 1.5
        await asyncio.sleep(20.0)  # it fell silent, and the next one as well
        assert played.link.connections == 2
        assert played.link.sweep_age_s() == 21.5
        await running

    play(script)


@pytest.mark.parametrize(
    ("answers", "known"),
    [((), (False, False)), (("usage",), (True, False)), (("usage", "usage-end"), (True, True))],
)
def test_an_agent_says_whether_it_measures_and_knows_ends(
    answers: tuple[str, ...], known: tuple[bool, bool]
) -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(msgspec.structs.replace(HELLO, answers=answers))
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        assert (played.link.can_measure(), played.link.can_measure(just_ended=True)) == known

    play(script)


def test_an_agent_is_asked_what_it_says_that_it_answers() -> None:
    async def script() -> None:
        told: list[Reply] = []
        channel = FakeChannel()
        channel.say(msgspec.structs.replace(HELLO, answers=("nodes",)))
        played = Played(channel)
        running = asyncio.create_task(played.running(asyncio.sleep(2.0)))
        await asyncio.sleep(1.0)
        played.link.questions.ask_nodes(("gpu",), told.append)
        await asyncio.sleep(0.1)  # it leaves at the end of the turn
        assert frame(NodesAsk(ask_id=1, partitions=("gpu",))) in channel.written
        channel.say(NodesTaken(ask_id=1, nodes=b"listed"))
        played.link.questions.ask_signal(("ada", 7), "USR1", SignalTo.ALL, told.append)
        await running
        refused, listed = told
        assert isinstance(refused, ErrorReply)
        assert "earlier build" in refused.message
        assert isinstance(listed, NodesReply)
        assert listed.sites[0].nodes == b"listed"

    play(script)


@pytest.mark.parametrize("name", ["bids", "launched", "launch_declined", "absent", "report"])
def test_what_a_site_sends_reaches_the_core_as_it_is(name: str) -> None:
    sent = from_agent_decoder.decode(FROM_AGENT[name])

    async def script() -> None:
        channel = FakeChannel()
        channel.say(HELLO, sent)
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        _, seen = played.seen
        assert isinstance(seen, SiteSent)
        assert (seen.site, seen.message) == (SITE, sent)

    play(script)


@pytest.mark.parametrize(("federation", "counts"), [("main", 1), ("", 1), ("staging", 0)])
def test_an_epoch_of_another_federation_says_nothing_of_our_log(
    federation: str, counts: int
) -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(msgspec.structs.replace(HELLO, last_epoch=1, federation=federation))
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        (up,) = played.seen
        assert isinstance(up, SiteUp)
        assert up.last_epoch == counts

    play(script)


def test_a_silent_site_is_down_and_is_tried_again() -> None:
    async def script() -> None:
        first, second = FakeChannel(), FakeChannel()
        first.say(HELLO)
        second.say(HELLO)
        played = Played(first, second)
        await played.running(asyncio.sleep(links.SILENCE_S + 2.0))
        assert kinds(played.seen) == ["SiteUp", "SiteDown", "SiteUp"]

    play(script)


@pytest.mark.parametrize(
    "noise", [b"\xff" * 8, b"\x00\x00\x00\x01\xc1", frame(WELCOME)], ids=["length", "type", "tag"]
)
def test_nonsense_from_a_site_takes_only_that_site_down(noise: bytes) -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(HELLO)
        channel.stream.feed_data(noise)
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        assert kinds(played.seen) == ["SiteUp", "SiteDown"]

    play(script)


def test_a_write_to_a_channel_that_has_just_broken_is_dropped() -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(HELLO)
        played = Played(channel)

        async def break_it() -> None:
            await asyncio.sleep(0.5)
            channel.broken = True
            played.link.send(Ping())

        await played.running(break_it())

    play(script)


def cancels(count: int) -> list[CancelOrder]:
    return [CancelOrder(attempt=attempt(k + 1), user="ada") for k in range(count)]


def test_messages_of_one_turn_leave_together_and_in_order() -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(HELLO)
        played = Played(channel)

        async def send_three() -> None:
            await asyncio.sleep(0.5)
            del channel.written[:]
            before = channel.writes
            for order in cancels(3):
                played.link.send(order)
            assert channel.written == []
            await asyncio.sleep(0.1)
            assert channel.written == list(map(frame, cancels(3)))
            assert channel.writes == before + 1

        await played.running(send_three())

    play(script)


def test_messages_of_one_turn_do_not_wait_for_each_other_where_they_are_many() -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(HELLO)
        played = Played(channel)

        async def send_many() -> None:
            await asyncio.sleep(0.5)
            for order in cancels(2_000):
                played.link.send(order)
            left_at_once = len(channel.written)
            await asyncio.sleep(0.1)
            assert 0 < left_at_once < len(channel.written)
            assert channel.written[-2_000:] == list(map(frame, cancels(2_000)))

        await played.running(send_many())

    play(script)


def test_what_was_sent_leaves_before_the_link_stops_only_if_it_is_flushed() -> None:
    async def script(*, flushed: bool) -> None:
        channel = FakeChannel()
        channel.say(HELLO)
        played = Played(channel)

        async def send_and_stop() -> None:
            await asyncio.sleep(0.5)
            played.link.send(cancels(1)[0])
            if flushed:
                played.link.flush()
            played.link.stop()

        await played.running(send_and_stop())
        assert (frame(cancels(1)[0]) in channel.written) is flushed

    play(partial(script, flushed=True))
    play(partial(script, flushed=False))


def test_the_last_words_of_an_agent_that_cannot_start_are_told() -> None:
    async def script() -> None:
        channel = FakeChannel(greeting=b"Welcome to alpine\n")
        channel.stream.feed_eof()
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        (down,) = played.seen
        assert isinstance(down, SiteDown)
        assert "out of cheese" in down.detail

    play(script)


def test_trouble_is_told_once_and_ends_with_a_report() -> None:
    async def script() -> None:
        channel = FakeChannel()
        trouble = Trouble(detail="slurmctld does not answer")
        channel.say(HELLO, trouble, trouble, Report(attempts=(), complete=True))
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        assert kinds(played.seen) == ["SiteUp", "SiteDown", "SiteUp", "SiteSent"]

    play(script)


def test_a_call_of_a_researcher_is_answered_over_the_same_channel() -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(HELLO, ClientCall(call_id=7, user="ada", call=SitesCall()))
        played = Played(channel)
        await played.running(asyncio.sleep(1.0))
        assert any(b"call_answer" in data for data in channel.written)

    play(script)


def test_an_answer_that_comes_after_the_channel_broke_goes_to_nobody() -> None:
    """The next agent counts its calls from one again: another user would get the answer."""

    class Late(Played):
        def take(self, call: ClientCall, origin: SiteName, answer: Callable[[Reply], None]) -> None:
            assert (call.user, origin) == ("ada", SITE)
            self.answer = answer

    async def script() -> None:
        first, second = FakeChannel(), FakeChannel()
        first.say(HELLO, ClientCall(call_id=1, user="ada", call=SitesCall()))
        second.say(HELLO)
        played = Late(first, second)

        async def whole() -> None:
            await asyncio.sleep(1.0)
            first.stream.feed_eof()
            await asyncio.sleep(5.0)
            assert kinds(played.seen) == ["SiteUp", "SiteDown", "SiteUp"]
            played.answer(SitesReply(sites=()))

        await played.running(whole())
        assert not any(b"call_answer" in data for data in (*first.written, *second.written))

    play(script)


def test_a_greeting_that_cannot_be_read_closes_the_channel() -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.stream.feed_data(b"\x00\x00\x00\x01\xc1")
        played = Played(channel)
        await played.running(asyncio.sleep(0.4))
        assert channel.closed

    play(script)


SNAPSHOT = Snapshot(site=SITE, now_s=5.0, nodes=(Node(name="n1", partitions=("gpu",)),))


def test_a_snapshot_comes_over_the_channel_and_who_waits_yet_is_told_that_it_broke() -> None:
    replies: list[Reply] = []

    async def whole() -> None:
        channel = FakeChannel()
        played = Played(channel)

        async def script() -> None:
            channel.say(HELLO)
            await asyncio.sleep(1.0)
            played.link.questions.ask_snapshot(replies.append)
            played.link.questions.ask_snapshot(replies.append)
            channel.say(SnapshotTaken(ask_id=2, snapshot=packed(SNAPSHOT)))
            await asyncio.sleep(1.0)
            channel.stream.feed_eof()
            await asyncio.sleep(1.0)

        await played.running(script())
        assert [frame(SnapshotAsk(ask_id=k)) in channel.written for k in (1, 2)] == [True, True]

    play(whole)
    there, broken = replies
    assert isinstance(there, SnapshotReply)
    assert unpacked(there.snapshot) == SNAPSHOT
    assert isinstance(broken, ErrorReply)
    assert broken.message == "the connection to site alpine broke"


def test_a_site_tells_only_of_attempts_that_it_was_asked_about() -> None:
    async def script() -> None:
        channel = FakeChannel()
        channel.say(HELLO)
        played = Played(channel)
        asked, other = (AttemptId(workload=WorkloadId(2**32 + n), attempt=1) for n in range(2))

        async def talk() -> None:
            await asyncio.sleep(1)
            played.link.recall.ask((asked,))
            kept = tuple(
                RememberedAttempt(attempt=attempt, user="ada", void=True)
                for attempt in (asked, other)
            )
            for _ in range(2):
                channel.say(RecoverDone(ask_id=0, kept=kept, last=True))
            await asyncio.sleep(1)

        await played.running(talk())
        shown = [seen for seen in played.seen if isinstance(seen, AttemptsShown)]
        told = Remembered(attempt=asked, user="ada", void=True)
        assert shown == [AttemptsShown(site=SITE, attempts=(told,))]

    run_virtual(VirtualClock(), script())


def test_the_log_says_once_why_a_site_is_away_and_again_when_the_reason_changes() -> None:
    async def script() -> None:
        silent, other = FakeChannel(), FakeChannel()
        silent.say(HELLO, Report(attempts=(), complete=True))
        silent.stream.feed_eof()
        other.say(msgspec.structs.replace(HELLO, site="baker"))
        other.stream.feed_eof()
        played = Played(silent, other)
        with capture_logs() as said:
            await played.running(asyncio.sleep(600.0))
        events = [line["event"] for line in said]
        assert events == ["site_up", "site_down", "site_down", "site_down"]
        ended, wrong, absent = (line["detail"] for line in said[1:])
        assert "the agent ended" in ended
        assert "expected the agent of alpine" in wrong
        assert "nobody there" in absent

    play(script)
