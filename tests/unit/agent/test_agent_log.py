"""The agent writes its orders and answers to syslog, and lasting trouble once."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federator.agent import agent_log
from federator.agent.agent_log import LoggedChannel, log_to_syslog, reader_notes
from federator.model.reason import Reason, ReasonCode
from federator.model.site_message import CancelOrder, LaunchAccepted, LaunchDeclined, Report
from federator.model.site_reader import SiteReader
from federator.model.tagged import Message
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.agent_protocol import Ping, Pong, Trouble

ATTEMPT = AttemptId(workload=WorkloadId(7), attempt=1)
QUIET = Report(attempts=())


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[socket.socket]:
    """A syslog of the test's own."""
    logger = logging.getLogger("federator.agent")
    handlers, level = list(logger.handlers), logger.level
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        listener.setblocking(False)
        yield listener
    for handler in set(logger.handlers) - set(handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(level)


def end_log() -> None:
    """As at the end of the process."""
    for handler in logging.getLogger("federator.agent").handlers:
        handler.close()


def received(listener: socket.socket) -> list[dict[str, Any]]:
    """End the log; the lines that were written."""
    end_log()
    lines: list[dict[str, Any]] = []
    while True:
        try:
            text = listener.recv(65536).decode().rstrip("\0")
        except BlockingIOError:
            return lines
        _, _, line = text.partition("federator-agent: ")
        lines.append(json.loads(line))


CANCEL = CancelOrder(attempt=ATTEMPT, user="ada", site_job_id=5, pending_only=False)


def test_a_syslog_that_nobody_reads_stops_nobody(
    tmp_path: Path,
    syslog: socket.socket,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it does not take is dropped; the agent goes on, and ends, without a word about it."""
    monkeypatch.setattr(agent_log, "LAST_LINES_S", 0.05)
    log = log_at("info", tmp_path)
    for _ in range(2 * agent_log.QUEUED_AT_MOST):
        log.taken(CANCEL)
    end_log()
    assert received(syslog)
    assert capfd.readouterr() == ("", "")


def test_a_burst_is_written_whole(tmp_path: Path, syslog: socket.socket) -> None:
    """A socket takes ten datagrams until its reader comes, where the kernel's default stands."""
    log = log_at("info", tmp_path)
    for k in range(100):
        log.send(LaunchAccepted(attempt=ATTEMPT, site_job_id=k))
    syslog.settimeout(10)
    lines = [syslog.recv(65536).decode().rstrip("\0") for _ in range(100)]
    jobs = [json.loads(line.partition("federator-agent: ")[2])["job_id"] for line in lines]
    assert jobs == list(range(100))


def test_of_a_syslog_that_has_gone_nothing_is_said(
    tmp_path: Path, syslog: socket.socket, capfd: pytest.CaptureFixture[str]
) -> None:
    log = log_at("info", tmp_path)
    syslog.close()
    log.taken(CANCEL)
    end_log()
    assert capfd.readouterr() == ("", "")


def test_a_syslog_that_comes_later_gets_what_is_written_then(
    tmp_path: Path, syslog: socket.socket
) -> None:
    log_to_syslog("info", tmp_path / "later")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as later:
        later.bind(str(tmp_path / "later"))
        later.settimeout(10)
        LoggedChannel("alpine", lambda _data: None).taken(CANCEL)
        assert b"cancel_ordered" in later.recv(65536)


def log_at(level: str, folder: Path) -> LoggedChannel:
    log_to_syslog(level, folder / "log")
    return LoggedChannel("alpine", lambda _data: None)


def test_orders_and_answers_are_lines_with_their_attempt(
    tmp_path: Path, syslog: socket.socket
) -> None:
    log = log_at("info", tmp_path)
    log.taken(Ping())
    log.taken(CancelOrder(attempt=ATTEMPT, user="ada", site_job_id=5, pending_only=False))
    log.send(Pong())
    log.send(LaunchAccepted(attempt=ATTEMPT, site_job_id=5))
    reason = Reason(code=ReasonCode.LAUNCH_REFUSED, detail="sbatch: error: no")
    log.send(LaunchDeclined(attempt=ATTEMPT, reason=reason))
    ordered, accepted, declined = received(syslog)
    assert ordered == {
        "event": "cancel_ordered",
        "level": "info",
        "site": "alpine",
        "attempt": "fed:7:1",
        "user": "ada",
    }
    assert (accepted["event"], accepted["job_id"]) == ("launch_accepted", 5)
    assert (declined["event"], declined["level"]) == ("launch_declined", "warning")
    assert declined["detail"] == "sbatch: error: no"


def test_trouble_that_lasts_is_one_line_for_each_reason(
    tmp_path: Path, syslog: socket.socket
) -> None:
    log = log_at("info", tmp_path)
    messages: list[Message] = [Trouble(detail=d) for d in ("slow", "slow", "down", "down")]
    odd = Report(attempts=(), problems=("job 7 is odd",))
    for message in (*messages, QUIET, QUIET, odd, odd, QUIET):
        log.send(message)
    events = [(line["event"], line.get("detail", "")) for line in received(syslog)]
    assert events == [
        ("slurm_trouble", "slow"),
        ("slurm_trouble", "down"),
        ("slurm_answers_again", ""),
        ("site_problems", ""),
        ("site_problems", ""),
    ]


@pytest.mark.parametrize(
    ("level", "written"), [("debug", 2), ("info", 1), ("warning", 0), ("error", 0)]
)
def test_the_level_is_the_least_that_is_written(
    tmp_path: Path, syslog: socket.socket, level: str, written: int
) -> None:
    log = log_at(level, tmp_path)
    log.send(Pong())
    log.send(LaunchAccepted(attempt=ATTEMPT, site_job_id=5))
    assert len(received(syslog)) == written


def test_without_a_syslog_nothing_is_written_nor_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = log_at("debug", tmp_path)
    log.ended("the disk is full")
    end_log()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("reader", "level"), [(SiteReader.AUTO, "info"), (SiteReader.PYSLURM, "warning")]
)
def test_a_site_without_pyslurm_is_warned_only_if_it_asked_for_it(
    tmp_path: Path, syslog: socket.socket, reader: SiteReader, level: str
) -> None:
    log_to_syslog("info", tmp_path / "log")
    note = reader_notes("boreal", reader)
    assert note is not None
    note("reader_started", "pyslurm 24.11.0")
    note("reader_fell_back", "jobs: no answer after 5 s")
    said = [(line["event"], line["level"], line["site"]) for line in received(syslog)]
    assert said == [("reader_started", "info", "boreal"), ("reader_fell_back", level, "boreal")]


def test_a_site_that_is_read_by_commands_has_nothing_to_say_of_pyslurm() -> None:
    assert reader_notes("boreal", SiteReader.CLI) is None
