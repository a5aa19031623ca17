"""The daemon's process ends at once, with a status that says what to do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys

import click
import pytest
import structlog
from click.testing import CliRunner

from federator.cli import services
from federator.cli.usage import exit_status
from federator.errors import ConfigError, DamagedLog, FederatorError, LeadershipLost, StoreError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LeadershipLost("x"), os.EX_TEMPFAIL),
        (DamagedLog("x"), os.EX_DATAERR),
        (StoreError("x"), os.EX_IOERR),
        (ConfigError("x"), os.EX_CONFIG),
    ],
)
def test_what_is_to_be_done_next_is_told_by_the_exit_status(
    error: FederatorError, status: int
) -> None:
    assert exit_status(error) == status


class Ended(BaseException):
    """Stands for the end of the process."""


class Failing:
    def stop(self) -> None:
        pass

    def reload(self) -> None:
        pass

    async def run(self) -> None:
        raise LeadershipLost("another daemon leads")


def test_a_daemon_that_lost_the_lead_ends_without_closing_anything_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is in a buffer on its way to a site must not be sent any more."""
    statuses = []

    def end(status: int) -> None:
        statuses.append(status)
        raise Ended

    monkeypatch.setattr("os._exit", end)
    with pytest.raises(Ended):
        asyncio.run(services._until_signalled(Failing()))  # type: ignore[arg-type]
    assert statuses == [os.EX_TEMPFAIL]
    assert capsys.readouterr().err == "federator: error: another daemon leads\n"


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("debug", ["call", "site_up", "site_down"]),
        ("info", ["site_up", "site_down"]),
        ("warning", ["site_down"]),
        ("error", []),
    ],
)
def test_the_log_level_is_the_least_that_is_written(
    level: str, events: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    try:
        services.log_to_stderr(level)
        log = structlog.get_logger()
        log.debug("call", user="ada")
        log.info("site_up", site="alpine")
        log.warning("site_down", site="alpine")
    finally:
        structlog.configure(**before)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == events
    assert all(line["timestamp"] and line["level"] for line in lines)


def test_what_users_and_sites_say_moves_no_cursor_on_an_operators_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bad = "\x1b[2J\x1b]0;x\x07\x9b2J\ra\nb"
    try:
        services.log_to_stderr("info")
        log = structlog.get_logger()
        log.info("submitted", name=bad, nodes=[bad], why={bad: bad})
        plain = capsys.readouterr().err
        try:
            raise ValueError(bad)
        except ValueError:
            log.exception("call_fault", user=bad)
    finally:
        structlog.configure(**before)
    assert plain.count("\n") == 1
    traceback = capsys.readouterr().err
    assert traceback.count("Traceback") == 1
    for said in (plain, traceback):
        rest = re.sub(r"\x1b\[[0-9;]*m", "", said)  # colours are the log's own
        assert all(line.isprintable() for line in rest.split("\n"))


@pytest.mark.parametrize("command", [services.daemon, services.agent])
def test_an_unknown_log_level_is_refused(command: click.Command) -> None:
    result = CliRunner().invoke(command, ["--config", "x", "--log-level", "loud"])
    assert result.exit_code == 2
    assert "'debug', 'info', 'warning', 'error'" in result.output


def test_an_agents_process_ends_though_something_hangs() -> None:
    """The next agent needs its lock."""
    script = """
import asyncio
from federator.cli import services

async def hangs():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

async def serve(_):
    serve.left = asyncio.ensure_future(hangs())
    await asyncio.sleep(0)

services._serve, services._ENDS_WITHIN_S = serve, 0.1
asyncio.run(services._serve_and_end(None))
"""
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert ended.returncode == os.EX_TEMPFAIL
