"""Two daemons on one log: whatever befalls the leader, only one acts, and nothing acked is lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from federator.config import load_config
from federator.daemon.daemon import Daemon
from federator.daemon.edges import CallDesk, DaemonEdges, Listening
from federator.daemon.effects import Effects
from federator.daemon.leader import TRY_S, Leadership
from federator.daemon.links import SiteLink
from federator.daemon.metrics.catalogue import as_metrics
from federator.daemon.standby import StandbyDesk
from federator.errors import LeadershipLost
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.message import Command
from federator.model.submission import Option, Submission
from federator.model.workload import SiteName
from federator.store.memory import MemoryLog, MemoryStore
from federator.wire.agent_protocol import ClientCall
from federator.wire.client_protocol import (
    Call,
    ErrorKind,
    ErrorReply,
    QueueCall,
    QueueReply,
    SubmitCall,
    SubmitReply,
)
from federator.wire.replies import Reply
from tests.fakes.counted import values_of
from tests.fakes.nowhere import Nowhere

LEASE_S = 3.0
CONFIG = """
federation: demo
store: "memory:"
socket: daemon.sock
regions: {west: {shared: /shared}}
sites: {alpine: {region: west, command: ["/bin/false"], partitions: [gpu]}}
tenants: {nlp: {quota: {gpus: 8}, users: [ada]}}
"""


def submit(key: str) -> SubmitCall:
    options = (Option(name="job-name", value="t"), Option(name="gres", value="gpu:1"))
    submission = Submission(components=(options,), script="#!/bin/sh\n", work_dir="/")
    return SubmitCall(submission=submission, key=key)


class Socket:
    def __init__(self) -> None:
        self.open = True

    def close(self) -> None:
        self.open = False


class Host:
    """One daemon, and whoever asks it."""

    def __init__(self, folder: Path, clock: VirtualClock, log: MemoryLog) -> None:
        """Begin to run."""
        folder.mkdir()
        path = folder / "federation.yaml"
        path.write_text(CONFIG)
        self.clock = clock
        self.desk: CallDesk | None = None
        self.socket = Socket()
        self.before: Callable[[str], Awaitable[None]] | None = None  # a call of the store
        self.after: Callable[[str], Awaitable[None]] | None = None
        self.slow_s = 0.0  # this host's clock
        edges = DaemonEdges(
            wall=lambda: clock() - self.slow_s,
            monotonic=clock,
            transport_of=lambda _site: Nowhere(),
            act=self._act,
            listen=self._listen,
        )
        self.daemon = Daemon(load_config(path), MemoryStore(log), edges=edges)
        self.run = asyncio.create_task(self.daemon.run())

    async def _act(self, call: Callable[..., Any], *arguments: object) -> Any:
        if self.before is not None:
            await self.before(call.__name__)
        answer = call(*arguments)
        if self.after is not None:
            await self.after(call.__name__)
        return answer

    async def _listen(self, desk: CallDesk, _path: Path) -> Listening:
        self.desk, self.socket = desk, Socket()
        return self.socket

    @property
    def leads(self) -> bool:
        """As its users see it."""
        return self.daemon.term is not None and self.desk is self.daemon.term._api

    def ask(self, call: Call) -> list[Reply]:
        """Answers come into the list."""
        assert self.desk is not None
        answers: list[Reply] = []
        message = ClientCall(call_id=1, user="ada", call=call)
        self.desk.take(message, SiteName("alpine"), answers.append)
        return answers

    def keys(self) -> set[str]:
        assert self.daemon.term is not None
        return set(self.daemon.term.federation.ledger.keys.id_of)


class World:
    """Two hosts; the first leads."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self._log = MemoryLog(LEASE_S, self.clock)
        self._folder = folder

    async def start(self) -> tuple[Host, Host]:
        first = Host(self._folder / "one", self.clock, self._log)
        await asyncio.sleep(0.1)
        second = Host(self._folder / "two", self.clock, self._log)
        await asyncio.sleep(0.1)
        assert first.leads
        assert isinstance(second.desk, StandbyDesk)
        return first, second

    async def end(self, *hosts: Host) -> None:
        for host in hosts:
            host.daemon.stop()
            await host.run


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    async def deaf(_link: SiteLink) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(SiteLink, "run", deaf)
    return World(tmp_path)


