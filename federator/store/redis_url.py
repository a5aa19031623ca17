"""Parses URLs of the Redis store, without the library, which configs do not need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

SCHEMES: Final = ("redis", "rediss", "redis+unix", "redis+sentinel", "rediss+sentinel")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WAIT_MS: Final = 1000
_SENTINEL_PORT: Final = 26379
_PORT: Final = 6379
_PATHS: Final = (
    *("password_file", "sentinel_password_file"),
    *("ca_file", "cert_file", "key_file", "mark_file"),
)
_TLS_ALONE: Final = frozenset(("ca_file", "cert_file", "key_file"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """The address of a Redis, and how its log is kept."""

    hosts: tuple[tuple[str, int], ...] = ()  # of Redis; or of its sentinels
    service: str = ""  # the sentinels' name of the master
    socket: str = ""  # path, instead of hosts
    tls: bool = False
    db: int = 0
    user: str = ""
    name: str = "queue"  # of the log
    replicas: int = 0  # that must have a record before it is acknowledged
    wait_ms: int = _WAIT_MS  # for them
    password_file: Path | None = None
    sentinel_password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None  # of this client, where the server asks for one
    key_file: Path | None = None
    mark_file: Path | None = None  # notes how far the log was acknowledged
    assume_durable: bool = False  # where the server does not let its settings be read

    def __str__(self) -> str:
        where = self.socket or ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"Redis at {where}" + (f" ({self.service})" if self.service else "")

    def key(self, what: str) -> str:
        """All keys are in one slot of a cluster, by the tag in braces."""
        return f"{{federator:{self.name}}}:{what}"


def parse_redis_url(url: str) -> RedisAddress:
    """Read a URL such as ``redis://HOST:PORT/DB?replicas=1``.

    Raises:
        ValueError: what is wrong with it, and what is expected; never with a password.
    """
    try:
        parts = urlsplit(url)
        hosts = _hosts(parts)
    except ValueError as error:
        raise ValueError("expected redis://HOST[:PORT]/DB") from error
    if parts.password is not None:
        raise ValueError("no password in a URL, which others can read: use ?password_file=PATH")
    found = _options(parts.query)
    if parts.scheme == "redis+unix":
        if parts.netloc or not parts.path.startswith("/"):
            raise ValueError("expected redis+unix:///PATH/TO/SOCKET")
        found["socket"] = unquote(parts.path)
    else:
        found |= _service_and_db(parts, found)
        if len(hosts) != 1 and "service" not in found:
            raise ValueError("expected one host; for several sentinels, redis+sentinel://…")
    tls = parts.scheme.startswith("rediss")
    if not tls and (extra := _TLS_ALONE & found.keys()):
        raise ValueError(f"{min(extra)} has a meaning with rediss:// alone")
    if ("cert_file" in found) != ("key_file" in found):
        raise ValueError("cert_file and key_file: expected both, or neither")
    return RedisAddress(hosts=hosts, tls=tls, user=parts.username or "", **found)  # type: ignore[arg-type]


def _service_and_db(parts: SplitResult, options: dict[str, object]) -> dict[str, object]:
    path = [unquote(word) for word in parts.path.split("/")[1:]]
    found: dict[str, object] = {}
    if parts.scheme.endswith("+sentinel"):
        found["service"] = path.pop(0) if path else ""
        if not found["service"]:
            raise ValueError("expected redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB")
    if path and path[0]:
        if "db" in options:
            raise ValueError("the database is given twice")
        found["db"] = _number("the database", path[0])
    if len(path) > 1:
        raise ValueError("nothing may follow the database's number")
    return found


def _hosts(parts: SplitResult) -> tuple[tuple[str, int], ...]:
    default = _SENTINEL_PORT if parts.scheme.endswith("+sentinel") else _PORT
    hosts = []
    for each in parts.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{each}")
        if one.hostname is not None:
            hosts.append((one.hostname, one.port or default))
        elif parts.scheme != "redis+unix":
            raise ValueError(each)
    return tuple(hosts)


def _options(query: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        match key:
            case "replicas" | "wait_ms" | "db":
                found[key] = _number(key, value)
            case "name":
                if not _NAME.fullmatch(value):
                    raise ValueError("name: expected up to 64 of A-Z a-z 0-9 . _ -")
                found[key] = value
            case _ if key in _PATHS:
                if not value.startswith("/"):
                    raise ValueError(f"{key}: expected an absolute path")
                found[key] = Path(value)
            case "assume_durable":
                if value != "yes":
                    raise ValueError("assume_durable: expected yes, or that it is left out")
                found[key] = True
            case _:
                raise ValueError(
                    "unknown option; expected replicas, wait_ms, name, db, assume_durable, "
                    + ", ".join(_PATHS)
                )
    return found


def _number(key: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", value):
        raise ValueError(f"{key}: expected a number")
    return int(value)
