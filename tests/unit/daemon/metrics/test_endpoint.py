"""/metrics over real sockets: friends are served, and whoever is not one costs the loop nothing."""

from __future__ import annotations

import asyncio
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from prometheus_client import parser
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from structlog.testing import capture_logs

from federator.config_listen import ListenAddress, listen_address
from federator.daemon.metrics import endpoint
from federator.daemon.metrics.catalogue import Collected, gauge
from federator.daemon.metrics.endpoint import CONNECTIONS, MetricsEndpoint
from federator.daemon.metrics.text import MetricsText

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


class Source:
    """Counts how often it is asked, and in which thread."""

    def __init__(self) -> None:
        self.asked = 0
        self.threads: set[int] = set()
        self.fails = False

    def collect(self) -> list[Collected]:
        self.asked += 1
        self.threads.add(threading.get_ident())
        if self.fails:
            raise RuntimeError("a fault of ours")
        return [gauge("federator_leader", 1)]


@asynccontextmanager
async def served(address: ListenAddress, source: Source) -> AsyncIterator[None]:
    found = MetricsEndpoint(address, source.collect)
    found.start()
    for _ in range(500):
        try:
            (await _connected(address)).close()
        except OSError:
            await asyncio.sleep(0.01)
        else:
            break
    yield
    found.stop()
    await asyncio.to_thread(found._thread.join, 5.0)
    assert not found._thread.is_alive()


async def _connected(address: ListenAddress) -> socket.socket:
    loop = asyncio.get_running_loop()
    kind = socket.AF_UNIX if address.path is not None else socket.AF_INET
    connection = socket.socket(kind, socket.SOCK_STREAM)
    connection.setblocking(False)
    at = str(address.path) if address.path is not None else (address.host, address.port)
    try:
        await loop.sock_connect(connection, at)
    except OSError:
        connection.close()
        raise
    return connection


async def ask(address: ListenAddress, request: bytes = GET) -> tuple[str, bytes]:
    """Status line and headers, and the body, once the server has hung up."""
    loop = asyncio.get_running_loop()
    with closing(await _connected(address)) as connection:
        await loop.sock_sendall(connection, request)
        said = b""
        while part := await loop.sock_recv(connection, 65536):
            said += part
    head, _, body = said.partition(b"\r\n\r\n")
    return head.decode(), body


def at(port: int) -> ListenAddress:
    return listen_address(f"127.0.0.1:{port}")


def names(families: Iterable[Metric]) -> set[str]:
    return {each.name for each in families}


@pytest.mark.asyncio
async def test_a_scraper_reads_metrics_of_the_loop_and_of_the_process(port: int) -> None:
    source = Source()
    async with served(at(port), source):
        head, body = await ask(at(port))
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
        found = names(parser.text_string_to_metric_families(body.decode()))
        assert {"federator_leader", "process_cpu_seconds"} <= found
        assert source.threads == {threading.get_ident()}


@pytest.mark.asyncio
async def test_a_scraper_that_asks_for_openmetrics_gets_it(port: int) -> None:
    accept = b"Accept: application/openmetrics-text; version=1.0.0\r\n\r\n"
    async with served(at(port), Source()):
        head, body = await ask(at(port), GET[:-2] + accept)
        assert "application/openmetrics-text" in head
        found = names(openmetrics.text_string_to_metric_families(body.decode()))  # type: ignore[no-untyped-call]
        assert "federator_leader" in found


@pytest.mark.asyncio
async def test_a_unix_socket_is_for_owner_and_group_and_replaces_one_that_nobody_serves(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.sock"
    address = listen_address(f"unix:{path}")
    with closing(socket.socket(socket.AF_UNIX)) as gone:
        gone.bind(str(path))
    async with served(address, Source()):
        head, _ = await ask(address)
        assert head.startswith("HTTP/1.1 200")
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
        (b"\xff\xfe /metrics\r\n\r\n", "405"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
    ],
)
async def test_only_metrics_are_served_and_only_by_get(
    port: int, request_: bytes, status: str
) -> None:
    async with served(at(port), Source()):
        head, body = await ask(at(port), request_)
        assert head.startswith(f"HTTP/1.1 {status} ")
        assert len(body) < 100 or status == "200"


