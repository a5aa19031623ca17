"""The connections to one Redis, which answers only where its settings keep what it acknowledges."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from federator.errors import NotCompacted, StoreError
from federator.store.redis_scripts import RELEASE
from federator.store.redis_url import RedisAddress

_PAGE: Final = 1000  # records written at once
_RENEW_WAIT_MS: Final = 500  # for replicas: a lease must not end while it is renewed
_ANSWER_S: Final = 1.0  # patience with one call, beside what is waited for replicas
_ASIDE_S: Final = 3600  # what a crash left of a compaction is forgotten after
_SETTINGS: Final = (  # what makes that an answer means: it is on the disk
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("maxmemory-policy", "noeviction"),
)
_REMEDIES: Final[tuple[tuple[type[redis.RedisError], str], ...]] = (
    (redis.AuthenticationError, "check user and ?password_file="),
    (redis.ReadOnlyError, "this is a replica: name its master, or the sentinels"),
    (redis.OutOfMemoryError, "Redis is full: raise its maxmemory"),
    (redis.BusyLoadingError, "it reads its log yet: try again"),
    (redis.ConnectionError, "does it run there, and may this host reach it?"),
    (redis.TimeoutError, "does it run there, and may this host reach it?"),
)


class RedisConnections:
    """A connection for each use: to read, to write, to write at most once, and to keep the lease.

    Args:
        address: see ``RedisAddress``.
    """

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self.keys = tuple(map(address.key, ("log", "head", "lease")))
        self.reader = _client(address)
        self.writer = _client(address, redis_connect_func=self._greet)
        self._once = _client(address, tries=1, redis_connect_func=self._greet)
        self.keeper = _client(  # of the lease, which ends while it is patient
            address, tries=1, patient=False, redis_connect_func=self._greet
        )

    def call(
        self,
        script: str,
        *words: object,
        more: tuple[str, ...] = (),
        client: redis.Redis | None = None,
    ) -> list[Any]:
        """Run a script; enough replicas have what it wrote.

        Repeated by the library after a lost reply: each script does its work once.
        """
        keys = (*self.keys, *more)
        wanted, client = self._address.replicas, client or self.writer
        wait_ms = self._address.wait_ms
        if client is self.keeper:
            wait_ms = min(wait_ms, _RENEW_WAIT_MS)
        with self.explained(), client.pipeline(transaction=False) as pipe:
            pipe.eval(script, len(keys), *keys, *words)  # type: ignore[arg-type]
            if wanted:
                pipe.wait(wanted, wait_ms)
            answer, *had = pipe.execute()
        if answer[0] == b"ok" and had and had[0] < wanted:
            raise StoreError(
                f"{self._address}: {had[0]} of {wanted} replicas answered within "
                f"{wait_ms} ms; nobody leads until {wanted} are connected: start the missing ones, "
                "or give it others"
            )
        return list(answer)

    @contextmanager
    def explained(self) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as error:
            remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "")
            if "certificate verify failed" in str(error):
                remedy = "check ?ca_file=, and that its certificate names this host"
            said = f"{error}; {remedy}" if remedy else str(error)
            raise StoreError(f"{self._address}: {said}") from error
        except OSError as error:  # of a password file
            raise StoreError(f"{self._address}: {error}") from error

    def _greet(self, connection: Any) -> None:
        """Each new connection may be to another server, as after a failover."""
        connection.on_connect()
        try:
            for name, wanted in () if self._address.assume_durable else _SETTINGS:
                connection.send_command("CONFIG", "GET", name)
                _check_setting(self._address, name, wanted, connection.read_response())
        except redis.ResponseError as error:
            connection.disconnect()  # else the library would use it the next time
            raise StoreError(_settings_unknown(self._address, error)) from error
        except StoreError:
            connection.disconnect()
            raise

    def ask_settings(self) -> None:
        """They may be changed while it runs."""
        if self._address.assume_durable:
            return
        with self.explained(), self.keeper.pipeline(transaction=False) as pipe:
            for name, _ in _SETTINGS:
                pipe.config_get(name)
            for (name, wanted), found in zip(_SETTINGS, pipe.execute(), strict=True):
                _check_setting(self._address, name, wanted, found)

    def put_aside(self, key: str, entries: Iterable[bytes]) -> None:
        """Write a new log beside the old one, which stays as it is if that fails.

        Raises:
            NotCompacted: the new one is not there.
        """
        try:
            with self.explained():
                self.writer.unlink(key)
                rest = iter(entries)
                while page := list(islice(rest, _PAGE)):
                    self._push(key, page)
        except StoreError as error:
            self.drop(key)
            raise NotCompacted(str(error)) from error

    def drop(self, key: str) -> None:
        with suppress(redis.RedisError, StoreError):  # else it goes by itself
            self.writer.unlink(key)

    def _push(self, key: str, entries: Sequence[bytes]) -> None:
        """Not twice, whatever is lost on the way: a second try would make the list too long."""
        with self._once.pipeline(transaction=True) as pipe:
            pipe.rpush(key, *entries)
            pipe.expire(key, _ASIDE_S)
            pipe.execute()

    def release(self, token: str) -> None:
        """End the lease, if it is this one's."""
        with suppress(redis.RedisError, StoreError):  # else the lease ends by itself
            self.writer.eval(RELEASE, len(self.keys), *self.keys, token)

    def close(self) -> None:
        for client in (self.reader, self.writer, self._once, self.keeper):
            client.close()


