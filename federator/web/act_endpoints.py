"""Forms: to log in with a token, and to act, each act confirmed on a page of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

import structlog
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from federator.errors import InvalidRequest
from federator.web.acts import ActLimit, act_of, outcome
from federator.web.endpoints import Endpoints
from federator.web.feed import Ask
from federator.web.tokens import SESSION_S, FormProofs, Sessions
from federator.web.visitors import COOKIE, LOOPBACK, Visitor, is_own_form
from federator.web.watched_config import WatchedConfig

MOST_BODY_BYTES: Final = 16 * 1024
MOST_FIELDS: Final = 20

log = structlog.get_logger()


class FormRefused(InvalidRequest):
    """A form that is not taken; ``status`` is that of HTTP."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ActEndpoints:
    """Takes forms.

    Args:
        endpoints: render pages, and tell who asks.
        sessions: begun by a token.
        proofs: of forms.
        config: federation.yaml, as it is now.
        ask: brings a call to the daemon.
        limit: of acts.
    """

    def __init__(  # one of each
        self,
        endpoints: Endpoints,
        sessions: Sessions,
        proofs: FormProofs,
        config: WatchedConfig,
        ask: Ask,
        limit: ActLimit,
    ) -> None:
        self._endpoints, self._sessions, self._proofs = endpoints, sessions, proofs
        self._config, self._ask, self._limit = config, ask, limit

    # ---- acts ----

    async def confirm(self, request: Request) -> Response:
        """``/confirm?verb=…&target=…``: says what would be done, with the form that does it."""
        visitor = self._actor(request)
        act = act_of(request.query_params)
        proof = self._proofs.new(visitor.user)
        text = self._endpoints.text("confirm.html", visitor, act=act, proof=proof)
        return HTMLResponse(text)

    async def act(self, request: Request) -> Response:
        """``POST /act``: asks the daemon, in the user's name."""
        visitor = self._actor(request)
        form = await _form(request)
        if not is_own_form(request.headers) or not self._proofs.holds(
            visitor.user, form.get("proof", "")
        ):
            log.warning("form_refused", user=visitor.user, path=request.url.path)
            raise FormRefused(403, "this form is not of this page, or too old; open the page again")
        act = act_of(form)
        if not self._limit.allows(visitor.user):
            raise FormRefused(429, "too many acts at once; wait some seconds")
        reply = await self._ask(act.call(visitor.user))
        done, lines = outcome(act, reply)
        log.info("act", user=visitor.user, by=visitor.by, verb=act.verb, on=act.target, done=done)
        text = self._endpoints.text("done.html", visitor, act=act, done=done, lines=lines)
        return HTMLResponse(text, status_code=200 if done else 409)

    def _actor(self, request: Request) -> Visitor:
        visitor = self._endpoints.visitor(request)
        if not visitor.may_act(self._config.now):
            raise FormRefused(403, "this page may not act for you; see docs/web.md")
        return visitor

    # ---- tokens ----

    async def login_page(self, request: Request) -> Response:
        """``/login``."""
        visitor = self._endpoints.visitor(request)
        return HTMLResponse(self._endpoints.text("login.html", visitor, wrong=False))

    async def login(self, request: Request) -> Response:
        """``POST /login``: a token in, a cookie out."""
        if not is_own_form(request.headers):
            raise FormRefused(403, "this form is not of this page")
        form = await _form(request)
        name = self._sessions.begin(form.get("token", "").strip())
        if not name:
            visitor = self._endpoints.visitor(request)
            text = self._endpoints.text("login.html", visitor, wrong=True)
            return HTMLResponse(text, status_code=403)
        answer = RedirectResponse("/queue", status_code=303)
        host = request.headers.get("host", "").rpartition(":")[0].strip("[]")
        answer.set_cookie(
            COOKIE,
            name,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=host not in LOOPBACK,
        )
        return answer

    async def logout(self, request: Request) -> Response:
        """``POST /logout``."""
        if not is_own_form(request.headers):
            raise FormRefused(403, "this form is not of this page")
        self._sessions.end(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse("/", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    async def failed(self, request: Request, error: Exception) -> Response:
        """A page that says what went wrong."""
        status = error.status if isinstance(error, FormRefused) else 400
        return self.message(request, str(error), status)

    def message(self, request: Request, why: str, status: int) -> Response:
        """A page with one message."""
        visitor = self._endpoints.visitor(request)
        text = self._endpoints.text("message.html", visitor, why=why, status=status)
        return HTMLResponse(text, status_code=status)


async def _form(request: Request) -> Mapping[str, str]:
    """The fields of a form.

    Raises:
        FormRefused: it is none, or too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise FormRefused(415, "expected a form")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            raise FormRefused(413, f"a form has at most {MOST_BODY_BYTES} bytes")
    try:
        text = body.decode("ascii")
        return dict(parse_qsl(text, max_num_fields=MOST_FIELDS, errors="strict"))
    except ValueError as error:
        raise FormRefused(400, "the form cannot be read") from error
