"""The screen of ``federator top``, by its keys, without a terminal."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input, Static

from federator.cli.top_feed import TopFeed, brief
from federator.cli.top_screen import QueueRows, TopScreen
from federator.errors import SiteUnavailable
from federator.wire.client_protocol import Call, QueueCall, QueueReply, QueueRow, StatusCall
from tests.unit.cli.test_status import STATUS
from tests.unit.cli.test_top_feed import row

ROWS = (
    row(1, "RUNNING", site="alpine", node_names=("a1",)),
    row(2, user="bob"),
    row(3, name="eval"),
    row(4, "FAILED", user="bob", name="torn\x1b[2J"),
)


class Daemon:
    """Answers as the daemon would."""

    def __init__(self, rows: Sequence[QueueRow] = ROWS) -> None:
        self.rows = tuple(rows)
        self.calls: list[Call] = []
        self.away = False
        self.caller = ""

    def __call__(self, call: Call) -> object:
        self.calls.append(call)
        if self.away:
            raise SiteUnavailable("the daemon is away")
        if isinstance(call, StatusCall):
            return STATUS
        assert isinstance(call, QueueCall)
        rows = [each for each in self.rows if not call.ids or str(each.id) in call.ids]
        return QueueReply(rows=tuple(rows), now_s=1000.0, caller=self.caller)


def on_screen(
    act: Callable[[Pilot[None], TopScreen], Awaitable[None]], daemon: Daemon | None = None
) -> None:
    app = TopScreen(TopFeed(brief((), (), ()), 5.0), daemon or Daemon(), "ada")

    async def go() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot, app)
            await act(pilot, app)

    asyncio.run(go())


async def settled(pilot: Pilot[None], app: TopScreen) -> None:
    """All that is due has been asked and answered."""
    for _ in range(4):
        app.tick()
        await app.workers.wait_for_complete()
        await pilot.pause()


async def pressed(pilot: Pilot[None], app: TopScreen, *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot, app)


def text(app: TopScreen, id_: str) -> str:
    return str(app.query_one(id_, Static).render())


def shown(app: TopScreen) -> list[str]:
    """The rows that are drawn."""
    rows = app.query_one(QueueRows)
    lines = [rows.render_line(y).text for y in range(rows.scrollable_content_region.height)]
    assert lines[0].split()[0] == "JOBID"
    return [line.split()[0] for line in lines[1:] if line.strip()]


def test_it_shows_sites_queue_and_the_story_of_the_first() -> None:
    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        assert "Federation demo" in text(app, "#sites")
        assert "4 of 4 jobs" in text(app, "#head")
        assert shown(app) == ["1", "2", "3", "4"]
        assert text(app, "#why").startswith("Workload 1 'train1' of ada")

    on_screen(act)


def test_arrows_select_another_and_its_story_is_asked() -> None:
    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        await pressed(pilot, app, "down", "down")
        assert text(app, "#why").startswith("Workload 3 'eval'")
        await pressed(pilot, app, "end")
        assert text(app, "#why").startswith("Workload 4")
        await pressed(pilot, app, "home")
        assert text(app, "#why").startswith("Workload 1")

    on_screen(act)


def test_a_click_selects_the_row_below_it() -> None:
    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        for line, job in ((3, 3), (0, 3), (1, 1)):
            await pilot.click("#rows", offset=(5, line))
            await settled(pilot, app)
            assert text(app, "#why").startswith(f"Workload {job} ")

    on_screen(act)


def test_filters_by_words_states_and_owner() -> None:
    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        await pressed(pilot, app, "slash", *"bob", "enter")
        assert shown(app) == ["2", "4"]
        assert not app.query_one("#words", Input).display
        await pressed(pilot, app, "w")
        assert shown(app) == ["2"]
        assert text(app, "#why").startswith("Workload 2")
        await pressed(pilot, app, "a")
        assert shown(app) == ["1", "2", "3", "4"]
        await pressed(pilot, app, "r")
        assert shown(app) == ["1"]
        await pressed(pilot, app, "a", "m")
        assert shown(app) == ["1", "3"]

    on_screen(act)


def test_my_own_jobs_are_those_of_my_name_by_the_federation() -> None:
    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        await pressed(pilot, app, "m")
        assert shown(app) == ["2", "4"]

    daemon = Daemon()
    daemon.caller = "bob"
    on_screen(act, daemon)


def test_keys_that_come_at_once_are_all_heard() -> None:
    """As from a paste, or while the machine is slow; a slash is a word's, too."""

    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        for key in ("slash", "b", "o", "slash"):
            app.post_message(Key(key, "/" if key == "slash" else key))
        await settled(pilot, app)
        assert app.query_one("#words", Input).value == "bo/"

    on_screen(act)


