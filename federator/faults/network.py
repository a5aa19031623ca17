"""Channels between daemon and agents whose bytes come in order, late or never.

As with SSH over TCP nothing is doubled or overtaken within one direction of one channel. A network
may hold bytes back, and hand them over when it has healed, to a channel that one end has given up.
That a frame comes twice cannot happen to a channel; it is tried all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from federator.errors import SiteUnavailable
from federator.faults.process import NOBODY, Process, later
from federator.wire.agent_protocol import Ping
from federator.wire.client_protocol import frame
from federator.wire.framing import ByteReader
from federator.wire.transport import Channel

CONNECT_S: Final = 10.0  # a network that does not answer
_PING: Final = frame(Ping())
_PONG: Final = b"\xa4type\xa4pong"  # the tag, which comes first


def _is_idle(data: bytes) -> bool:
    """Tell whether it only keeps the channel alive."""
    return data == _PING or (len(data) < 40 and _PONG in data)


class Network:
    """Between the daemon's host and one site.

    Args:
        latency: how long the next bytes take, in seconds.
        tell: notes what struck: a word, and what it was.
    """

    def __init__(self, latency: Callable[[], float], tell: Callable[[str], None]) -> None:
        self.latency = latency
        self.tell = tell
        self.holds_down = False  # what goes to the site waits
        self.holds_up = False  # what comes from it
        self.on_held: Callable[[], None] | None = None  # told when something is held back
        self.no_way_out = False  # nobody gets through anew from the site
        self.slow_s = 0.0
        self.said_slow = False  # in this spell
        self.doubles = ""  # "down", "up": the next frame comes twice
        self.lines: list[Line] = []

    @property
    def cut(self) -> bool:
        """Nobody gets through anew."""
        return self.holds_down or self.holds_up

    def heal(self, *, lose: bool) -> None:
        """Bytes get through again; those held back with ``lose`` no more."""
        self.holds_down = self.holds_up = False
        self.on_held = None
        self.slow_s = 0.0
        for line in list(self.lines):
            for wire in (line.down, line.up):
                wire.release(lose=lose)

    def holding(self) -> None:
        """Something is held back, or nobody gets through."""
        if self.on_held is not None:
            notify, self.on_held = self.on_held, None
            notify()

    def holds(self, *, down: bool) -> bool:
        return self.holds_down if down else self.holds_up


class Wire:
    """One direction of one channel.

    Args:
        network: its faults.
        down: towards the site.
    """

    def __init__(self, network: Network, *, down: bool) -> None:
        self.reader = asyncio.StreamReader(limit=2**20)
        self._network = network
        self._down = down
        self._free_at_s = 0.0
        self._held: list[bytes | None] = []
        self._sent_end = self._over = False
        self.ended = asyncio.Event()
        self.on_late: Callable[[], None] | None = None  # told of what comes when it is given up

    def send(self, data: bytes | None) -> None:
        """Bytes, or None: the end."""
        if self._sent_end or self._over:
            return
        self._sent_end = data is None
        now_s = asyncio.get_running_loop().time()
        arrives_s = now_s + self._network.latency() + self._network.slow_s
        self._free_at_s = max(self._free_at_s, arrives_s)
        if self._network.slow_s and not self._network.said_slow:
            self._network.said_slow = True
            self._network.tell("messages slow")
        loop = asyncio.get_running_loop()
        loop.call_at(self._free_at_s, self._arrive, data, context=NOBODY)
        direction = "down" if self._down else "up"
        if self._network.doubles == direction and data is not None and not _is_idle(data):
            self._network.doubles = ""
            self._network.tell(f"frame {direction} twice")
            loop.call_at(self._free_at_s, self._arrive, data, context=NOBODY)

    def _arrive(self, data: bytes | None) -> None:
        if self._over:
            return
        if self._held or self._network.holds(down=self._down):
            self._held.append(data)
            self._network.holding()
        elif data is None:
            self.end()
        else:
            if self.on_late is not None and not _is_idle(data):
                self.on_late()
            self.reader.feed_data(data)

    def release(self, *, lose: bool) -> None:
        """Let what was held back arrive, or break the channel."""
        held, self._held = self._held, []
        if lose and held:
            self.end()
        for data in held:
            self._arrive(data)

    def end(self) -> None:
        """The reader sees the end; what is on its way is lost."""
        if not self._over:
            self._over = True
            self.reader.feed_eof()
            self.ended.set()


class Line:
    """One channel, from the daemon to one agent's process."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.down = Wire(network, down=True)
        self.up = Wire(network, down=False)
        network.lines.append(self)

    def cut(self) -> None:
        """It breaks, with all that is on its way."""
        self.down.end()
        self.up.end()

    def forget(self) -> None:
        if self in self.network.lines:
            self.network.lines.remove(self)


class DaemonEnd:
    """A ``Channel`` of the daemon's; see ``wire.transport``."""

    def __init__(self, line: Line, process: Process) -> None:
        self._line = line
        self._process = process
        self.reader: ByteReader = line.up.reader
        process.when_dead(lambda: line.down.send(None))

    def write(self, data: bytes) -> None:
        if _is_idle(data):
            self._process.check()
            self._line.down.send(data)
            return
        self._process.point("send before")
        self._line.down.send(data)
        self._process.point("send after")

    def writelines(self, parts: Sequence[bytes]) -> None:
        """The process may die between any two parts."""
        for part in parts:
            self.write(part)

    async def drain(self) -> None:
        pass

    async def close(self) -> None:
        self._process.check()
        self.hang_up()

    def hang_up(self) -> None:
        """Close it once what was written has left."""
        self._line.down.on_late = lambda: self._line.network.tell("late frame of an old channel")
        self._line.down.send(None)

    def last_words(self) -> str:
        return ""


class AgentEnd:
    """The agent's end of a channel, to write to."""

    def __init__(self, line: Line, process: Process) -> None:
        self._line = line
        self._process = process
        self.reader = line.down.reader
        self.hang_up = line.down.end  # what SIGTERM makes of it
        process.when_dead(self.gone)

    def write(self, data: bytes) -> None:
        if _is_idle(data):
            self._process.check()
        else:
            self._process.point("say before")
        self._line.up.send(data)
        if not _is_idle(data):
            self._process.point("say after")

    def gone(self) -> None:
        """Its end of the channel is closed, as the kernel does when it dies."""
        self._line.up.send(None)
        later(60.0, self._line.forget)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginWay:
    """One login node of a site.

    ``start_agent``: as sshd does for a new channel. ``answers``: whether it does; else it stands
    still.
    """

    start_agent: Callable[[Line], None]
    answers: Callable[[], bool]


class LineTransport:
    """A ``Transport`` of the daemon's.

    Args:
        network: between here and the site.
        process: the daemon's.
        way: to one of its login nodes.
    """

    def __init__(self, network: Network, process: Process, way: LoginWay) -> None:
        self._network = network
        self._process = process
        self._way = way

    async def open(self) -> Channel:
        self._process.point("connect")
        if self._network.cut:
            self._network.holding()
            await asyncio.sleep(CONNECT_S)
            raise SiteUnavailable("no answer within 10 s")
        if not self._way.answers():
            await asyncio.sleep(CONNECT_S)
            raise SiteUnavailable("no answer within 10 s")
        await asyncio.sleep(2 * self._network.latency())
        line = Line(self._network)
        later(self._network.latency(), self._way.start_agent, line)
        return DaemonEnd(line, self._process)

    async def probe(self) -> None:
        pass
