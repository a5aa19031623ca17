"""A log in Redis over TLS: a server that cannot prove its name gets no record."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from federator.errors import StoreError
from federator.store.opening import open_store
from tests.fakes.redis_server import RedisSentinel, RedisServer, free_port

ADDRESS = "IP:127.0.0.1"


def certificate(folder: Path, name: str, alternative: str) -> Path:
    """One that signed itself, with its key beside it as ``NAME.key``."""
    found = folder / f"{name}.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", str(found.with_suffix(".key")), "-out", str(found)),
            *("-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative}"),
        ],
        check=True,
        capture_output=True,
    )
    return found


def settings(port: int, certificate: Path, client: Path) -> dict[str, str]:
    """Of a server that has no other port; who connects must show ``client``."""
    return {
        "port": "0",
        "tls-port": str(port),
        "tls-cert-file": str(certificate),
        "tls-key-file": str(certificate.with_suffix(".key")),
        "tls-ca-cert-file": str(client),
    }


def own(client: Path) -> str:
    return f"cert_file={client}&key_file={client.with_suffix('.key')}"


@pytest.fixture
def client(tmp_path: Path) -> Path:
    return certificate(tmp_path, "daemon", "DNS:daemon")


@pytest.fixture
def server(tmp_path: Path, client: Path) -> Iterator[RedisServer]:
    """Shows ``redis.pem``, which names its address."""
    shown = certificate(tmp_path, "redis", ADDRESS)
    port = free_port()
    server = RedisServer(tmp_path / "redis", settings=settings(port, shown, client))
    server.port = port
    yield server
    server.kill()


def test_a_log_is_kept_over_tls(tmp_path: Path, server: RedisServer, client: Path) -> None:
    url = f"rediss://127.0.0.1:{server.port}/0?ca_file={tmp_path}/redis.pem&{own(client)}"
    with closing(open_store(url)) as store:
        assert store.lead(0) is not None
        store.append([b"one", b"two"])
        assert list(store.records()) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("scheme", "options", "words"),
    [
        ("rediss", "{own}", "certificate verify failed.*check .ca_file="),
        ("rediss", "ca_file={folder}/daemon.pem&{own}", "certificate verify failed"),
        ("rediss", "ca_file={folder}/none.pem&{own}", "none.pem: cannot be read"),
        ("rediss", "ca_file={folder}/redis.pem", "does it run there"),  # it shows nothing
        ("redis", "", "does it run there"),  # in the clear
    ],
)
def test_who_is_not_proved_gets_no_record(
    tmp_path: Path, server: RedisServer, client: Path, scheme: str, options: str, words: str
) -> None:
    options = options.format(folder=tmp_path, own=own(client))
    with pytest.raises(StoreError, match=words):  # noqa: SIM117
        with closing(open_store(f"{scheme}://127.0.0.1:{server.port}/0?{options}")) as store:
            store.lead(0)


def test_a_server_with_another_name_gets_no_record(tmp_path: Path, client: Path) -> None:
    shown = certificate(tmp_path, "other", "DNS:other.example")
    port = free_port()
    server = RedisServer(tmp_path / "redis", settings=settings(port, shown, client))
    url = f"rediss://127.0.0.1:{port}/0?ca_file={shown}&{own(client)}"
    try:
        with closing(open_store(url)) as store, pytest.raises(StoreError, match="not valid for"):
            store.lead(0)
    finally:
        server.kill()


def test_sentinels_and_the_redis_that_they_name_speak_tls(
    tmp_path: Path, server: RedisServer, client: Path
) -> None:
    shown = tmp_path / "redis.pem"
    port = free_port()
    sentinel = RedisSentinel(
        tmp_path / "sentinel",
        server,
        {**settings(port, shown, client), "tls-replication": "yes", "tls-auth-clients": "optional"},
    )
    url = f"rediss+sentinel://127.0.0.1:{port}/queue/0?ca_file={shown}&{own(client)}"
    try:
        sentinel.await_line("+monitor master queue")
        with closing(open_store(url)) as store:
            assert store.lead(0) is not None
            store.append([b"one"])
            assert list(store.records()) == [b"one"]
    finally:
        sentinel.kill()