@pytest.fixture
def effects(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Effects, float, Command]]:
    """Everything that any daemon carries out, and when."""
    done: list[tuple[Effects, float, Command]] = []
    as_ever = Effects.carry_out

    def carry_out(effects: Effects, command: Command) -> None:
        done.append((effects, asyncio.get_running_loop().time(), command))
        as_ever(effects, command)

    monkeypatch.setattr(Effects, "carry_out", carry_out)
    return done


@pytest.fixture
def unaware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody renews or looks after the lease: for a process that is stopped, time leaps."""

    async def stopped(_leadership: Leadership) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Leadership, "keep", stopped)


def test_a_standby_says_that_it_is_one_and_takes_over_from_a_leader_that_dies(
    world: World,
) -> None:
    async def script() -> None:
        first, second = await world.start()
        (answer,) = second.ask(submit("a key of mine"))
        assert isinstance(answer, ErrorReply)
        assert answer.kind is ErrorKind.UNAVAILABLE
        assert "this daemon is a standby" in answer.message
        (accepted,) = await settled(first.ask(submit("a key of mine")))
        first.run.cancel()  # without a word; the lease stays as it was
        first.daemon._store.close = lambda: None  # type: ignore[method-assign]
        died_s = world.clock()
        while not second.leads:
            await asyncio.sleep(0.01)
        assert world.clock() - died_s < LEASE_S + TRY_S + 0.1
        assert await settled(second.ask(submit("a key of mine"))) == [accepted]
        await world.end(second)

    run_virtual(world.clock, script())


def test_a_leader_that_is_told_to_stop_is_followed_at_once(world: World) -> None:
    async def script() -> None:
        first, second = await world.start()
        await world.end(first)
        await asyncio.sleep(TRY_S + 0.1)
        assert second.leads
        assert not first.socket.open
        await world.end(second)

    run_virtual(world.clock, script())


def test_a_standby_that_is_told_to_stop_stops_and_leads_nothing(world: World) -> None:
    async def script() -> None:
        first, second = await world.start()
        await world.end(second)
        assert second.daemon.term is None
        assert not second.socket.open
        await world.end(first)

    run_virtual(world.clock, script())


def test_each_term_has_a_greater_epoch_also_on_a_host_whose_clock_is_slow(world: World) -> None:
    async def script() -> None:
        first, second = await world.start()
        assert first.daemon.term is not None
        before = first.daemon.term.federation.ledger.epoch
        second.slow_s = 600.0
        await world.end(first)
        await asyncio.sleep(TRY_S + 0.1)
        assert second.daemon.term is not None
        assert second.daemon.term.federation.ledger.epoch > before
        await world.end(second)

    run_virtual(world.clock, script())


async def settled(answers: list[Reply]) -> list[Reply]:
    """The answers, when the turn that makes them has ended."""
    await asyncio.sleep(0.05)
    return answers


@pytest.mark.usefixtures("unaware")
@pytest.mark.parametrize("committed", [False, True])
def test_a_leader_that_is_stopped_in_a_commit_and_wakes_after_its_lease_does_nothing_more(
    world: World, committed: bool, effects: list[tuple[Effects, float, Command]]
) -> None:
    """Before the commit the log refuses it; after it, its effects are the next leader's to do."""
    stopped, wakes = asyncio.Event(), asyncio.Event()

    async def stop(call: str) -> None:
        if call == "append":
            stopped.set()
            await wakes.wait()

    async def script() -> None:
        first, second = await world.start()
        if committed:
            first.after = stop
        else:
            first.before = stop
        answers = first.ask(submit("a key of mine"))
        await stopped.wait()
        while not second.leads:
            await asyncio.sleep(0.1)
        done = len(effects)
        assert second.keys() == ({"ada:a key of mine"} if committed else set())
        wakes.set()
        with pytest.raises(LeadershipLost):
            await first.run
        assert answers == []
        assert not first.socket.open
        assert {e for e, _, _ in effects[done:]} <= {
            second.daemon.term and second.daemon.term._effects
        }
        first_id = await settled(second.ask(submit("a key of mine")))
        assert await settled(second.ask(submit("a key of mine"))) == first_id
        assert isinstance(first_id[0], SubmitReply)
        assert len(second.keys()) == 1
        await world.end(second)

    run_virtual(world.clock, script())


