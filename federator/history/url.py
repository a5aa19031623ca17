"""The values of ``history.url``; nothing is opened, and no database's library is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

NONE: Final = "none"
"""The value that keeps no history."""
SQLITE: Final = "sqlite:///"
_POSTGRES: Final = "postgresql"
_OPTIONS: Final = frozenset(
    {"host", "passfile", "service", "sslmode", "sslrootcert", "sslcert", "sslkey", "gssencmode"}
)
"""Of libpq, that a URL may give; none of them is a secret."""


def check_history_url(url: str) -> None:
    """Whether a URL names a history.

    Raises:
        ValueError: it does not; the text says what is expected, and holds no password.
    """
    if url == NONE or (url.startswith(f"{SQLITE}/") and len(url) > len(SQLITE) + 1):
        return
    scheme = url.partition(":")[0][:32]
    if scheme != _POSTGRES:
        raise ValueError(
            f"expected sqlite:///ABSOLUTE/PATH, postgresql://[USER@]HOST/DATABASE or {NONE}, "
            f"found {scheme!r}"
        )
    try:
        parsed = urlsplit(url)
        options, _port = dict(parse_qsl(parsed.query, keep_blank_values=True)), parsed.port
    except ValueError as error:
        raise ValueError("expected postgresql://[USER@]HOST[:PORT]/DATABASE") from error
    if parsed.password is not None or any("password" in name for name in options):
        raise ValueError("holds a password: put that in a file, and name it with ?passfile=PATH")
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise ValueError(
            f"unknown option {unknown[0][:32]!r}; options are {', '.join(sorted(_OPTIONS))}"
        )


def history_url(url: str, store_url: str) -> str:
    """The history that is meant; where ``url`` is "", a file beside a log that is a file.

    Daemons on two hosts share no file: of a log in Redis none is kept unless it is named.
    """
    if url or not store_url.startswith(SQLITE):
        return url or NONE
    path = Path(store_url.removeprefix("sqlite://"))
    return f"sqlite://{path.with_name(f'{path.stem}-history.db')}"


def history_warnings(url: str, store_url: str) -> tuple[str, ...]:
    """One line for each thing that is allowed, and probably not meant."""
    if not store_url.startswith("redis"):
        return ()
    if not url:
        return ("no history is kept: two daemons share no file; name a history.url, or 'none'",)
    if url.startswith("sqlite:"):
        return (f"history.url {url} is a file of one host: name a postgresql:// for two daemons",)
    return ()
