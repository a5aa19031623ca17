"""Answers requests for views: pages, the same as JSON, and whether the page is well."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from federator.errors import SiteUnavailable
from federator.web.feed import Feed
from federator.web.openapi import Health, Problem, openapi_document
from federator.web.pages import NotThere, PageShown, View
from federator.web.rendering import environment
from federator.web.visitors import Doorman, Visitor
from federator.web.watched_config import WatchedConfig

KEPT: Final = 256  # rendered answers
JSON: Final = "application/json"
HTML: Final = "text/html; charset=utf-8"

_Key = tuple[str, object, tuple[int, int] | None]
"""The kind of answer, what is asked for and by whom, and of which news."""


class Rendered(NamedTuple):
    """An answer, made once for all who ask for the same."""

    body: bytes
    tag: str  # of HTTP: the same for the same body


class Endpoints:
    """Renders views.

    Args:
        feed: what is known.
        doorman: tells who asks.
        config: federation.yaml, as it is now.
    """

    def __init__(self, feed: Feed, doorman: Doorman, config: WatchedConfig) -> None:
        self._feed, self._doorman, self._config = feed, doorman, config
        self._templates = environment()
        self._kept: OrderedDict[_Key, asyncio.Future[Rendered]] = OrderedDict()

    def visitor(self, request: Request) -> Visitor:
        """Who asks."""
        return self._doorman.visitor(request, self._config.now)

    def page(
        self, view: View, topic: str, tab: str, *, keeps: bool = True
    ) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a page.

        Args:
            view: makes what it shows.
            topic: of whose news open pages are told.
            tab: that is marked as the present one.
            keeps: whether the topic's news are all that may change it.
        """

        async def endpoint(request: Request) -> Response:
            visitor = self.visitor(request)

            async def rendered() -> bytes:
                shown = await view(visitor, _query(request))
                return self.html(shown, visitor, topic=topic, tab=tab).encode()

            key = self._key(request, visitor, topic if keeps else "", HTML)
            return await self._answer(request, topic, key, rendered)

        return endpoint

    def api(
        self, view: View, topic: str, *, keeps: bool = True
    ) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of the same as JSON."""

        async def endpoint(request: Request) -> Response:
            visitor = self.visitor(request)

            async def rendered() -> bytes:
                shown = await view(visitor, _query(request))
                return msgspec.json.encode(shown.model)

            try:
                key = self._key(request, visitor, topic if keeps else "", JSON)
                return await self._answer(request, topic, key, rendered)
            except NotThere as error:
                return failed(str(error), 404)
            except SiteUnavailable as error:
                return failed(str(error), 503)

        return endpoint

    def html(self, shown: PageShown, visitor: Visitor, *, topic: str, tab: str) -> str:
        """A page as text."""
        names = {"view": shown.model, "topic": topic, "tab": tab, **shown.extra}
        return self.text(shown.template, visitor, **names)

    def text(self, template: str, visitor: Visitor, **names: object) -> str:
        """A template, filled in."""
        config = self._config.now
        about = {
            "visitor": visitor,
            "may_act": visitor.may_act(config),
            "has_tokens": bool(self._doorman.tokens),
            "federation": config.federation,
            "trouble": self._feed.status.trouble,
            "topic": "",
            "tab": "",
        }
        return self._templates.get_template(template).render(about | names)

    async def _answer(
        self, request: Request, topic: str, key: _Key, rendered: Callable[[], Awaitable[bytes]]
    ) -> Response:
        """Render once for all who ask for the same; nothing where the browser has it already."""
        self._feed.want(topic)
        found = await self._once(key, rendered)
        headers = {"etag": found.tag}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, media_type=key[0], headers=headers)

    def _key(self, request: Request, visitor: Visitor, topic: str, kind: str) -> _Key:
        query = tuple(sorted(request.query_params.multi_items()))
        asked = request.url.path, query, visitor, self._config.version
        if not topic or not self._feed.is_fresh(topic):
            return kind, asked, None
        return kind, asked, (self._feed.version_of(topic), self._feed.version_of("status"))

    async def _once(self, key: _Key, rendered: Callable[[], Awaitable[bytes]]) -> Rendered:
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = asyncio.ensure_future(_tagged(rendered))
            found.add_done_callback(partial(self._rendered, key))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return await asyncio.shield(found)

    def _rendered(self, key: _Key, done: asyncio.Future[Rendered]) -> None:
        """What failed is tried again; what no version vouches for is not kept."""
        failed_ = done.cancelled() or done.exception() is not None
        if (failed_ or key[2] is None) and self._kept.get(key) is done:
            del self._kept[key]

    async def health(self, _request: Request) -> Response:
        """``/healthz``: whether the daemon has answered lately."""
        trouble = self._feed.status.trouble
        if self._feed.status.answer is None or trouble:
            return failed(trouble or "the daemon has not answered yet", 503)
        return Response(msgspec.json.encode(Health(ok=True)), media_type=JSON)

    async def openapi(self, _request: Request) -> Response:
        """``/api/openapi.json``: what the others below ``/api/`` answer."""
        return Response(msgspec.json.encode(openapi_document()), media_type=JSON)


async def _tagged(rendered: Callable[[], Awaitable[bytes]]) -> Rendered:
    body = await rendered()
    return Rendered(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def failed(why: str, status: int) -> Response:
    """An error as JSON."""
    return Response(msgspec.json.encode(Problem(error=why)), status_code=status, media_type=JSON)


def _query(request: Request) -> Mapping[str, str]:
    found: dict[str, Any] = dict(request.query_params)
    return {**found, **request.path_params}