@pytest.mark.usefixtures("unaware")
def test_a_leader_whose_lease_is_over_answers_nothing_from_what_it_knew(world: World) -> None:
    async def script() -> None:
        first, second = await world.start()
        assert isinstance(first.ask(QueueCall())[0], QueueReply)
        while not second.leads:
            await asyncio.sleep(0.1)
        assert first.ask(QueueCall()) == []
        assert first.ask(submit("a key of mine")) == []
        first.daemon.stop()  # its turn finds out at the latest
        with pytest.raises(LeadershipLost):
            await first.run
        await world.end(second)

    run_virtual(world.clock, script())


def test_a_leader_that_cannot_reach_its_log_ends_with_its_lease(
    world: World, effects: list[tuple[Effects, float, Command]]
) -> None:
    """Its sites hear no more of it from then on, also those that the next leader cannot reach."""

    def hangs() -> None:
        pytest.fail("a store that does not answer was asked again")

    async def script() -> None:
        first, second = await world.start()

        async def silent(_call: str) -> None:
            await asyncio.Event().wait()

        first.before, since_s = silent, world.clock()
        first.daemon._store.close = hangs  # type: ignore[method-assign]
        with pytest.raises(LeadershipLost, match="the lease ran out"):
            await first.run
        assert world.clock() - since_s <= LEASE_S
        assert all(at_s <= since_s + LEASE_S for _, at_s, _ in effects)
        while not second.leads:
            await asyncio.sleep(0.1)
        assert world.clock() - since_s < LEASE_S + TRY_S + 0.2
        await world.end(second)

    run_virtual(world.clock, script())


def test_the_socket_of_a_leader_on_the_same_host_is_left_to_it(tmp_path: Path) -> None:
    """Two daemons with one configuration: users must go on reaching the one that leads."""
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG)
    config, clock, log = load_config(path), VirtualClock(), MemoryLog(LEASE_S)
    heard: list[CallDesk] = []

    async def listen(desk: CallDesk, _path: Path) -> Listening:
        heard.append(desk)
        return Socket()

    async def act(call: Callable[..., Any], *arguments: object) -> Any:
        return call(*arguments)

    async def script() -> None:
        edges = DaemonEdges(
            wall=clock,
            monotonic=clock,
            transport_of=lambda _site: Nowhere(),
            act=act,
            listen=listen,
        )
        MemoryStore(log).lead(0)
        log.leads_until_s = 1.0
        standby = Daemon(config, MemoryStore(log), edges=edges)
        running = asyncio.create_task(standby.run())
        await asyncio.sleep(1.0)
        assert heard == []
        standby.stop()
        await running

    config.socket.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as leaders:
        leaders.bind(str(config.socket))
        leaders.listen()
        run_virtual(clock, script())


def test_a_standby_shows_in_its_metrics_that_it_is_one_until_it_leads(world: World) -> None:
    async def script() -> None:
        first, second = await world.start()
        await asyncio.sleep(1.0)

        def told(host: Host, name: str) -> float:
            return values_of(as_metrics(host.daemon.metrics()), f"federator_{name}").get((), -1)

        assert (told(first, "leader"), told(first, "standby_up_to_date")) == (1, -1)
        assert (told(second, "leader"), told(second, "standby_up_to_date")) == (0, 1)
        epoch = told(first, "epoch")
        first.daemon.stop()
        await asyncio.sleep(LEASE_S + 2.0)
        assert told(second, "leader") == 1
        assert told(second, "epoch") > epoch
        await world.end(first, second)

    run_virtual(world.clock, script())
