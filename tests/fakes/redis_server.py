"""A real redis-server of a test's own, on a Unix socket in its folder."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType

from redis import Redis

DURABLE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class RedisServer:
    """Starts at once; ready when made.

    Args:
        folder: for its socket and files; what is there already is its log.
        primary: the one that this is a replica of.
        settings: of redis.conf, beside ``DURABLE``.
    """

    def __init__(
        self,
        folder: Path,
        primary: RedisServer | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder, self.primary, self.settings = folder, primary, settings
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.start()

    @property
    def socket(self) -> str:
        return str(self.folder / "redis.sock")

    @property
    def url(self) -> str:
        return f"redis+unix://{self.socket}"

    def start(self) -> None:
        named = {
            "dir": str(self.folder),
            "unixsocket": self.socket,
            "bind": "127.0.0.1",
            "port": str(self.port),
            "save": "",
            "logfile": "",
            **DURABLE,
            "repl-diskless-sync-delay": "0",
            **self.settings,
        }
        if self.primary is not None:
            named["replicaof"] = f"127.0.0.1 {self.primary.port}"
        argv = [
            "redis-server",
            *(word for k, v in named.items() for word in (f"--{k}", *(v.split() or [""]))),
        ]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.await_line("Ready to accept connections")
        if self.primary is not None:
            with closing(Redis(port=self.primary.port)) as client:
                client.set("replica", "is there")
                assert client.wait(1, 10_000) == 1

    def await_line(self, words: str) -> None:
        said = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said.append(line)
            if words in line:
                return
        raise AssertionError("".join(said))

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Without warning; again is harmless."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class RedisSentinel:
    """Watches one primary, alone, and is quick to promote its replica."""

    def __init__(
        self,
        folder: Path,
        primary: RedisServer,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        folder.mkdir()
        self.port = free_port()
        named = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(folder), **settings}
        config = folder / "sentinel.conf"
        config.write_text(
            "".join(f"{name} {value}\n" for name, value in named.items())
            + f"sentinel monitor queue 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds queue 1000\n"
            "sentinel failover-timeout queue 2000\n"
        )
        argv = ["redis-server", str(config), "--sentinel"]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    def await_line(self, words: str) -> None:
        assert self._process.stdout is not None
        assert any(words in line for line in self._process.stdout)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class LossyProxy:
    """Hands bytes on to a server, and loses the first reply to a request that has ``word`` in it.

    The connection is broken then.
    """

    def __init__(self, server: RedisServer, word: bytes) -> None:
        self._server, self._word = server, word
        self._lost = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._server.port))
                loses = threading.Event()
                for way in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._hand_on, args=(*way, loses), daemon=True).start()

    def _hand_on(
        self, source: socket.socket, sink: socket.socket, asks: bool, loses: threading.Event
    ) -> None:
        with suppress(OSError):
            while found := source.recv(1 << 16):
                if asks and self._word in found and not self._lost.is_set():
                    self._lost.set()
                    loses.set()
                elif not asks and loses.is_set():
                    break
                sink.sendall(found)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])
