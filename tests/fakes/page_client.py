"""Asks the page's application without a network, as a peer and with headers of a test's choice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from federator.config import FederationConfig
from federator.faults.clock import VirtualClock
from federator.web.app import WebPage
from federator.web.feed import Ask
from tests.fakes.page_server import page_of

T = TypeVar("T")
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
HOST = "127.0.0.1:8410"


@dataclass(frozen=True, kw_only=True)
class Answered:
    """One answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class PageClient:
    """A browser that keeps nothing.

    Args:
        page: what is asked.
    """

    def __init__(self, page: WebPage) -> None:
        self.page = page

    async def get(
        self,
        path: str,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        peer: str = "127.0.0.1",
        method: str = "GET",
        body: bytes = b"",
        more: tuple[tuple[str, str], ...] = (),
    ) -> Answered:
        """One request; ``more`` are further headers, which may be doubled."""
        plain, _, query = path.partition("?")
        named = {"host": HOST, **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": plain,
            "raw_path": quote(plain).encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (k.lower().encode(), v.encode("latin-1")) for k, v in (*named.items(), *more)
            ],
            "client": (peer, 50_000) if peer else None,
            "server": ("127.0.0.1", 8410),
        }
        sent: list[Any] = []

        bodies = [body]

        async def receive() -> dict[str, Any]:
            if not bodies:  # the browser stays
                await asyncio.get_running_loop().create_future()
            body = bodies.pop()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.page.app(scope, receive, send)
        start = sent[0]
        pairs = [(k.decode(), v.decode("latin-1")) for k, v in start["headers"]]
        parts = b"".join(message.get("body", b"") for message in sent[1:])
        return Answered(status=start["status"], headers=tuple(pairs), body=parts)

    async def post(
        self, path: str, form: Mapping[str, str], headers: Mapping[str, str] = NO_HEADERS
    ) -> Answered:
        """Send a form."""
        kind = {"content-type": "application/x-www-form-urlencoded"}
        body = urlencode(form).encode()
        return await self.get(path, {**kind, **headers}, method="POST", body=body)


def visit(
    ask: Ask,
    config: FederationConfig,
    visiting: Callable[[PageClient], Awaitable[T]],
    tokens: Path | None = None,
    clock: Callable[[], float] | None = None,
) -> T:
    """What a visit to a page finds, while time stands still; the page asks the daemon meanwhile."""
    stands_still = VirtualClock()

    async def run() -> T:
        page = page_of(ask, config, tokens, clock or stands_still)
        asking = asyncio.create_task(page.feed.run())
        try:
            return await visiting(PageClient(page))
        finally:
            asking.cancel()

    return asyncio.run(run())
