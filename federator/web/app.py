"""The page as an ASGI application: which address is answered by what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from federator.errors import InvalidRequest, SiteUnavailable
from federator.web.act_endpoints import ActEndpoints
from federator.web.acts import ActLimit
from federator.web.endpoints import Endpoints, failed
from federator.web.feed import Ask, Feed
from federator.web.guard import Guard
from federator.web.live import LiveStreams
from federator.web.pages import NotThere, Pages
from federator.web.static_files import StaticFilesInMemory
from federator.web.tokens import FormProofs, Sessions, TokenFile
from federator.web.visitors import Doorman
from federator.web.watched_config import WatchedConfig


class WebPage:
    """The application and what it is made of.

    Args:
        config: federation.yaml, as it is now.
        ask: brings a call to the daemon.
        tokens: of users.
        clock: seconds, of the event loop.
        wall: Unix time.

    Attributes:
        app: the application.
        feed: what it knows; it runs while the application does.
        live: the open event streams.
    """

    def __init__(
        self,
        config: WatchedConfig,
        ask: Ask,
        tokens: TokenFile,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.feed = Feed(ask, clock, wall)
        self.live = LiveStreams(self.feed, clock)
        sessions, proofs = Sessions(tokens, clock), FormProofs(clock)
        self._endpoints = Endpoints(self.feed, Doorman(tokens, sessions), config)
        self._pages = Pages(self.feed, config)
        limit = ActLimit(clock)
        self._acts = ActEndpoints(self._endpoints, sessions, proofs, config, ask, limit)
        inner = Starlette(
            routes=[*self._views(), *self._forms(), *self._others()],
            lifespan=self._lifespan,
            exception_handlers={
                HTTPException: self._http_error,
                NotThere: self._not_there,
                InvalidRequest: self._acts.failed,
                SiteUnavailable: self._unavailable,
                Exception: self._fault,
            },
        )
        self.app: ASGIApp = Guard(inner, config)

    def _views(self) -> list[Route]:
        p, page, api = self._pages, self._endpoints.page, self._endpoints.api
        return [
            Route("/", page(p.fleet, "fleet", "fleet")),
            Route("/sites/{name}", page(p.site, "fleet", "fleet")),
            Route("/queue", page(p.queue, "queue", "queue")),
            Route("/jobs/{name}", page(p.job, "queue", "queue", keeps=False)),
            Route("/tenants", page(p.tenants, "tenants", "tenants")),
            Route("/passes", page(p.passes, "passes", "passes")),
            Route("/operations", page(p.operations, "status", "operations", keeps=False)),
            Route("/audit", page(p.audit, "status", "audit", keeps=False)),
            Route("/api/fleet", api(p.fleet, "fleet")),
            Route("/api/sites/{name}", api(p.site, "fleet")),
            Route("/api/queue", api(p.queue, "queue")),
            Route("/api/jobs/{name}", api(p.job, "queue", keeps=False)),
            Route("/api/tenants", api(p.tenants, "tenants")),
            Route("/api/passes", api(p.passes, "passes")),
            Route("/api/operations", api(p.operations, "status", keeps=False)),
            Route("/api/audit", api(p.audit, "status", keeps=False)),
        ]

    def _forms(self) -> list[Route]:
        acts = self._acts
        return [
            Route("/confirm", acts.confirm),
            Route("/act", acts.act, methods=["POST"]),
            Route("/login", acts.login_page),
            Route("/login", acts.login, methods=["POST"]),
            Route("/logout", acts.logout, methods=["POST"]),
        ]

    def _others(self) -> list[Route]:
        return [
            Route("/events", self.live.events),
            Route("/healthz", self._endpoints.health),
            Route("/api/openapi.json", self._endpoints.openapi),
            Route("/static/{name}", StaticFilesInMemory().file),
        ]

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        asking = asyncio.create_task(self.feed.run())
        try:
            yield
        finally:
            self.live.end()
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking

    # ---- what went wrong ----

    def _failed(self, request: Request, why: str, status: int) -> Response:
        if request.url.path.startswith("/api/"):
            return failed(why, status)
        return self._acts.message(request, why, status)

    async def _http_error(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        answer = self._failed(request, "there is no such page" if status == 404 else "no", status)
        if isinstance(error, HTTPException) and error.headers:
            answer.headers.update(error.headers)
        return answer

    async def _not_there(self, request: Request, error: Exception) -> Response:
        return self._failed(request, str(error), 404)

    async def _unavailable(self, request: Request, error: Exception) -> Response:
        return self._failed(request, str(error), 503)

    async def _fault(self, request: Request, _error: Exception) -> Response:
        return self._failed(request, "the page failed on this request; its log says how", 500)
