"""The page's audit is its operators' alone; what evictions have destroyed is for all to see."""

from __future__ import annotations

import asyncio

import pytest
import requests
import schemathesis
from schemathesis.core.transport import Response

from federator.audit.chain import AuditAct
from federator.audit.latest import LatestActs
from federator.model.workload import SiteName
from federator.web.openapi import openapi_document
from federator.wire.agent_protocol import ClientCall
from federator.wire.audit_messages import AuditCall, AuditReply
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.replies import Reply
from tests.fakes.page_client import HOST, Answered, PageClient, visit
from tests.fakes.page_daemon import HOSTILE, DecidingDaemon, MadeUpDaemon, config_of, small_fleet

WEB = {
    "account": "federator-web",
    "operators": ["ada"],
    "proxies": ["127.0.0.1"],
    "user_header": "X-User",
}
AS_ADA = {"X-User": "ada"}


def got(path: str, daemon: MadeUpDaemon, headers: dict[str, str] = AS_ADA) -> Answered:
    async def visiting(client: PageClient) -> Answered:
        return await client.get(path, headers)

    return visit(daemon.ask, config_of(web=WEB), visiting)


@pytest.mark.parametrize("path", ["/audit", "/api/audit", "/audit?who=ada"])
@pytest.mark.parametrize("headers", [{}, {"X-User": "bob"}, {"Authorization": "Bearer ada"}])
def test_nobody_but_an_operator_sees_the_audit_and_the_daemon_is_not_asked(
    path: str, headers: dict[str, str]
) -> None:
    daemon = MadeUpDaemon()
    answer = got(path, daemon, headers)
    assert answer.status == 404
    assert "operators alone" in answer.text
    assert daemon.asked["AuditCall"] == 0
    assert "/audit" not in got("/", daemon, headers).text


def test_an_operator_sees_who_did_what_and_what_was_refused() -> None:
    answer = got("/audit", MadeUpDaemon())
    assert answer.status == 200
    assert answer.text.count("<h1") == 1
    assert "ada is no operator" in answer.text
    assert 'href="/audit" aria-current="page"' in answer.text


def test_the_audit_is_filtered_by_act_and_user() -> None:
    daemon = MadeUpDaemon()
    rows = got("/api/audit?act=drain_site&who=ada", daemon).json["rows"]
    assert {(row["act"], row["by"]) for row in rows} == {("drain_site", "ada")}
    found = got("/api/audit?act=nothing", daemon).json
    assert found["rows"] == []
    assert found["acts"] == ["cancel_asked", "drain_site"]


def test_hostile_words_of_the_audit_are_text() -> None:
    text = got("/audit?who=%3Cscript%3E", MadeUpDaemon(names=HOSTILE, users=HOSTILE)).text
    text += got("/audit", MadeUpDaemon(names=HOSTILE, users=HOSTILE)).text
    assert text.count("<script") == 2  # each page's own
    assert "<img" not in text
    assert "\u202e" not in text


def test_the_audit_as_json_is_as_the_document_says() -> None:
    answer = got("/api/audit", MadeUpDaemon(names=HOSTILE))
    schema = schemathesis.openapi.from_dict(openapi_document())
    prepared = requests.Request("GET", f"http://{HOST}/api/audit").prepare()
    headers = {"content-type": ["application/json"]}
    schema["/api/audit"]["GET"].validate_response(
        Response(answer.status, headers, answer.body, prepared, 0.0, False)
    )


def test_the_daemon_tells_the_page_its_last_acts_or_that_it_keeps_none() -> None:
    daemon = DecidingDaemon(small_fleet(), config_of(web=WEB))

    async def visiting(client: PageClient) -> Answered:
        return await client.get("/audit", AS_ADA)

    assert "keeps no audit" in visit(daemon.ask, config_of(web=WEB), visiting).text
    daemon.api.audited = LatestActs()
    daemon.api.audited.add(7, AuditAct(at_s=1.0, act="drain", by="eve", on="alpine"))
    text = visit(daemon.ask, config_of(web=WEB), visiting).text
    assert "keeps no audit" not in text
    assert "<bdi>eve</bdi>" in text


def test_operations_tell_what_evictions_have_destroyed_and_for_whom() -> None:
    daemon = MadeUpDaemon()
    lost = got("/api/operations", daemon, {}).json["lost"]
    assert lost == [
        {"tenant": "vision", "lost_gpu_s": 45_000.0, "caused_gpu_s": 0.0},
        {"tenant": "nlp", "lost_gpu_s": 0.0, "caused_gpu_s": 45_000.0},
    ]
    assert "12.5 GPU-h in all" in got("/operations", daemon, {}).text


@pytest.mark.parametrize(
    ("account", "is_told"), [("root", True), ("federator-web", True), ("ada", False)]
)
def test_the_daemon_tells_its_operators_and_the_pages_account_alone(
    account: str, is_told: bool
) -> None:
    daemon = DecidingDaemon(small_fleet(), config_of(web=WEB), account)
    reply = asyncio.run(daemon.ask(AuditCall()))
    assert isinstance(reply, AuditReply if is_told else ErrorReply)


def test_at_a_site_nobody_is_told_of_the_audit() -> None:
    daemon, replies = DecidingDaemon(small_fleet(), config_of(web=WEB)), list[Reply]()
    call = ClientCall(call_id=1, user="root", call=AuditCall())
    daemon.api.take(call, SiteName("alpine"), replies.append)
    (reply,) = replies
    assert isinstance(reply, ErrorReply)
    assert reply.kind is ErrorKind.DENIED
