"""The agent's log: one line of JSON for each order that it takes and each answer that it gives.

Lines go to the site's syslog, where its admins look, and never to standard error: that is the
daemon's, for the last words of an agent that fails. A syslog that takes no more keeps nobody
waiting: some lines wait for it in a thread, and beyond these they are dropped. docs/formats.md
lists the events.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from logging.handlers import QueueHandler, SysLogHandler
from pathlib import Path
from typing import Any, Final

import msgspec

from federator.model.site_message import (
    AttemptAbsent,
    CancelOrder,
    LaunchAccepted,
    LaunchDeclined,
    Report,
    ShrinkOrder,
)
from federator.model.site_reader import SiteReader
from federator.model.tagged import Message
from federator.wire.agent_protocol import (
    CancelFailed,
    Hello,
    LaunchOrder,
    PreemptOrder,
    Trouble,
    Welcome,
)
from federator.wire.client_protocol import frame

LEVELS: Final = ("debug", "info", "warning", "error")
DEV_LOG: Final = Path("/dev/log")
QUEUED_AT_MOST: Final = 1000  # lines that syslog has not taken yet
LAST_LINES_S: Final = 1.0  # an agent that ends waits so long for syslog, twice at most

_log: Final = logging.getLogger("federator.agent")
_log.addHandler(logging.NullHandler())
_log.propagate = False  # standard error belongs to the daemon


def log_to_syslog(level: str, socket: Path = DEV_LOG) -> None:
    """Send lines of this level and above to syslog; nowhere while the host has none."""
    _log.setLevel(level.upper())
    syslog = _Syslog(str(socket), facility=SysLogHandler.LOG_DAEMON)
    syslog.ident = "federator-agent: "
    _log.addHandler(_Beside(syslog))


class _Syslog(SysLogHandler):
    """Drops a line that syslog does not take."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        """Say nothing: there is nobody to say it to."""


class _Beside(QueueHandler):
    """Hands lines to a thread, which may wait for as long as another handler keeps it waiting.

    Args:
        handler: writes the lines, in their order.
    """

    def __init__(self, handler: logging.Handler) -> None:
        self._lines: queue.Queue[logging.LogRecord | None] = queue.Queue(QUEUED_AT_MOST)
        super().__init__(self._lines)
        self._handler = handler
        self._thread = threading.Thread(target=self._write, name="syslog", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while (record := self._lines.get()) is not None:
            self._handler.emit(record)  # without its lock, for which an end would wait
        self._handler.close()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Take a line, or drop it."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(record)

    def close(self) -> None:
        """Let the lines that wait be written, as far as that takes no longer than a moment."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=LAST_LINES_S)
            self._thread.join(LAST_LINES_S)
        super().close()


class LoggedChannel:
    """The agent's end of one connection, with a line for each order and answer.

    Trouble that lasts is one line, until it is another.

    Args:
        site: its name.
        write: sends bytes to the daemon.
    """

    def __init__(self, site: str, write: Callable[[bytes], None]) -> None:
        self._site = site
        self._send = write
        self._trouble = ""
        self._problems: tuple[str, ...] = ()

    def serving(self, welcome: Welcome) -> None:
        """The daemon has introduced itself, and was accepted."""
        self._write(logging.INFO, "serving", federation=welcome.federation, epoch=welcome.epoch)

    def ended(self, error: str = "") -> None:
        """The connection is over."""
        level = logging.WARNING if error else logging.INFO
        self._write(level, "ended", **({"detail": error} if error else {}))

    def taken(self, message: Message) -> None:
        """The daemon has sent this."""
        match message:
            case LaunchOrder():
                nodes = list(dict.fromkeys(name for plan in message.jobs for name in plan.nodes))
                self._order("launch_ordered", message, nodes=nodes)
            case PreemptOrder():
                self._order("preempt_ordered", message, grace_s=message.grace_s)
            case ShrinkOrder():
                self._order("shrink_ordered", message, components=list(message.components))
            case CancelOrder():
                self._order("cancel_ordered", message)
            case _:
                self._write(logging.DEBUG, "taken", type=type(message).__name__)

    def send(self, message: Message) -> None:
        """Send this to the daemon.

        Raises:
            InvalidRequest: no frame can hold it.
        """
        self._send(frame(message))
        match message:
            case LaunchAccepted():
                job = {"job_id": message.site_job_id}
                self._write(logging.INFO, "launch_accepted", attempt=str(message.attempt), **job)
            case LaunchDeclined():
                reason = message.reason
                said = {"reason": reason.code.value, "detail": reason.detail}
                self._write(
                    logging.WARNING, "launch_declined", attempt=str(message.attempt), **said
                )
            case AttemptAbsent():
                self._write(logging.WARNING, "attempt_absent", attempt=str(message.attempt))
            case CancelFailed():
                said = {"attempt": str(message.attempt), "detail": message.detail}
                self._write(logging.WARNING, "cancel_failed", **said)
            case Trouble():
                if message.detail != self._trouble:
                    self._write(logging.WARNING, "slurm_trouble", detail=message.detail)
                self._trouble = message.detail
            case Report():
                self._reported(message)
            case Hello():
                pass  # "serving" says more
            case _:
                self._write(logging.DEBUG, "sent", type=type(message).__name__)

    def _reported(self, report: Report) -> None:
        if self._trouble:
            self._write(logging.INFO, "slurm_answers_again")
        self._trouble = ""
        if report.problems != self._problems:
            self._problems = report.problems
            self._write(logging.WARNING, "site_problems", problems=list(report.problems))

    def _order(
        self, event: str, order: LaunchOrder | PreemptOrder | ShrinkOrder | CancelOrder, **more: Any
    ) -> None:
        self._write(logging.INFO, event, attempt=str(order.attempt), user=order.user, **more)

    def _write(self, level: int, event: str, **fields: Any) -> None:
        _write(level, event, site=self._site, **fields)


def reader_notes(site: str, reader: SiteReader) -> Callable[[str, str], None] | None:
    """Says how Slurm is read from now on; None: by commands, and there is nothing to say."""
    if reader is SiteReader.CLI:
        return None

    def note(event: str, detail: str) -> None:
        trouble = event == "reader_fell_back" and reader is SiteReader.PYSLURM
        _write(logging.WARNING if trouble else logging.INFO, event, site=site, detail=detail)

    return note


def note_dropped_spans(detail: str) -> None:
    """Say that nobody takes this agent's spans."""
    _write(logging.WARNING, "traces_dropped", detail=detail)


def _write(level: int, event: str, **fields: Any) -> None:
    if _log.isEnabledFor(level):
        line = {"event": event, "level": logging.getLevelName(level).lower(), **fields}
        _log.log(level, "%s", msgspec.json.encode(line).decode())
