"""What the page shows, to whom, and with which headers."""

from __future__ import annotations

import asyncio
import re
import time
from html.parser import HTMLParser

import pytest
from msgspec import structs

from federator.web.guard import MOST_AT_ONCE
from federator.wire.client_protocol import Call, ErrorReply, NodesCall, NodesReply, QueueCall
from federator.wire.replies import Reply
from tests.fakes.build import draft, gang
from tests.fakes.page_client import Answered, PageClient, visit
from tests.fakes.page_daemon import HOSTILE, DecidingDaemon, MadeUpDaemon, config_of, small_fleet

VIEWS = ("/", "/queue", "/tenants", "/passes", "/operations")
ALL = (*VIEWS, "/sites/site000", "/jobs/4294967296", "/jobs/4294967330")
JSONS = (
    "/api/fleet",
    "/api/sites/site000",
    "/api/queue",
    "/api/jobs/4294967296",
    "/api/tenants",
    "/api/passes",
    "/api/operations",
)
BELIEVES = {"account": "federator-web", "proxies": ["127.0.0.1"], "user_header": "X-User"}


def got(path: str, daemon: MadeUpDaemon | None = None, **headers: str) -> Answered:
    async def visiting(client: PageClient) -> Answered:
        return await client.get(path, headers)

    daemon = daemon or MadeUpDaemon()
    return visit(daemon.ask, config_of(web=BELIEVES), visiting)


@pytest.mark.parametrize("path", ALL)
def test_every_view_is_a_page_of_one_heading_and_main(path: str) -> None:
    answer = got(path)
    assert answer.status == 200
    assert answer.header("content-type").startswith("text/html")
    assert answer.text.count("<h1") == answer.text.count("<main") == 1


@pytest.mark.parametrize("path", JSONS)
def test_every_view_is_json_of_a_named_schema_too(path: str) -> None:
    answer = got(path)
    assert answer.status == 200
    assert answer.header("content-type") == "application/json"
    assert answer.json["schema"] == 1