def _check_setting(address: RedisAddress, name: str, wanted: str, found: Any) -> None:
    values = found.values() if isinstance(found, dict) else found[1:]
    value = next((v.decode() if isinstance(v, bytes) else v for v in values), "unknown")
    if value != wanted:
        raise StoreError(
            f"{address}: its setting is '{name} {value}', which can lose acknowledged "
            f"work; set '{name} {wanted}' in its redis.conf, and restart it"
        )


def _settings_unknown(address: RedisAddress, error: redis.ResponseError) -> str:
    wanted = ", ".join(map(" ".join, _SETTINGS))
    return (
        f"{address} does not say how it is set ({error}); if it surely has {wanted}, "
        "add ?assume_durable=yes to the URL"
    )


def _client(
    address: RedisAddress, *, tries: int = 2, patient: bool = True, **more: Any
) -> redis.Redis:
    """Connects when it is used."""
    answer_s = _ANSWER_S + address.wait_ms / 1000 if patient else _ANSWER_S
    limits: dict[str, Any] = {
        "socket_timeout": answer_s,
        "socket_connect_timeout": _ANSWER_S,
        "retry": Retry(ConstantBackoff(0.1), tries - 1),
    }
    tls: dict[str, Any] = {}
    if address.tls:
        tls = {
            "ssl": True,
            "ssl_cert_reqs": "required",
            "ssl_check_hostname": True,  # redis-py before 6 does not by itself
            "ssl_min_version": ssl.TLSVersion.TLSv1_2,
            "ssl_ca_certs": _readable(address.ca_file),
            "ssl_certfile": _readable(address.cert_file),
            "ssl_keyfile": _readable(address.key_file),
        }
    login: dict[str, Any] = {
        "db": address.db,
        "protocol": 2,
        "username": address.user or None,
        "password": _password(address.password_file),
        **tls,
    }
    if address.service:
        asked = {**limits, "password": _password(address.sentinel_password_file)}
        sentinels = Sentinel(
            address.hosts, sentinel_kwargs={**asked, **(tls if address.tls else {})}
        )
        master: redis.Redis = sentinels.master_for(address.service, **limits, **login, **more)
        return master
    if address.socket:
        return redis.Redis(unix_socket_path=address.socket, **limits, **login, **more)
    ((host, port),) = address.hosts
    return redis.Redis(host=host, port=port, **limits, **login, **more)


def _readable(file: Path | None) -> str | None:
    """The library does not name the file that it cannot read."""
    if file is None:
        return None
    try:
        file.open("rb").close()
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error}") from error
    return str(file)


def _password(file: Any) -> str | None:
    if file is None:
        return None
    try:
        found: str = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"password file {file}: cannot be read: {error}") from error
    return found
