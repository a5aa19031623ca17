"""The key ``web`` of federation.yaml: where the page listens, and whom it believes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

from federator.config_listen import listen_address

UNIX: Final = "unix"  # in ``proxies``: whoever connects to the unix socket
_HEADER: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9.-]{1,253}|\[?[0-9a-fA-F:.]{2,45}\]?")


def is_user_name(name: str) -> bool:
    """Whether a word can be the name of a Unix account."""
    return _USER.fullmatch(name) is not None


def _listen(text: str) -> str:
    listen_address(text)
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
        return listen_address(self.listen).path

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where it listens by TCP; of a unix socket ("", 0)."""
        address = listen_address(self.listen)
        return address.host, address.port

    def warnings(self) -> Iterator[str]:
        """One line for each thing that is allowed, and probably not what the admin means."""
        if not listen_address(self.listen).is_local:
            yield f"web.listen {self.listen}: the page is served without TLS; put a proxy before it"
        if bool(self.proxies) != bool(self.user_header):
            yield "web: give both proxies and user_header, or nobody's header is believed"
        elif any(p != UNIX and ipaddress.ip_address(p).is_loopback for p in self.proxies):
            yield "web.proxies: any user of a host with this loopback address can forge the header"
        if self.operators and not self.account:
            yield "web.operators: without web.account nobody may act through the page"
