"""The page's JSON API as an OpenAPI document, made of the types of its answers.

``/api/openapi.json`` serves it. Programs may be generated from it; fields may be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from federator import __version__
from federator.web.audit_view import AuditView
from federator.web.fleet import FleetView
from federator.web.pages import ArrayStory, SiteDetail
from federator.web.queue_view import MOST_PAGE, SORTS, STATES, QueueView
from federator.web.story import JobStory
from federator.web.summaries import OperationsView, PassesView, TenantsView


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is none of these: what went wrong."""

    schema: int = 1
    error: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``/healthz`` while the daemon answers."""

    schema: int = 1
    ok: bool


class ApiPath(NamedTuple):
    """One address: what it answers, and what it takes."""

    about: str
    answers: tuple[type[msgspec.Struct], ...]
    name: str = ""  # what {name} is, and its form
    form: str = ""
    query: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    for_some: bool = False  # others are told that there is none


_WORD: Final = {"type": "string", "maxLength": 256}
_SORT: Final = {"type": "string", "enum": [s for name in SORTS for s in (name, f"-{name}")]}
_QUEUE: Final[Mapping[str, Mapping[str, Any]]] = {
    "user": _WORD,
    "tenant": _WORD,
    "state": {"type": "string", "enum": list(STATES)},
    "site": _WORD,
    "name": {**_WORD, "description": "A part of it, whatever its case."},
    "sort": {**_SORT, "description": "A column; - before it: the largest first."},
    "page": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
    "per_page": {"type": "integer", "minimum": 1, "maximum": MOST_PAGE},
}
_SITE: Final = "a site of /api/fleet"
_JOB: Final = "a job, an array, or a task of one"
PATHS: Final[Mapping[str, ApiPath]] = MappingProxyType(
    {
        "/api/fleet": ApiPath("All sites.", (FleetView,)),
        "/api/sites/{name}": ApiPath("One site and its nodes.", (SiteDetail,), _SITE, "[^/]+"),
        "/api/queue": ApiPath("What waits and runs.", (QueueView,), query=_QUEUE),
        "/api/jobs/{name}": ApiPath(
            "The story of a job.", (JobStory, ArrayStory), _JOB, "[0-9]+(_[0-9]+)?"
        ),
        "/api/tenants": ApiPath("Tenants, now and over 12 hours.", (TenantsView,)),
        "/api/passes": ApiPath("The last passes.", (PassesView,)),
        "/api/operations": ApiPath("Drains, claims, evictions, lost work.", (OperationsView,)),
        "/api/audit": ApiPath(
            "The last acts of the audit, for operators.",
            (AuditView,),
            query={"act": _WORD, "who": _WORD},
            for_some=True,
        ),
        "/healthz": ApiPath("Whether the daemon answers.", (Health,)),
    }
)
_REFUSED: Final = {  # by ``Guard``, in plain text
    "414": "The address or its query is too long.",
    "421": "The page is not called so.",
}


@cache
def openapi_document() -> dict[str, Any]:
    """The document."""
    kinds = [kind for path in PATHS.values() for kind in path.answers]
    _, schemas = msgspec.json.schema_components(
        [*kinds, Problem], ref_template="#/components/schemas/{name}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Federator's page",
            "version": __version__,
            "description": "Times are Unix times, 0: not yet; null: not known, or none.",
        },
        "paths": {path: {"get": _operation(path, each)} for path, each in PATHS.items()},
        "components": {
            "schemas": {name: _as_sent(schema) for name, schema in schemas.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(path: str, each: ApiPath) -> dict[str, Any]:
    answers = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in each.answers]
    found = answers[0] if len(answers) == 1 else {"anyOf": answers}
    errors = {"503": "The daemon does not answer, or too many ask."}
    if each.name or each.for_some:
        errors["404"] = "There is none, or it is not yours to see."
    responses: dict[str, Any] = {
        "200": {"description": each.about, "content": {"application/json": {"schema": found}}}
    }
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    plain = {"text/plain": {"schema": {"type": "string"}}}
    for status, why in errors.items():
        responses[status] = {"description": why, "content": problem}
    responses["503"]["content"] = problem | plain
    for status, why in _REFUSED.items():
        responses[status] = {"description": why, "content": plain}
    return {
        "operationId": path.removeprefix("/api/").strip("/").replace("/{name}", ""),
        "summary": each.about,
        "parameters": _parameters(each),
        "responses": responses,
    }


def _parameters(each: ApiPath) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if each.name:
        form = {"type": "string", "pattern": f"^{each.form}$", "maxLength": 64}
        about = each.name[0].upper() + each.name[1:] + "."
        found.append(
            {"name": "name", "in": "path", "required": True, "schema": form, "description": about}
        )
    for name, schema in each.query.items():
        found.append({"name": name, "in": "query", "schema": dict(schema)})
    return found


def _as_sent(schema: Any) -> Any:
    """A schema of msgspec's as its answers are: what is no finite number is sent as null."""
    if isinstance(schema, list):
        return [_as_sent(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _as_sent(value) for key, value in schema.items()}
    if found.get("type") == "number":
        found["type"] = ["number", "null"]
    return found
