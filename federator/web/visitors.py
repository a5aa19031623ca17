"""Tells who asks: by a proxy's header, a token, or a session; otherwise it is nobody.

Nothing that a client says about itself is believed, unless federation.yaml names who may say it.
"""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from federator.config import FederationConfig
from federator.config_web import UNIX, is_user_name
from federator.daemon.roles import Roles
from federator.model.viewer import Privacy, Viewer
from federator.model.workload import TenantName
from federator.web.tokens import Sessions, TokenFile

COOKIE: Final = "federator_session"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NOBODY: Final = Viewer(user="\0")  # no account is called so


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks; ``user`` "" is nobody in particular."""

    user: str = ""
    is_operator: bool = False
    by: str = ""  # proxy, token or session
    sees_all: bool = False
    administers: frozenset[TenantName] = frozenset()

    def viewer(self, config: FederationConfig) -> Viewer | None:
        """What of the queue is shown; None: all of it."""
        if not self.user:
            return None if config.privacy is Privacy.OPEN else _NOBODY
        sees_all = self.is_operator or self.sees_all
        return config.viewer(self.user, operator=sees_all, administers=self.administers)

    def may_act(self, config: FederationConfig) -> bool:
        """Whether the page can act for this user at all; the daemon decides on each act."""
        return bool(self.user and config.web.account)


class Doorman:
    """Identifies visitors.

    Args:
        tokens: of users.
        sessions: of browsers.
    """

    def __init__(self, tokens: TokenFile, sessions: Sessions) -> None:
        self.tokens, self.sessions = tokens, sessions
        self._roles: tuple[FederationConfig, Roles] | None = None

    def visitor(self, request: HTTPConnection, config: FederationConfig) -> Visitor:
        """Who asks."""
        by, user = "proxy", _named_by_proxy(request, config)
        if not user:
            by, user = "token", self.tokens.user_of(_bearer(request.headers))
        if not user:
            by, user = "session", self.sessions.user_of(request.cookies.get(COOKIE, ""))
        if not user:
            return Visitor()
        if self._roles is None or self._roles[0] is not config:
            self._roles = config, Roles(config)
        role = self._roles[1].caller(user, None)
        return Visitor(
            user=user,
            is_operator=user in config.web.operators,
            by=by,
            sees_all=role.viewer,
            administers=role.administers,
        )


def _named_by_proxy(request: HTTPConnection, config: FederationConfig) -> str:
    web = config.web
    if not web.user_header or not web.proxies:
        return ""
    named = request.headers.getlist(web.user_header)
    if len(named) != 1 or not is_user_name(named[0]):  # two: one of them is not the proxy's
        return ""
    if web.unix_path is not None:
        return named[0] if UNIX in web.proxies else ""
    return named[0] if _is_one_of(request, web.proxies) else ""


def _is_one_of(request: HTTPConnection, proxies: tuple[str, ...]) -> bool:
    if request.client is None:
        return False
    try:
        peer = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    return any(name != UNIX and ipaddress.ip_address(name) == peer for name in proxies)


def _bearer(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def is_own_host(host: str, config: FederationConfig) -> bool:
    """Whether a browser means this page by the name it calls; others' names are not ours.

    So no other site's script can read the page by having its own name point here.
    """
    web = config.web
    name = _without_port(host.lower())
    if name in web.hosts:
        return True
    if web.unix_path is not None:
        return not web.hosts
    own = web.host_and_port[0].lower()
    return name == own or (name in LOOPBACK and (own in LOOPBACK or own in ("0.0.0.0", "::")))  # noqa: S104


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def is_own_form(headers: Headers) -> bool:
    """Whether a browser that says where a form comes from says: from this page."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host", "")
