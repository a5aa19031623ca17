"""The page's JSON is as its OpenAPI document says, whatever is asked for."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.core.transport import Response
from starlette.routing import Route

from federator.faults.clock import VirtualClock, VirtualLoop
from federator.web.app import WebPage
from federator.web.openapi import PATHS, openapi_document
from tests.fakes.build import draft, gang
from tests.fakes.page_client import HOST, Answered, PageClient, visit
from tests.fakes.page_daemon import HOSTILE, DecidingDaemon, MadeUpDaemon, config_of, small_fleet
from tests.fakes.page_server import page_of

EXAMPLES = 20  # of each address, and as many of a daemon that fails
CHECKS = [
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
    schemathesis.checks.unsupported_method,
]
"""Not among them: that a filter which makes no sense is refused. It counts as left out, so that
addresses which people type or have kept go on to work.
"""
NO_FAILURE = schemathesis.checks.not_a_server_error
schema = schemathesis.openapi.from_dict(openapi_document())


class Asked:
    """A page that lives from one question to the next."""

    def __init__(self, daemon: MadeUpDaemon) -> None:
        self.fails = bool(daemon.fails)
        clock = VirtualClock()
        self._runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(clock))
        self._page: WebPage = page_of(daemon.ask, config_of(), clock=clock)
        self._client = PageClient(self._page)
        self._asking: asyncio.Task[None] | None = None

    def ask(self, method: str, path: str, query: str) -> Answered:
        async def once() -> Answered:
            if self._asking is None:
                self._asking = asyncio.create_task(self._page.feed.run())
            return await self._client.get(f"{path}?{query}", method=method)

        return self._runner.run(once())

    def close(self) -> None:
        async def end() -> None:
            assert self._asking is not None
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking

        self._runner.run(end())
        self._runner.close()


@pytest.fixture(scope="module", params=["it answers", "it fails"])
def page(request: pytest.FixtureRequest) -> Iterator[Asked]:
    daemon = MadeUpDaemon(names=HOSTILE, users=HOSTILE)
    if request.param == "it fails":
        daemon.fails = "no"
    asked = Asked(daemon)
    yield asked
    asked.close()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_the_document_says(case: schemathesis.Case[Any], page: Asked) -> None:
    kwargs = case.as_transport_kwargs(base_url=f"http://{HOST}")
    wanted = requests.Request(kwargs["method"], kwargs["url"], params=kwargs.get("params"))
    prepared = wanted.prepare()
    assert prepared.url is not None
    parts = urlsplit(prepared.url)
    answer = page.ask(case.method, unquote(parts.path), parts.query)
    headers: dict[str, list[str]] = {}
    for name, value in answer.headers:
        headers.setdefault(name, []).append(value)
    case.validate_response(
        Response(answer.status, headers, answer.body, prepared, 0.0, False),
        checks=CHECKS if page.fails else [*CHECKS, NO_FAILURE],
    )


def test_jobs_and_arrays_of_a_daemon_that_decides_are_as_the_document_says() -> None:
    federation = small_fleet()
    array = federation.submit(draft(gang(1), array_indices=(3, 5, 7)))
    waits = federation.submit(draft(gang(2), user="ada", tenant="vision"))
    federation.run_for(5.0)
    daemon = DecidingDaemon(federation, config_of())
    paths = [f"/api/jobs/{each}" for each in (array, f"{array}_5", waits)]
    paths += [path for path, of in PATHS.items() if "{" not in path and not of.for_some]
    paths += ["/api/sites/alpine"]

    async def visiting(client: PageClient) -> list[Answered]:
        return [await client.get(path) for path in paths]

    for path, answer in zip(paths, visit(daemon.ask, config_of(), visiting), strict=True):
        found = re.sub(r"(jobs|sites)/.*", r"\1/{name}", path)
        prepared = requests.Request("GET", f"http://{HOST}{path}").prepare()
        headers = {"content-type": ["application/json"]}
        assert answer.status == 200
        schema[found]["GET"].validate_response(
            Response(answer.status, headers, answer.body, prepared, 0.0, False)
        )


def test_the_document_names_every_address_of_the_api_and_no_other() -> None:
    page = page_of(MadeUpDaemon().ask, config_of())
    inner = page.app._app  # type: ignore[attr-defined]
    routes = {route.path for route in inner.routes if isinstance(route, Route)}
    api = {path for path in routes if path.startswith("/api/")} - {"/api/openapi.json"}
    assert api | {"/healthz"} == set(PATHS)


def test_the_document_is_served() -> None:
    async def visiting(client: PageClient) -> Answered:
        return await client.get("/api/openapi.json")

    answer = visit(MadeUpDaemon().ask, config_of(), visiting)
    assert answer.status == 200
    assert answer.json == json.loads(json.dumps(openapi_document()))


def test_the_formats_page_names_the_document() -> None:
    formats = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
    assert "`/api/openapi.json`" in formats
