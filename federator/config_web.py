"""The key ``web`` of federation.yaml: where the page listens, and whom it believes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

UNIX: Final = "unix"  # in ``proxies``: whoever connects to the unix socket
_HOST_PORT: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5})")
_HEADER: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9.-]{1,253}|\[?[0-9a-fA-F:.]{2,45}\]?")


def is_user_name(name: str) -> bool:
    """Whether a word can be the name of a Unix account."""
    return _USER.fullmatch(name) is not None


def _listen(text: str) -> str:
    if text.startswith("unix:/"):
        return text
    found = _HOST_PORT.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError("expected HOST:PORT, as 127.0.0.1:8410, or unix:/PATH")
    return text


def _user(name: str) -> str:
    if name and not is_user_name(name):
        raise ValueError("expected the name of an account")
    return name


def _proxy(text: str) -> str:
    if text != UNIX:
        try:
            ipaddress.ip_address(text)
        except ValueError as error:
            raise ValueError("expected an IP address, or the word unix") from error
    return text


def _header(name: str) -> str:
    if name and not _HEADER.fullmatch(name):
        raise ValueError("expected the name of a header, as X-Remote-User")
    return name


def _host(name: str) -> str:
    if not _HOST_NAME.fullmatch(name):
        raise ValueError("expected the name of a host, without port")
    return name.lower()


_User = Annotated[str, AfterValidator(_user)]


class WebConfig(BaseModel):
    """The web page; docs/web.md. Nobody is believed, and nobody may act, unless this says so."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: Annotated[str, AfterValidator(_listen)] = "127.0.0.1:8410"
    account: _User = ""
    operators: tuple[_User, ...] = ()
    proxies: tuple[Annotated[str, AfterValidator(_proxy)], ...] = ()
    user_header: Annotated[str, AfterValidator(_header)] = ""
    hosts: tuple[Annotated[str, AfterValidator(_host)], ...] = ()
    tokens: Path | None = None

    @property
    def unix_path(self) -> Path | None:
        """The unix socket that is listened at; None: it is TCP."""
        return Path(self.listen.removeprefix("unix:")) if self.listen.startswith("unix:") else None

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where it listens by TCP; of a unix socket ("", 0)."""
        found = None if self.unix_path else _HOST_PORT.fullmatch(self.listen)
        return ("", 0) if found is None else (found["host"].strip("[]"), int(found["port"]))

    def warnings(self) -> Iterator[str]:
        """One line for each thing that is allowed, and probably not what the admin means."""
        if self.unix_path is None and not _is_loopback(self.host_and_port[0]):
            yield f"web.listen {self.listen}: the page is served without TLS; put a proxy before it"
        if bool(self.proxies) != bool(self.user_header):
            yield "web: give both proxies and user_header, or nobody's header is believed"
        elif any(p != UNIX and _is_loopback(p) for p in self.proxies):
            yield "web.proxies: any user of a host with this loopback address can forge the header"
        if self.operators and not self.account:
            yield "web.operators: without web.account nobody may act through the page"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
