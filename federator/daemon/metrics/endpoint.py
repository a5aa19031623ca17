"""Serves /metrics over HTTP from a thread of its own.

The thread asks the daemon's loop for the metrics, at most once in ``KEPT_S`` whoever scrapes how
often, and writes them as text itself. A scraper that is slow, or says nothing, occupies one of
``CONNECTIONS`` for ``PATIENCE_S``; how fast requests are taken is bounded, too. So none of them
costs the loop more than one collection a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import threading
from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client.exposition import choose_encoder

from federator.config_listen import ListenAddress
from federator.daemon.metrics.catalogue import Collected
from federator.daemon.metrics.text import MetricsText
from federator.daemon.standby import is_served

KEPT_S: Final = 1.0
COLLECT_S: Final = 8.0  # Prometheus itself waits for 10 s
PATIENCE_S: Final = 5.0  # with a request, and with the reader of an answer
CONNECTIONS: Final = 16
PER_S: Final = 50.0  # connections that are taken
REQUEST_MOST: Final = 8192  # bytes
AGAIN_S: Final = 10.0  # after an address could not be had
SOCKET_MODE: Final = 0o660

log = structlog.get_logger()

Collect = Callable[[], list[Collected]]


class MetricsEndpoint:
    """One address at which metrics are served, until ``stop``.

    Args:
        address: to listen at; while it cannot be had it is tried again.
        collect: called in the loop that ``start`` is called in.
    """

    def __init__(self, address: ListenAddress, collect: Collect) -> None:
        self._address = address
        self._collect = collect
        self._loop = asyncio.get_running_loop()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._open = 0
        self._kept: tuple[float, list[Collected]] | None = None  # and until when
        self._writer = MetricsText()
        self._texts_of: list[Collected] | None = None
        self._texts: dict[str, tuple[bytes, str]] = {}  # by MIME type
        self._collecting: asyncio.Task[list[Collected]] | None = None

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Serve no more, from the next moment on; nothing is waited for."""
        self._ending.set()

    # ---- the thread ----

    def _run(self) -> None:
        said = ""
        while not self._ending.is_set():
            try:
                listening = _listen(self._address)
            except OSError as error:
                if str(error) != said:  # once for each kind of trouble
                    said = str(error)
                    log.warning("metrics_not_served", address=_shown(self._address), detail=said)
                self._ending.wait(AGAIN_S)
                continue
            said = ""
            log.info("metrics_served", address=_shown(self._address))
            with contextlib.closing(listening):
                asyncio.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        answering: set[asyncio.Task[None]] = set()
        while not self._ending.is_set():
            if self._open >= CONNECTIONS:
                await asyncio.sleep(1.0 / PER_S)
                continue
            try:
                async with asyncio.timeout(0.5):  # to see that it is to end
                    connection, _ = await loop.sock_accept(listening)
            except TimeoutError:
                continue
            except OSError as error:  # too many files are open, say
                log.warning("metrics_not_served", address="", detail=str(error))
                await asyncio.sleep(1.0)
                continue
            self._open += 1
            task = loop.create_task(self._answer(connection))
            answering.add(task)
            task.add_done_callback(answering.discard)
            await asyncio.sleep(1.0 / PER_S)

    async def _answer(self, connection: socket.socket) -> None:
        """Take one request, whatever it is, answer it and hang up."""
        try:
            connection.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=connection, limit=REQUEST_MOST)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                answer = await self._answer_to(request)
                async with asyncio.timeout(PATIENCE_S):
                    writer.write(answer)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
            finally:
                writer.transport.abort()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it does not speak HTTP, or has gone
        except Exception:  # a fault of ours must not end the thread
            log.exception("metrics_fault")
        finally:
            self._open -= 1

    async def _answer_to(self, request: bytes) -> bytes:
        first, _, rest = request.partition(b"\r\n")
        method, _, target = first.partition(b" ")
        path = target.split(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET\n", more="Allow: GET, HEAD\r\n")
        if path != b"/metrics":
            return _response("404 Not Found", b"see /metrics\n")
        try:
            body, kind = await self._text(_accept(rest))
        except TimeoutError:
            return _response("503 Service Unavailable", b"the daemon is busy\n")
        return _response("200 OK", b"" if method == b"HEAD" else body, kind)

    async def _text(self, accept: str) -> tuple[bytes, str]:
        """Written once for all who ask for the same format within ``KEPT_S``.

        Raises:
            TimeoutError: as ``_collected``.
        """
        found = await self._collected()
        _, kind = choose_encoder(accept)
        if self._texts_of is not found:
            self._texts_of, self._texts = found, {}
        if kind not in self._texts:
            self._texts[kind] = self._writer.of(found, accept)
        return self._texts[kind]

    async def _collected(self) -> list[Collected]:
        """The metrics of now, or those of a moment ago.

        Raises:
            TimeoutError: the loop is in a turn that takes longer than a scraper waits.
        """
        loop = asyncio.get_running_loop()
        if self._kept is not None and loop.time() < self._kept[0]:
            return self._kept[1]
        if self._collecting is None or self._collecting.done():
            self._collecting = loop.create_task(self._ask_loop())
        async with asyncio.timeout(COLLECT_S):
            return await asyncio.shield(self._collecting)

    async def _ask_loop(self) -> list[Collected]:
        async def collect() -> list[Collected]:
            return self._collect()

        asked = asyncio.run_coroutine_threadsafe(collect(), self._loop)
        found = await asyncio.wrap_future(asked)
        self._kept = asyncio.get_running_loop().time() + KEPT_S, found
        return found


def _accept(headers: bytes) -> str:
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"accept":
            return value.decode("latin-1").strip()
    return ""


def _response(status: str, body: bytes, kind: str = "text/plain", *, more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"X-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _listen(address: ListenAddress) -> socket.socket:
    """Raises: OSError: the address cannot be had."""
    path = address.path
    if path is None:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        listening = socket.create_server(found[0][4][:2], family=found[0][0], backlog=CONNECTIONS)
    else:
        if is_served(path):
            raise OSError(errno.EADDRINUSE, "another process listens there")
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode):  # of a daemon that is gone
                path.unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(str(path))
            os.chmod(path, SOCKET_MODE)
            listening.listen(CONNECTIONS)
        except OSError:
            listening.close()
            raise
    listening.setblocking(False)
    return listening


def _shown(address: ListenAddress) -> str:
    return f"unix:{address.path}" if address.path is not None else f"{address.host}:{address.port}"
