"""The key ``metrics`` of federation.yaml, and addresses to listen at as it writes them."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, field_validator

_UNIX: Final = "unix:"
_UNIX_MOST: Final = 107  # bytes of a path that the kernel takes
_HOST_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
EXPECTED: Final = "expected HOST:PORT, such as 127.0.0.1:9464, or unix:/PATH"


class ListenAddress(NamedTuple):
    """Either a path, or a host with a port."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether only processes of this host reach it."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def listen_address(text: str) -> ListenAddress:
    """Read one.

    Raises:
        ValueError: it is none; the message says what was expected.
    """
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if not path.startswith("/") or "\0" in path or len(path.encode()) > _UNIX_MOST:
            raise ValueError(f"{EXPECTED} of at most {_UNIX_MOST} bytes")
        return ListenAddress(path=Path(path))
    found = _HOST_PORT.fullmatch(text)
    if found is None or not 0 < int(found[2]) < 65536:
        raise ValueError(EXPECTED)
    return ListenAddress(host=found[1].strip("[]"), port=int(found[2]))


class MetricsConfig(BaseModel):
    """What Prometheus may scrape; docs/metrics.md."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: str = ""  # "": nowhere

    @field_validator("listen")
    @classmethod
    def _an_address(cls, listen: str) -> str:
        if listen:
            listen_address(listen)
        return listen

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line if others than this host's processes reach it."""
        if not self.listen or listen_address(self.listen).is_local:
            return ()
        return (f"metrics.listen {self.listen}: whoever reaches it reads the metrics",)
