"""The screen of ``federator top``; needs the extra ``top``.

Only the rows that are seen are drawn, so a long queue costs no more than a short one.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, Static

from federator.cli.colour import of_job, of_site
from federator.cli.explain import render as story
from federator.cli.job_states import WAITS
from federator.cli.queue_table import render
from federator.cli.status import site_lines
from federator.cli.text import printable
from federator.cli.top_feed import TopFeed, matching
from federator.errors import FederatorError
from federator.wire.client_protocol import Call, QueueRow, StatusReply

TICK_S: Final = 1.0
_RUNNING: Final = "RUNNING"
_PLAIN: Final = Style()
_CURSOR: Final = Style(reverse=True)
_HEADER: Final = Style(bold=True, underline=True)

Ask = Callable[[Call], object]


def colour(row: QueueRow) -> Style:
    """Of a row: what runs, what waits, what goes wrong."""
    found = of_job(row)
    return Style(color=found.name.lower()) if found is not None else _PLAIN


class QueueRows(ScrollView, can_focus=True):
    """The rows below a line that names their columns, and which of them is selected."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "move(-1000000000)", "First", show=False),
        Binding("end,G", "move(1000000000)", "Last", show=False),
    ]

    class Selected(Message):
        """Another job is selected; 0: there is none."""

        def __init__(self, job: int) -> None:
            self.job = job
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="rows")
        self._rows: Sequence[QueueRow] = ()
        self._now_s = 0.0
        self._at = 0
        self._job = 0

    def show(self, rows: Sequence[QueueRow], now_s: float) -> None:
        """Show these; the selected job stays selected while it is among them."""
        self._rows, self._now_s = rows, now_s
        kept = next((k for k, row in enumerate(rows) if row.id == self._job), None)
        self.virtual_size = Size(200, 1 + len(rows))
        self._select(self._at if kept is None else kept)
        self.call_after_refresh(self._show_cursor)  # how far it can scroll is known by then

    def _select(self, at: int) -> None:
        self._at = max(0, min(at, len(self._rows) - 1))
        job = self._rows[self._at].id if self._rows else 0
        if job != self._job:
            self._job = job
            self.post_message(self.Selected(job))
        self._show_cursor()

    def _show_cursor(self) -> None:
        first, height = self.scroll_offset.y, self.scrollable_content_region.height - 1
        if self._at < first:
            self.scroll_to(y=self._at, animate=False)
        elif height > 0 and self._at >= first + height:
            self.scroll_to(y=self._at - height + 1, animate=False)
        self.refresh()

    def action_move(self, by: int) -> None:
        self._select(self._at + by)

    def action_page(self, by: int) -> None:
        self._select(self._at + by * max(1, self.scrollable_content_region.height - 2))

    def on_click(self, event: Click) -> None:
        if event.y:
            self._select(event.y - 1 + self.scroll_offset.y)

    def render_line(self, y: int) -> Strip:
        """A line of what is seen; textual asks for no other."""
        left, first = self.scroll_offset
        at, width = y - 1 + first, self.size.width
        if not y:
            text, style = render((), self._now_s, header=True, why=False), _HEADER
        elif at >= len(self._rows):
            return Strip.blank(width)
        else:
            row = self._rows[at]
            text = render((row,), self._now_s, header=False, why=False)
            style = colour(row) + (_CURSOR if at == self._at else _PLAIN)
        return Strip([Segment(text.ljust(left + width), style)]).crop(left, left + width)


