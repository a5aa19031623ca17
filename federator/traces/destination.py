"""Where spans go: a file of this host, or a collector that listens on its loopback."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

EXPECTED: Final = "expected http://HOST:PORT on loopback, such as http://127.0.0.1:4318"
PATH: Final = "/v1/traces"


class Destination(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mapping ``traces`` of agent.yaml; federation.yaml has the same keys."""

    file: str = ""
    endpoint: str = ""  # of OTLP over HTTP
    ratio: float = 1.0  # of workloads that are traced

    def __post_init__(self) -> None:
        if self.file and self.endpoint:
            raise ValueError("give one of file and endpoint")
        if self.file and not Path(self.file).is_absolute():
            raise ValueError("file: expected an absolute path")
        if self.endpoint:
            checked_endpoint(self.endpoint)
        if not 0 <= self.ratio <= 1:
            raise ValueError("ratio: expected 0 to 1")

    @property
    def is_on(self) -> bool:
        return bool(self.file or self.endpoint)


NOT_TRACED: Final = Destination()


def checked_endpoint(text: str) -> str:
    """The address to post to.

    Raises:
        ValueError: it is none of this host's loopback.
    """
    try:
        found: Any = urlsplit(text)
        host, port = found.hostname or "", found.port
    except ValueError as error:
        raise ValueError(EXPECTED) from error
    plain = (
        found.scheme == "http" and port and not (found.query or found.fragment or found.username)
    )
    if not plain or not _is_loopback(host) or found.path not in ("", "/", PATH):
        raise ValueError(EXPECTED)
    return f"http://{found.netloc}{PATH}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
