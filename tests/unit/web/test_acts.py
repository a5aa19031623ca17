"""Who may do what through the page, and whose word is believed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from federator.errors import ConfigError
from federator.faults.clock import VirtualClock
from federator.model.lifecycle import WorkloadState
from federator.model.workload import SiteName, WorkloadId
from federator.web.tokens import FORM_S, SESSION_S, FormProofs, Sessions, TokenFile, new_token
from federator.wire.agent_protocol import ClientCall
from federator.wire.client_protocol import (
    CancelCall,
    CancelReply,
    ControlCall,
    DrainCall,
    DrainReply,
    ErrorReply,
    SpokenCall,
)
from tests.fakes.build import draft, gang
from tests.fakes.page_client import Answered, PageClient, visit
from tests.fakes.page_daemon import DecidingDaemon, MadeUpDaemon, config_of, small_fleet

PROXIED = {
    "account": "federator-web",
    "operators": ["zoe"],
    "proxies": ["127.0.0.1"],
    "user_header": "X-Remote-User",
}


class Page:
    """A page over a deciding daemon, with a workload of ada's."""

    def __init__(self, **web: object) -> None:
        self.config = config_of(web=PROXIED | web)
        self.federation = small_fleet()
        self.job = self.federation.submit(draft(gang(1), user="ada"))
        self.federation.run_for(5.0)
        self.daemon = DecidingDaemon(self.federation, self.config)

    def act(
        self,
        user: str,
        verb: str,
        target: str = "",
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Answered:
        """What a user's confirmed act is answered; ``form`` differs from what the page made."""
        target = target or str(self.job)

        async def visiting(client: PageClient) -> Answered:
            who = {"x-remote-user": user} if user else {}
            asked = await client.get(f"/confirm?verb={verb}&target={target}", who)
            fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
            return await client.post("/act", fields | dict(form or {}), who | dict(headers or {}))

        return visit(self.daemon.ask, self.config, visiting)

    @property
    def state(self) -> WorkloadState:
        return self.federation.state(WorkloadId(self.job))


def test_a_user_cancels_a_job_of_their_own_after_a_confirmation() -> None:
    page = Page()
    answer = page.act("ada", "cancel")
    assert answer.status == 200
    assert "cancel: 1 workload" in answer.text
    assert page.state in (WorkloadState.CANCELLING, WorkloadState.CANCELLED)


def test_the_daemon_refuses_a_user_another_ones_job_whatever_the_page_says() -> None:
    page = Page()
    answer = page.act("eve", "cancel")
    assert answer.status == 409
    assert "belongs to another user" in answer.text
    assert page.state is WorkloadState.RUNNING


def test_an_operator_of_the_page_cancels_anybodys_and_drains_a_site() -> None:
    page = Page()
    assert page.act("zoe", "cancel").status == 200
    assert page.act("zoe", "drain", "alpine", form={"reason": "new <switch>"}).status == 200
    drains = page.federation.federation.ledger.drains
    assert [(d.reason, d.by) for d in drains.by_site.values()] == [("new <switch>", "zoe")]
    assert page.act("zoe", "resume", "alpine").status == 200
    assert not drains


def test_who_is_no_operator_drains_nothing() -> None:
    page = Page()
    assert page.act("ada", "drain", "alpine").status == 409
    assert not page.federation.federation.ledger.drains


def test_hold_and_release_are_the_users_own() -> None:
    page = Page()
    waiting = [page.federation.submit(draft(gang(2), user="ada")) for _ in range(3)][-1]
    page.federation.run_for(5.0)
    assert page.federation.state(waiting) is WorkloadState.PENDING
    assert page.act("ada", "hold", str(waiting)).status == 200
    assert page.federation.state(waiting) is WorkloadState.INELIGIBLE
    assert page.act("ada", "release", str(waiting)).status == 200
    assert page.federation.state(waiting) is WorkloadState.PENDING


@pytest.mark.parametrize(
    ("headers", "form", "status"),
    [
        ({}, {"proof": ""}, 403),
        ({}, {"proof": "1.abc"}, 403),
        ({}, {"proof": "99999999999.é"}, 403),
        ({"origin": "https://evil.example"}, {}, 403),
        ({"origin": "null"}, {}, 403),
        ({"sec-fetch-site": "cross-site"}, {}, 403),
        ({"sec-fetch-site": "same-site"}, {}, 403),
        ({"content-type": "text/plain"}, {}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, {}, 415),
        ({}, {"reason": "x" * 20_000}, 413),
        ({}, {"verb": "submit"}, 400),
        ({}, {"target": "1; rm -rf /"}, 400),
        ({}, {"verb": "drain", "target": "../../x"}, 400),
    ],
)
def test_a_form_that_is_not_the_pages_own_is_refused(
    headers: dict[str, str], form: dict[str, str], status: int
) -> None:
    page = Page()
    assert page.act("ada", "cancel", headers=headers, form=form).status == status
    assert page.state is WorkloadState.RUNNING


def test_a_form_made_for_one_user_is_no_form_of_another() -> None:
    page = Page()

    async def visiting(client: PageClient) -> Answered:
        eve = await client.get("/confirm?verb=cancel&target=1", {"x-remote-user": "eve"})
        (proof,) = re.findall(r'name="proof" value="([^"]*)"', eve.text)
        form = {"verb": "cancel", "target": str(page.job), "proof": proof}
        return await client.post("/act", form, {"x-remote-user": "ada"})

    assert visit(page.daemon.ask, page.config, visiting).status == 403
    assert page.state is WorkloadState.RUNNING


def test_an_act_by_get_does_nothing() -> None:
    page = Page()

    async def visiting(client: PageClient) -> Answered:
        path = f"/act?verb=cancel&target={page.job}"
        return await client.get(path, {"x-remote-user": "ada"})

    assert visit(page.daemon.ask, page.config, visiting).status == 405
    assert page.state is WorkloadState.RUNNING


@pytest.mark.parametrize("web", [{"account": ""}, {"proxies": []}, {"proxies": ["10.0.0.1"]}])
def test_a_page_that_may_not_act_for_somebody_acts_for_nobody(web: dict[str, object]) -> None:
    page = Page(**web)
    assert page.act("ada", "cancel").status == 403
    assert page.state is WorkloadState.RUNNING


def test_too_many_acts_at_once_are_refused() -> None:
    page = Page()

    async def visiting(client: PageClient) -> list[int]:
        ada = {"x-remote-user": "ada"}
        asked = await client.get(f"/confirm?verb=hold&target={page.job}", ada)
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
        return [(await client.post("/act", fields, ada)).status for _ in range(25)]

    assert visit(page.daemon.ask, page.config, visiting)[-1] == 429


# ---- the daemon's side ----


def asked_as(account: str, call: SpokenCall) -> object:
    page = Page()
    page.daemon.account = account
    return asyncio.run(page.daemon.ask(call))


CANCEL = SpokenCall(user="ada", call=CancelCall(users=("ada",)))


def test_only_the_account_of_the_page_speaks_for_users() -> None:
    assert isinstance(asked_as("federator-web", CANCEL), CancelReply)
    for account in ("ada", "root", "zoe", ""):
        reply = asked_as(account, CANCEL)
        assert isinstance(reply, ErrorReply)
        assert "may not speak for users" in reply.message


def test_by_default_nobody_speaks_for_users() -> None:
    daemon = DecidingDaemon(small_fleet(), config_of(), account="")
    assert isinstance(asyncio.run(daemon.ask(CANCEL)), ErrorReply)


def test_at_a_site_nobody_speaks_for_users_whatever_they_are_called() -> None:
    page = Page()
    replies: list[object] = []
    asked = ClientCall(call_id=1, user="federator-web", call=CANCEL)
    page.daemon.api.take(asked, SiteName("alpine"), replies.append)
    assert isinstance(replies[0], ErrorReply)


def test_the_daemons_own_operators_are_none_through_the_page() -> None:
    reply = asked_as("federator-web", SpokenCall(user="root", call=DrainCall(site="alpine")))
    assert isinstance(reply, ErrorReply)
    reply = asked_as("federator-web", SpokenCall(user="zoe", call=DrainCall(site="alpine")))
    assert isinstance(reply, DrainReply)


@pytest.mark.parametrize("verb", ["update", "requeue", "uhold", "requeuehold"])
def test_the_page_changes_jobs_in_no_other_way_than_hold_and_release(verb: str) -> None:
    call = ControlCall(verb=verb, ids=("1",), fields={"nice": "-100"})
    reply = asked_as("federator-web", SpokenCall(user="zoe", call=call))
    assert isinstance(reply, ErrorReply)
    assert "may not speak for users" in reply.message


# ---- who asks ----


def who(headers: Mapping[str, str], peer: str = "127.0.0.1", **web: object) -> str:
    async def visiting(client: PageClient) -> str:
        more = (("x-remote-user", "eve"),) if headers.get("twice") else ()
        answer = await client.get("/queue", headers, peer=peer, more=more)
        found = re.search(r'class="who">\s*<a href="/queue\?user=(\w+)"', answer.text)
        return found[1] if found else ""

    return visit(MadeUpDaemon().ask, config_of(web=PROXIED | web), visiting)


ADA = {"x-remote-user": "ada"}


def test_a_header_is_believed_of_a_listed_proxy_alone() -> None:
    assert who(ADA) == "ada"
    assert who(ADA, peer="10.1.2.3") == ""
    assert who(ADA, peer="127.0.0.2") == ""
    assert who(ADA, peer="") == ""
    assert who(ADA | {"x-forwarded-for": "127.0.0.1"}, peer="10.1.2.3") == ""
    assert who(ADA, proxies=["unix"]) == ""


def test_on_a_unix_socket_whoever_may_connect_is_the_proxy_if_that_is_listed() -> None:
    unix = "unix:/run/federator/web.sock"
    assert who(ADA, peer="", listen=unix, proxies=["unix"]) == "ada"
    assert who(ADA, peer="", listen=unix, proxies=["127.0.0.1"]) == ""


@pytest.mark.parametrize("name", ["", "a b", "ada\u00e9", "../x", "x" * 80, "ada,eve"])
def test_a_header_that_names_no_account_names_nobody(name: str) -> None:
    assert who({"x-remote-user": name}) == ""


def test_a_header_that_comes_twice_is_not_believed() -> None:
    assert who(ADA | {"twice": "1"}) == ""


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Path, str]:
    token, line = new_token("ada")
    path = tmp_path / "tokens"
    path.write_text(f"# users' tokens\n{line}\n")
    path.chmod(0o640)
    return path, token


