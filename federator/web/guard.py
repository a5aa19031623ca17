"""Guards every request: whose host it names, how large it is, and the headers of the answer."""

from __future__ import annotations

from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from federator.web.visitors import is_own_host
from federator.web.watched_config import WatchedConfig

MOST_AT_ONCE: Final = 1_000  # requests, and open pages
RETRY_AFTER_S: Final = 5  # of whoever came beyond that
MOST_PATH_BYTES: Final = 512
MOST_QUERY_BYTES: Final = 4096
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=()"),
)


class Guard:
    """Stands before the application.

    Args:
        app: what is guarded.
        config: federation.yaml, as it is now.
    """

    def __init__(self, app: ASGIApp, config: WatchedConfig) -> None:
        self._app, self._config = app, config
        self._at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._at_once += 1
        try:
            await self._guarded(scope, receive, send)
        finally:
            self._at_once -= 1

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                extra = [*HEADERS]
                if b"cache-control" not in names:
                    extra.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        why = self._why_not(scope)
        if why:
            headers = {"retry-after": str(RETRY_AFTER_S)} if why[0] == 503 else None
            refusal = PlainTextResponse(why[1] + "\n", status_code=why[0], headers=headers)
            await refusal(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _why_not(self, scope: Scope) -> tuple[int, str] | None:
        if self._at_once > MOST_AT_ONCE:
            return 503, "too many requests at once; try again"
        if len(scope.get("raw_path") or b"") > MOST_PATH_BYTES:
            return 414, "the address is too long"
        if len(scope["query_string"]) > MOST_QUERY_BYTES:
            return 414, "the query is too long"
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not is_own_host(hosts[0].decode("latin-1"), self._config.now):
            return 421, "this page is not called so; see web.hosts in federation.yaml"
        return None
