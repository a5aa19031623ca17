"""Every view in a real browser: no error, no fault that axe finds, usable at 400 px, up to date."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federator.cli.usage_page import page_of
from federator.usage.rows import FREE_NAMES, HELD_NAMES, UsageReport, UsageRow
from federator.wire.usage_messages import UsageReply
from tests.fakes.page_daemon import HOSTILE, MadeUpDaemon, config_of
from tests.fakes.page_server import served

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: see need_browser")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core")
CHROMIUM = os.environ.get("FEDERATOR_CHROMIUM") or shutil.which("chromium") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: see need_browser in containers/setup.sh"),
]
VIEWS = (
    "/",
    "/sites/site000",
    "/queue",
    "/jobs/4294967296",
    "/jobs/4294967340",
    "/tenants",
    "/passes",
    "/operations",
    "/audit",
    "/confirm?verb=drain&target=site000",
    "/login",
    "/nothing",
)
LOOKS = {"light-1280": ("light", 1280), "dark-400": ("dark", 400)}
PROXIED = {
    "account": "federator-web",
    "operators": ["ada"],
    "proxies": ["127.0.0.1"],
    "user_header": "X-User",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def daemon() -> MadeUpDaemon:
    return MadeUpDaemon(names=("train", *HOSTILE), pending=150)


@pytest.fixture(scope="module")
def url(daemon: MadeUpDaemon) -> Iterator[str]:
    with served(daemon.ask, config_of(web=PROXIED)) as address:
        yield address


class Tab:
    """A tab of a browser; what goes wrong in it is kept."""

    def __init__(self, browser: Any, url: str, look: str = "light-1280", user: str = "ada") -> None:
        scheme, width = LOOKS[look]
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            extra_http_headers={"X-User": user} if user else {},
        )
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self._url = url
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def open(self, path: str) -> Any:
        self.page.goto(self._url + path, wait_until="load")
        return self.page


@pytest.fixture
def tab(browser: Any, url: str) -> Iterator[Tab]:
    opened = Tab(browser, url)
    yield opened
    opened.context.close()
    assert opened.wrong == []


@pytest.mark.parametrize("look", LOOKS)
def test_a_page_of_usage_has_no_error_and_no_fault_of_access_and_fits(
    browser: Any, look: str, tmp_path: Path
) -> None:
    def lines(word: str, count: int, free: dict[str, int]) -> tuple[UsageRow, ...]:
        sums = {f"{name}_gpu_ms": 3_600_000 * (k + 1) for k, name in enumerate(HELD_NAMES)}
        return tuple(
            UsageRow(key=(f"{word}-{k}" * 9,), sums=sums, free=free, supply_gpu_ms=10**9, cost=k)
            for k in range(count)
        )

    def report(by: str, free: dict[str, int]) -> UsageReport:
        (total,) = lines("total", 1, free)
        return UsageReport(
            by=(by,), start_s=0.0, end_s=9e5, at_s=9e5, rows=lines(by, 60, free), total=total
        )

    free = dict.fromkeys(FREE_NAMES, 36_000_000)
    page = page_of(UsageReply(report=report("user", {}), federation="demo"), report("day", free))
    (tmp_path / "usage.html").write_text(page)
    tab = Tab(browser, tmp_path.as_uri(), look)
    try:
        shown = tab.open("/usage.html")
        shown.evaluate("document.querySelector('details').open = true")
        faults = axe.Axe().run(shown).response["violations"]
        assert [(f["id"], [n["html"][:200] for n in f["nodes"][:3]]) for f in faults] == []
        assert shown.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    finally:
        tab.context.close()
    assert tab.wrong == []


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("path", VIEWS)
def test_a_view_has_no_error_and_no_fault_of_access_and_fits(
    browser: Any, url: str, path: str, look: str
) -> None:
    tab = Tab(browser, url, look)
    try:
        page = tab.open(path)
        faults = axe.Axe().run(page).response["violations"]
        assert [(f["id"], [n["html"][:200] for n in f["nodes"][:3]]) for f in faults] == []
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, "the page scrolls sideways"
        folder = os.environ.get("FEDERATOR_SCREENSHOTS")
        if folder:
            name = path.strip("/").replace("/", "-").partition("?")[0] or "fleet"
            page.screenshot(path=str(Path(folder) / f"{name}-{look}.png"))
        expected = ["404"] if path == "/nothing" else []
        assert [w for w in tab.wrong if not any(e in w for e in expected)] == []
    finally:
        tab.context.close()


MANY_SITES = (*VIEWS[:-1], "/sites/site199")


@pytest.fixture(scope="module")
def large(browser: Any) -> Iterator[str]:
    daemon = MadeUpDaemon(names=("train", *HOSTILE), sites=200, nodes=40, pending=2_000)
    with served(daemon.ask, config_of(web=PROXIED)) as address:
        yield address


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("path", MANY_SITES)
def test_a_view_of_200_sites_has_no_error_and_fits(
    browser: Any, large: str, path: str, look: str
) -> None:
    tab = Tab(browser, large, look)
    try:
        page = tab.open(path)
        assert page.locator("h1").count() == 1
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, "the page scrolls sideways"
        assert tab.wrong == []
    finally:
        tab.context.close()


def test_the_queue_is_filtered_sorted_and_paged_by_clicks(tab: Tab) -> None:
    page = tab.open("/queue")
    page.get_by_label("User").select_option("bob")
    page.wait_for_url("**/queue?user=bob*")
    users = page.locator("td[data-of=User]").all_inner_texts()
    assert set(users) == {"bob"}
    page.get_by_role("link", name="GPUs").click()
    page.wait_for_url("**sort=gpus*")
    gpus = [int(text) for text in page.locator("td[data-of=GPUs]").all_inner_texts()]
    assert gpus == sorted(gpus)
    page.get_by_role("link", name="All", exact=True).click()
    page.get_by_role("link", name="Next").first.click()
    page.wait_for_url("**page=2*")
    page.get_by_role("link", name="4294967396", exact=True).click()
    page.wait_for_url("**/jobs/4294967396")
    assert page.locator("h1").inner_text().startswith("Job 4294967396")


def test_news_come_by_themselves_and_leave_what_is_open_and_in_focus(
    tab: Tab, daemon: MadeUpDaemon
) -> None:
    page = tab.open("/sites/site000")
    summary = page.get_by_text("The same as a table")
    summary.click()
    before = page.locator("svg.map path.free").get_attribute("d")
    cell = page.locator("tr[data-key=node-n1] td").nth(2)
    page.evaluate("document.querySelector('tr[data-key=node-n1]').marked = true")
    daemon.turn += 3
    page.wait_for_function(
        "was => document.querySelector('svg.map path.free').getAttribute('d') !== was",
        arg=before,
        timeout=20_000,
    )
    assert page.locator("details").get_attribute("open") is not None
    assert cell.is_visible()
    assert page.evaluate("document.querySelector('tr[data-key=node-n1]').marked") is True
    assert page.evaluate("document.activeElement.textContent") == "The same as a table"


def test_a_page_whose_server_is_gone_says_that_it_is_old(browser: Any) -> None:
    with served(MadeUpDaemon().ask, config_of()) as address:
        tab = Tab(browser, address)
        page = tab.open("/passes")
        assert page.locator("#stale").is_hidden()
    page.locator("#stale").wait_for(state="visible", timeout=15_000)
    tab.context.close()


def test_an_act_is_asked_for_again_before_it_is_done(tab: Tab) -> None:
    page = tab.open("/sites/site000")
    page.get_by_role("link", name="Drain…").click()
    assert "Drain site site000?" in page.locator("h1").inner_text()
    page.get_by_label("Reason").fill("new switch")
    page.get_by_role("button", name="Drain site000").click()
    page.wait_for_url("**/act")
    assert page.locator("h1").inner_text() == "Refused"  # a made-up daemon does nothing
    tab.wrong = [wrong for wrong in tab.wrong if "409" not in wrong]


def test_a_stranger_is_offered_no_act(browser: Any, url: str) -> None:
    tab = Tab(browser, url, user="")
    page = tab.open("/jobs/4294967340")
    assert page.get_by_role("link", name="Cancel").count() == 0
    assert "read only" in page.locator(".who").inner_text()
    tab.context.close()


def test_the_keyboard_reaches_the_content_first(tab: Tab) -> None:
    page = tab.open("/queue")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