def test_a_selected_job_stays_selected_when_rows_change() -> None:
    daemon = Daemon()

    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        await pressed(pilot, app, "down", "down")
        daemon.rows = ROWS[2:]
        await pressed(pilot, app, "u")
        assert shown(app) == ["3", "4"]
        assert text(app, "#why").startswith("Workload 3")

    on_screen(act, daemon)


def test_names_cannot_move_the_cursor_of_a_terminal() -> None:
    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        rows = app.query_one(QueueRows)
        assert "\x1b" not in rows.render_line(4).text
        await pressed(pilot, app, "end")
        assert "\x1b" not in text(app, "#why")

    on_screen(act)


def test_a_daemon_that_is_away_is_said_and_the_last_rows_stay() -> None:
    daemon = Daemon()

    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        daemon.away = True
        await pressed(pilot, app, "u")
        assert "no answer: the daemon is away" in text(app, "#head")
        assert shown(app) == ["1", "2", "3", "4"]

    on_screen(act, daemon)


def test_a_pause_asks_nothing() -> None:
    daemon = Daemon()

    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        before = len(daemon.calls)
        await pressed(pilot, app, "space", "u")
        assert len(daemon.calls) == before
        assert "paused" in text(app, "#head")
        await pressed(pilot, app, "space", "u")
        assert len(daemon.calls) > before

    on_screen(act, daemon)


def test_one_that_is_selected_in_a_pause_is_asked_of_and_nothing_else() -> None:
    daemon = Daemon()

    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        await pressed(pilot, app, "space", "u")
        before = len(daemon.calls)
        await pressed(pilot, app, "down", "down")
        assert text(app, "#why").startswith("Workload 3 'eval'")
        asked = daemon.calls[before:]
        assert {call.ids for call in asked if isinstance(call, QueueCall)} <= {("2",), ("3",)}
        assert len(asked) <= 2

    on_screen(act, daemon)


def test_one_call_is_under_way_at_a_time_and_quitting_waits_for_none() -> None:
    let_go = threading.Event()
    calls: list[Call] = []

    def hang(call: Call) -> object:
        calls.append(call)
        let_go.wait(30.0)
        raise SiteUnavailable("too late")

    app = TopScreen(TopFeed(brief((), (), ()), 5.0), hang, "ada")

    async def go() -> None:
        async with app.run_test() as pilot:
            for _ in range(3):
                app.tick()
            await pilot.pause()
            await pilot.press("q")

    began_s = time.monotonic()
    asyncio.run(go())
    assert time.monotonic() - began_s < 15.0
    assert len(calls) == 1
    let_go.set()


def test_of_a_long_queue_only_what_is_seen_is_drawn(tmp_path: Path) -> None:
    daemon = Daemon([row(id_) for id_ in range(1, 10_001)])

    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        rows, drawn = app.query_one(QueueRows), []
        draw = rows.render_line
        rows.render_line = lambda y: drawn.append(y) or draw(y)  # type: ignore
        await pressed(pilot, app, "pagedown", "end")
        assert shown(app)[-1] == "10000"
        assert text(app, "#why").startswith("Workload 10000 ")
        assert len(drawn) < 1000

    on_screen(act, daemon)


def test_a_filter_far_down_a_long_queue_shows_what_it_leaves() -> None:
    daemon = Daemon([row(id_) for id_ in range(1, 1_001)])

    async def act(pilot: Pilot[None], app: TopScreen) -> None:
        await pressed(pilot, app, "end")
        await pressed(pilot, app, "slash", *"train77", "enter")
        assert shown(app) == ["77", *(str(id_) for id_ in range(770, 780))]
        assert text(app, "#why").startswith("Workload 779 ")
        await pressed(pilot, app, "escape")
        assert "779" in shown(app)

    on_screen(act, daemon)