@pytest.mark.parametrize("path", [*ALL, *JSONS, "/static/page.js", "/nothing", "/healthz"])
def test_no_answer_lacks_the_headers_that_bind_browsers(path: str) -> None:
    answer = got(path)
    policy = answer.header("content-security-policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.header("x-frame-options") == "DENY"
    assert answer.header("x-content-type-options") == "nosniff"


class Elements(HTMLParser):
    """Collects the elements of a page, with what a policy without unsafe-inline would break."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.inline: list[str] = []
        self.elsewhere: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
            if name in ("src", "href", "action") and not (value or "").startswith(("/", "#")):
                self.elsewhere.append(f"{tag} {value}")


@pytest.mark.parametrize("path", ALL)
def test_a_page_has_nothing_inline_and_fetches_nothing_from_elsewhere(path: str) -> None:
    found = Elements(got(path).text)
    assert found.inline == []
    assert found.elsewhere == []
    assert found.tags.count("script") == 1


@pytest.mark.parametrize("path", ALL)
def test_hostile_names_are_text_and_make_no_element(path: str) -> None:
    plain = Elements(got(path, MadeUpDaemon(names=("train",), users=("ada",))).text)
    hostile = got(path, MadeUpDaemon(names=HOSTILE, users=HOSTILE))
    found = Elements(hostile.text)
    assert set(found.tags) <= {*plain.tags, "option", "div"}
    assert found.tags.count("img") == found.inline.count("img onerror") == 0
    assert "\x1b" not in hostile.text
    assert "\u202e" not in hostile.text


def test_a_name_of_5000_characters_is_cut_and_stays_in_its_title() -> None:
    (row,) = re.findall(r"<td data-of=\"Name\">(.*?)</td>", got("/queue", one("x" * 5000)).text)
    assert re.fullmatch(r'<bdi title="x{2000}">x{47}…</bdi>', row)


def one(name: str) -> MadeUpDaemon:
    return MadeUpDaemon(names=(name,), running=1, pending=0)


def test_the_queue_is_filtered_sorted_and_paged_on_the_server() -> None:
    daemon = MadeUpDaemon(pending=250, running=10)
    rows = got("/api/queue?state=PENDING&user=ada&sort=-gpus&per_page=20&page=2", daemon).json
    assert len(rows["rows"]) == 20
    assert rows["page"] == 2
    assert {row["user"] for row in rows["rows"]} == {"ada"}
    gpus = [row["gpus"] for row in rows["rows"]]
    assert gpus == sorted(gpus, reverse=True)
    assert rows["states"] == {"PENDING": 250, "RUNNING": 10}
    assert rows["total"] == sum(daemon.row(k).user == "ada" for k in range(10, 260))


def test_a_queue_of_10_000_pending_takes_less_than_half_a_second_of_cpu() -> None:
    daemon = MadeUpDaemon(pending=10_000)

    async def visiting(client: PageClient) -> float:
        await client.get("/queue")  # the daemon is asked, and templates are compiled
        took_s = []
        for k in range(3):  # each is rendered anew
            before_s = time.process_time()
            answer = await client.get(f"/queue?sort=-gpus&user=ada&x={k}")
            took_s.append(time.process_time() - before_s)
            assert answer.text.count("<tr data-key") == 100
        return min(took_s)

    assert visit(daemon.ask, config_of(), visiting) < 0.5  # 0.1 s where nothing else runs


@pytest.mark.parametrize(
    "query", ["page=0", "page=x", "page=" + "9" * 40, "sort=nothing", "per_page=-1", "a=1&a=2"]
)
def test_a_query_that_makes_no_sense_is_as_by_default(query: str) -> None:
    assert got(f"/queue?{query}").status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/sites/nowhere", 404),
        ("/sites/..%2f..%2fetc%2fpasswd", 404),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
        ("/jobs/99", 404),
        ("/jobs/-1", 404),
        ("/jobs/" + "9" * 30, 404),
        ("/jobs/٣", 404),
        ("/api/jobs/abc", 404),
        ("/queue?name=" + "x" * 5000, 414),
        ("/" + "x" * 600, 414),
    ],
)
def test_what_there_is_not_is_refused(path: str, status: int) -> None:
    assert got(path).status == status


def test_another_hosts_name_is_refused_so_that_no_foreign_script_reads_the_page() -> None:
    assert got("/", host="evil.example").status == 421
    assert got("/", host="localhost:8410").status == 200
    assert got("/", host="127.0.0.1:9999").status == 200


def test_a_browser_that_has_the_page_already_is_told_so() -> None:
    async def visiting(client: PageClient) -> tuple[int, bytes]:
        first = await client.get("/passes")
        again = await client.get("/passes", {"if-none-match": first.header("etag")})
        return again.status, again.body

    assert visit(MadeUpDaemon().ask, config_of(), visiting) == (304, b"")


def test_a_daemon_that_refuses_is_an_error_page_with_its_words() -> None:
    answer = got("/queue", MadeUpDaemon(fails="the daemon <is> away"))
    assert answer.status == 503
    assert "the daemon &lt;is&gt; away" in answer.text
    assert got("/api/queue", MadeUpDaemon(fails="away")).json == {"schema": 1, "error": "away"}
    assert got("/healthz", MadeUpDaemon(fails="away")).status == 503


def test_what_was_known_is_shown_on_while_the_daemon_is_away() -> None:
    daemon = MadeUpDaemon()

    async def visiting(client: PageClient) -> Answered:
        await client.get("/queue")
        daemon.fails = "it starts anew"
        feed = client.page.feed
        while not feed.status.trouble:
            await feed.news(5.0)
        return await client.get("/queue")

    answer = visit(daemon.ask, config_of(), visiting, clock=time.monotonic)
    assert answer.status == 200
    assert "it starts anew" in answer.text
    assert "4294967296" in answer.text


# ---- over the daemon's own API ----


def deciding(privacy: str = "open", **web: object) -> DecidingDaemon:
    federation = small_fleet()
    for user, tenant in (("ada", "vision"), ("eve", "nlp")):
        for nodes in (1, 2):
            federation.submit(draft(gang(nodes), user=user, tenant=tenant, name=f"of-{user}"))
    federation.run_for(5.0)
    return DecidingDaemon(federation, config_of(privacy=privacy, web=BELIEVES | web))


def names_seen(daemon: DecidingDaemon, privacy: str, user: str = "", **web: object) -> set[str]:
    async def visiting(client: PageClient) -> set[str]:
        headers = {"x-user": user} if user else {}
        return {row["name"] for row in (await client.get("/api/queue", headers)).json["rows"]}

    config = config_of(privacy=privacy, web=BELIEVES | web)
    return visit(daemon.ask, config, visiting)


@pytest.mark.parametrize(
    ("privacy", "user", "names"),
    [
        ("open", "", {"of-ada", "of-eve"}),
        ("own", "", set()),
        ("own", "ada", {"of-ada"}),
        ("tenant", "bob", {"of-ada"}),
        ("tenant", "eve", {"of-eve"}),
        ("tenant", "root", set()),
    ],
)
def test_a_user_sees_through_the_page_what_fsqueue_shows(
    privacy: str, user: str, names: set[str]
) -> None:
    assert names_seen(deciding(privacy), privacy, user) == names


def test_an_operator_sees_all_and_a_page_without_an_account_nothing_private() -> None:
    assert names_seen(deciding("own", operators=["zoe"]), "own", "zoe", operators=["zoe"]) == {
        "of-ada",
        "of-eve",
    }
    assert names_seen(deciding("own", account=""), "own", "ada", account="") == set()


def test_a_job_that_is_not_ones_own_is_like_one_that_is_not_there() -> None:
    daemon = deciding("own")
    entries = daemon.federation.federation.ledger.entries.values()
    (theirs, *_) = [e.workload.id for e in entries if e.workload.user == "eve"]

    async def visiting(client: PageClient) -> tuple[Answered, Answered, Answered]:
        ada = {"x-user": "ada"}
        return (
            await client.get(f"/api/jobs/{theirs}", ada),
            await client.get("/api/jobs/99", ada),
            await client.get(f"/api/jobs/{theirs}", {"x-user": "eve"}),
        )

    config = config_of(privacy="own", web=BELIEVES)
    hidden, absent, own = visit(daemon.ask, config, visiting)
    assert hidden.status == absent.status == 404
    assert hidden.json == {"schema": 1, "error": "there is no such job, or it is not yours to see"}
    assert hidden.json == absent.json
    assert own.status == 200


def test_a_story_holds_bids_with_all_terms_attempts_and_refusals() -> None:
    daemon = deciding()
    entries = list(daemon.federation.federation.ledger.entries.values())
    runs = next(e.workload.id for e in entries if e.site)
    waits = next(e.workload.id for e in entries if not e.site)

    async def visiting(client: PageClient) -> tuple[Answered, Answered]:
        return await client.get(f"/api/jobs/{runs}"), await client.get(f"/api/jobs/{waits}")

    running, waiting = visit(daemon.ask, config_of(web=BELIEVES), visiting)
    taken = [site for site in running.json["sites"] if site["taken"]]
    assert len(taken) == 1
    assert set(taken[0]["score"]) >= {"preempts", "victims", "locality_cost", "fragmentation"}
    assert [a["site"] for a in running.json["attempts"]] == [taken[0]["site"]]
    assert [event["what"].partition(":")[0] for event in running.json["events"]][:2] == [
        "submitted",
        "awarded",
    ]
    assert {site["kind"] for site in waiting.json["sites"]} <= {"wait", "reject"}
    assert waiting.json["job"]["reason"]


def test_the_fleet_tells_owners_from_guests_and_sums_up() -> None:
    daemon = deciding()

    async def visiting(client: PageClient) -> Answered:
        return await client.get("/api/fleet")

    fleet = visit(daemon.ask, config_of(web=BELIEVES), visiting).json
    assert sum(fleet["gpus"].values()) == 4 * 8
    assert fleet["gpus"]["owner"] == 8  # of ada's tenant, which has a quota
    assert fleet["gpus"]["guest"] == 16 + 8  # of ada's beyond that, and of eve's, which has none
    assert fleet["gpus"]["local"] == 0
    assert [row["gpu_type"] for row in fleet["free_by_type"]] == ["a100"]
    assert fleet["free_by_type"][0]["whole_nodes"] == max(
        site["free_by_type"][0]["whole_nodes"] for site in fleet["sites"]
    )


def test_an_array_is_shown_with_its_tasks_and_each_task_alone() -> None:
    federation = small_fleet()
    first = federation.submit(draft(gang(1), array_indices=(3, 5, 7)))
    federation.run_for(5.0)
    daemon = DecidingDaemon(federation, config_of(web=BELIEVES))

    async def visiting(client: PageClient) -> tuple[Answered, Answered, Answered]:
        return (
            await client.get(f"/api/jobs/{first}"),
            await client.get(f"/api/jobs/{first}_5"),
            await client.get(f"/jobs/{first}"),
        )

    array, task, page = visit(daemon.ask, config_of(web=BELIEVES), visiting)
    assert [each["job"]["id"] for each in array.json["tasks"]] == [
        f"{first}_{k}" for k in (3, 5, 7)
    ]
    assert task.json["job"]["id"] == f"{first}_5"
    assert page.text.count("RUNNING</span>") == 3


def test_many_requests_at_once_ask_the_daemon_once() -> None:
    daemon = MadeUpDaemon()

    async def visiting(client: PageClient) -> set[int]:
        paths = [*VIEWS, *JSONS] * 40
        answers = await at_once(client, paths)
        return {answer.status for answer in answers}

    assert visit(daemon.ask, config_of(), visiting) == {200}
    assert daemon.asked.pop("QueueCall") == 2  # the queue, and the story of a job
    assert max(daemon.asked.values()) == 1


async def at_once(client: PageClient, paths: list[str]) -> list[Answered]:
    return list(await asyncio.gather(*(client.get(path) for path in paths)))


def test_ten_thousand_at_once_are_served_or_told_to_come_back_and_none_is_the_daemons() -> None:
    daemon = MadeUpDaemon()

    async def visiting(client: PageClient) -> list[Answered]:
        return await at_once(client, [VIEWS[k % len(VIEWS)] for k in range(10_000)])

    answers = visit(daemon.ask, config_of(), visiting)
    served = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 503]
    assert len(served) == MOST_AT_ONCE
    assert len(served) + len(refused) == 10_000
    assert {answer.header("retry-after") for answer in refused} == {"5"}
    assert max(daemon.asked.values()) <= 2


def test_a_story_asked_for_by_many_is_asked_of_the_daemon_once() -> None:
    daemon = MadeUpDaemon()

    async def visiting(client: PageClient) -> set[int]:
        paths = [f"/api/jobs/{4294967296 + k % 20}" for k in range(200)]
        return {answer.status for answer in await at_once(client, paths)}

    assert visit(daemon.ask, config_of(), visiting) == {200}
    assert daemon.asked["AccountingCall"] == 1
    assert daemon.asked["QueueCall"] <= 2  # the queue itself is looked at, too


def test_an_error_of_one_story_does_not_stay() -> None:
    daemon = MadeUpDaemon()
    broken = [True]

    async def ask(call: Call) -> Reply:
        if isinstance(call, QueueCall) and call.ids and broken.pop():
            broken.append(False)
            return ErrorReply(message="not now")
        return await daemon.ask(structs.replace(call) if isinstance(call, QueueCall) else call)

    async def visiting(client: PageClient) -> tuple[int, int]:
        first = await client.get("/api/jobs/4294967296")
        second = await client.get("/api/jobs/4294967296")
        return first.status, second.status

    assert visit(ask, config_of(), visiting) == (503, 200)


def test_a_site_whose_list_of_nodes_is_no_text_keeps_nobody_from_the_others() -> None:
    daemon = MadeUpDaemon()
    listed = daemon.listed

    def broken(call: NodesCall) -> NodesReply:
        first, *others = listed(call).sites
        bad = first.nodes.replace(b"rack0", b"rack\xff")
        return NodesReply(sites=(structs.replace(first, nodes=bad), *others))

    daemon.listed = broken  # type: ignore[method-assign]
    answer = got("/api/fleet", daemon)
    assert answer.status == 200
    site, *others = answer.json["sites"]
    assert site["detail"] == "its list of nodes cannot be read"
    assert all(each["nodes"] for each in others)
    assert got("/", daemon).status == got("/sites/site000", daemon).status == 200