def test_a_token_is_its_users_and_its_file_holds_only_its_hash(tokens: tuple[Path, str]) -> None:
    path, token = tokens
    assert token not in path.read_text()

    async def visiting(client: PageClient) -> list[int]:
        ways = [f"Bearer {token}", f"Bearer {token}x", "Bearer ", f"Basic {token}"]
        asked = "/confirm?verb=cancel&target=1"
        return [(await client.get(asked, {"authorization": way})).status for way in ways]

    config = config_of(web={"account": "federator-web"})
    assert visit(MadeUpDaemon().ask, config, visiting, path) == [200, 403, 403, 403]


def test_a_browser_gives_its_token_once_and_has_a_cookie_that_scripts_cannot_read(
    tokens: tuple[Path, str],
) -> None:
    path, token = tokens

    async def visiting(client: PageClient) -> tuple[Answered, Answered, Answered, int]:
        wrong = await client.post("/login", {"token": "fedweb_no"})
        right = await client.post("/login", {"token": token})
        cookie = right.header("set-cookie").partition(";")[0]
        seen = await client.get("/queue", {"cookie": cookie})
        foreign = await client.post("/login", {"token": token}, {"origin": "https://evil.example"})
        return wrong, right, seen, foreign.status

    wrong, right, seen, foreign = visit(MadeUpDaemon().ask, config_of(), visiting, path)
    assert (wrong.status, right.status, foreign) == (403, 303, 403)
    flags = right.header("set-cookie").lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    assert "/queue?user=ada" in seen.text