class TopScreen(App[None]):
    """The program.

    Args:
        feed: what is to be asked, and is known.
        ask: asks the daemon; called in a thread, one call at a time.
        me: the user who looks.
    """

    TITLE = "federator top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #sites { height: auto; max-height: 40%; }
    #head { height: 1; text-style: bold; }
    #rows { height: 2fr; }
    #words { display: none; height: 1; border: none; padding: 0; }
    #story { height: 1fr; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", priority=True),  # so that no key behind it is lost
        Binding("escape", "unfilter", "No filter", show=False),
        Binding("w", "only('waiting')", "Waiting"),
        Binding("r", "only('running')", "Running"),
        Binding("m", "mine", "Mine"),
        Binding("a", "everything", "All"),
        Binding("space", "pause", "Pause"),
        Binding("u", "again", "Update"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, feed: TopFeed, ask: Ask, me: str) -> None:
        super().__init__()
        self._feed, self._ask, self._me = feed, ask, me
        self._words = self._states = ""
        self._is_mine = self._is_paused = self._is_asking = False

    def compose(self) -> ComposeResult:
        yield Static(id="sites")
        yield Static(id="head")
        yield QueueRows()
        yield Input(placeholder="words: id, name, user, tenant, state, site, reason", id="words")
        with VerticalScroll(id="story"):
            yield Static(id="why")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(QueueRows).focus()
        self.set_interval(TICK_S, self.tick)
        self.tick()

    def tick(self) -> None:
        """Ask one question, if one is due and none is under way."""
        if self._is_asking:
            return
        question = self._feed.next(still=self._is_paused)
        if question is not None:
            self._is_asking = True
            self.run_worker(self._answered(question))

    async def _answered(self, question: Call) -> None:
        try:
            self._feed.take(question, await _in_thread(self._ask, question))
        except FederatorError as error:
            self._feed.failed(question, error)
        finally:
            self._is_asking = False
        self._show()

    # ---- what is shown ----

    def _show(self) -> None:
        feed = self._feed
        if feed.status is not None:
            self.query_one("#sites", Static).update(_sites(feed.status))
        rows = matching(feed.rows, self._words, _STATES[self._states])
        if self._is_mine:
            rows = [row for row in rows if row.user == (feed.caller or self._me)]
        self.query_one(QueueRows).show(rows, feed.at_s)
        self.query_one("#head", Static).update(Text(self._head(len(rows)), no_wrap=True))
        self._show_story()

    def _head(self, shown: int) -> str:
        feed = self._feed
        clock = time.strftime("%H:%M:%S", time.localtime(feed.at_s)) if feed.at_s else "--:--:--"
        words = [f"{clock}  {shown} of {len(feed.rows) + feed.left_off} jobs"]
        words += [self._states] if self._states else []
        words += ["mine"] if self._is_mine else []
        words += [f"with '{self._words}'"] if self._words else []
        words += ["paused"] if self._is_paused else []
        words += [f"no answer: {feed.trouble}"] if feed.trouble else []
        return printable(", ".join(words))

    def _show_story(self) -> None:
        feed = self._feed
        text = story(feed.detail, feed.at_s) if feed.detail is not None else ""
        self.query_one("#why", Static).update(Text(text))

    def on_queue_rows_selected(self, message: QueueRows.Selected) -> None:
        self._feed.select(message.job)
        self._show_story()
        self.tick()

    # ---- keys ----

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key acts now: in the words of a filter a slash is one of them."""
        if action == "filter" and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        words = self.query_one("#words", Input)
        words.display = True
        self.screen.set_focus(words)  # at once: what is typed next is for it

    def on_input_changed(self, event: Input.Changed) -> None:
        self._words = event.value
        self._show()

    def on_input_submitted(self) -> None:
        self.query_one("#words", Input).display = False
        self.screen.set_focus(self.query_one(QueueRows))

    def action_unfilter(self) -> None:
        self.query_one("#words", Input).value = ""
        self.on_input_submitted()

    def action_only(self, states: str) -> None:
        self._states = "" if self._states == states else states
        self._show()

    def action_mine(self) -> None:
        self._is_mine = not self._is_mine
        self._show()

    def action_everything(self) -> None:
        self._states, self._is_mine = "", False
        self.action_unfilter()
        self._show()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._show()

    def action_again(self) -> None:
        self._feed.refresh()
        self.tick()


_STATES: Final = {"": frozenset[str](), "waiting": WAITS, "running": frozenset({_RUNNING})}


def _sites(status: StatusReply) -> Text:
    """The sites; those that are away in red, those that are drained in yellow."""
    text = Text("\n".join(printable(line) for line in site_lines(status)), no_wrap=True)
    for site in status.sites:
        found = of_site(site)
        if found is not None:
            text.highlight_regex(rf"(?m)^{re.escape(site.name)} .*$", found.name.lower())
    return text


async def _in_thread(ask: Ask, question: Call) -> object:
    """As ``asyncio.to_thread``, but the program's end does not wait for an answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[object] = loop.create_future()

    def tell(reply: object, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(reply)

    def act() -> None:
        reply, failure = None, None
        try:
            reply = ask(question)
        except Exception as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, reply, failure)

    threading.Thread(target=act, daemon=True).start()
    return await answer