@pytest.mark.asyncio
async def test_however_many_ask_at_once_the_loop_is_asked_once_a_second(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, written = Source(), Counter[str]()
    of = MetricsText.of

    def counted(writer: MetricsText, found: list[Collected], accept: str) -> tuple[bytes, str]:
        written["texts"] += 1
        return of(writer, found, accept)

    monkeypatch.setattr(MetricsText, "of", counted)
    async with served(at(port), source):
        answers = await asyncio.gather(*(ask(at(port)) for _ in range(30)))
        assert all(head.startswith("HTTP/1.1 200") for head, _ in answers)
        assert source.asked <= 3
        assert written["texts"] == source.asked


@pytest.mark.asyncio
async def test_scrapers_that_say_nothing_or_too_much_are_hung_up_on_and_others_served(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PATIENCE_S", 0.3)
    async with served(at(port), Source()):
        silent = [await _connected(at(port)) for _ in range(CONNECTIONS + 4)]
        head, _ = await asyncio.wait_for(ask(at(port)), 20)
        assert head.startswith("HTTP/1.1 200")
        for each in silent:
            each.close()
        try:
            head, _ = await ask(at(port), b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 20_000)
        except ConnectionError:
            head = ""
        assert head == ""


@pytest.mark.asyncio
async def test_a_daemon_in_a_long_turn_answers_that_it_is_busy(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "COLLECT_S", 0.2)
    async with served(at(port), Source()):
        said: list[bytes] = []

        def scrape() -> None:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(GET)
                said.append(connection.recv(1024))

        scraping = threading.Thread(target=scrape)
        scraping.start()
        time.sleep(1.0)  # a turn, in which the loop does nothing else
        await asyncio.to_thread(scraping.join)
        assert said[0].startswith(b"HTTP/1.1 503 ")
        await asyncio.sleep(0.1)
        assert (await ask(at(port)))[0].startswith("HTTP/1.1 200")


@pytest.mark.asyncio
async def test_a_fault_while_collecting_ends_neither_thread_nor_loop(port: int) -> None:
    source = Source()
    async with served(at(port), source):
        source.fails = True
        with capture_logs() as logs:
            head, _ = await ask(at(port))
        assert head == ""
        assert [each["event"] for each in logs] == ["metrics_fault"]
        source.fails = False
        assert (await ask(at(port)))[0].startswith("HTTP/1.1 200")


@pytest.mark.asyncio
async def test_an_address_that_is_taken_is_logged_once_and_tried_again(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "AGAIN_S", 0.05)
    taken = socket.create_server(("127.0.0.1", port))
    found = MetricsEndpoint(at(port), Source().collect)
    with capture_logs() as logs:
        found.start()
        await asyncio.sleep(0.4)
        assert [each["event"] for each in logs] == ["metrics_not_served"]
        assert logs[0]["address"] == f"127.0.0.1:{port}"
        taken.close()
        for _ in range(100):
            if logs[-1]["event"] == "metrics_served":
                break
            await asyncio.sleep(0.05)
        assert (await ask(at(port)))[0].startswith("HTTP/1.1 200")
    found.stop()
    await asyncio.to_thread(found._thread.join, 5.0)


@pytest.mark.asyncio
async def test_a_socket_that_another_process_serves_is_not_taken_from_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    with closing(socket.socket(socket.AF_UNIX)) as other:
        other.bind(str(path))
        other.listen()
        found = MetricsEndpoint(listen_address(f"unix:{path}"), Source().collect)
        with capture_logs() as logs:
            found.start()
            for _ in range(100):
                if logs:
                    break
                await asyncio.sleep(0.05)
        found.stop()
        assert "another process listens there" in logs[0]["detail"]
        assert path.is_socket()
