"""Opens the store that a URL names."""

from __future__ import annotations

from pathlib import Path

from federator.errors import InvalidRequest
from federator.store.base import Store
from federator.store.file_system import doubts_about
from federator.store.memory import MemoryStore
from federator.store.redis_url import SCHEMES, parse_redis_url
from federator.store.sqlite import SqliteStore


def check_url(url: str) -> None:
    """Whether a URL names a store; nothing is opened.

    Raises:
        ValueError: it does not; the text says what is expected.
    """
    if url.partition(":")[0] in SCHEMES:
        parse_redis_url(url)
    elif url != "memory:" and not (url.startswith("sqlite:///") and len(url) > len("sqlite:///")):
        scheme = url.partition(":")[0][:32]  # the rest may hold a password
        raise ValueError(f"expected sqlite:///PATH, or redis://HOST:PORT/DB, found {scheme!r}")


def warnings_of(url: str) -> tuple[str, ...]:
    """One line for each doubt about where a log is kept; nothing is opened."""
    if not url.startswith("sqlite:"):
        return ()
    doubt = doubts_about(Path(url.removeprefix("sqlite://")).parent)
    return (doubt,) if doubt else ()


def mark_file_of(url: str) -> Path | None:
    """The file where this host notes how far a log was acknowledged; None: nowhere."""
    if url.startswith("sqlite:"):
        return Path(f"{url.removeprefix('sqlite://')}.lock")
    return parse_redis_url(url).mark_file if url.partition(":")[0] in SCHEMES else None


def open_store(url: str, *, accept_loss: bool = False) -> Store:
    """Open the store that federation.yaml names, without leading.

    Args:
        url: see docs/reliability.md.
        accept_loss: it may be led also where records are missing that were acknowledged; for
            who rebuilds what was lost.

    Raises:
        InvalidRequest: the URL names no store.
        StoreError: it cannot be opened.
    """
    try:
        check_url(url)
    except ValueError as error:
        raise InvalidRequest(f"store: {error}") from error
    if url == "memory:":
        return MemoryStore()
    if url.startswith("sqlite:"):
        return SqliteStore(Path(url.removeprefix("sqlite://")), accept_loss=accept_loss)
    from federator.store.redis import RedisStore  # noqa: PLC0415  # only where it is used

    return RedisStore(parse_redis_url(url), accept_loss=accept_loss)