def test_a_session_ends_with_its_time_its_token_and_its_users_word(
    tokens: tuple[Path, str],
) -> None:
    path, token = tokens
    clock = VirtualClock(0.0)
    sessions = Sessions(TokenFile(path), clock)
    name = sessions.begin(token)
    assert sessions.user_of(name) == "ada"
    sessions.end(name)
    assert sessions.user_of(name) == ""
    name = sessions.begin(token)
    clock.now_s += SESSION_S + 1
    assert sessions.user_of(name) == ""
    name = sessions.begin(token)
    path.write_text("")
    assert sessions.user_of(name) == ""


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("sha256:abc ada\n", 0o640, "tokens:1: expected"),
        (f"sha256:{'0' * 64} a;b\n", 0o640, "tokens:1: expected"),
        (f"sha256:{'0' * 64} ada\n", 0o666, "chmod go-w"),
    ],
)
def test_a_file_of_tokens_that_is_wrong_is_refused_at_the_start(
    tmp_path: Path, text: str, mode: int, says: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=re.escape(says)):
        TokenFile(path)


def test_a_form_is_good_for_an_hour() -> None:
    clock = VirtualClock(0.0)
    proofs = FormProofs(clock)
    proof = proofs.new("ada")
    assert proofs.holds("ada", proof)
    assert not proofs.holds("eve", proof)
    assert not FormProofs(clock).holds("ada", proof)
    clock.now_s += FORM_S + 1
    assert not proofs.holds("ada", proof)
