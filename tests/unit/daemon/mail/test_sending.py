"""Mails reach this host's mail server, or a command, once and no more than are allowed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from federator.config_mail import MailConfig
from federator.daemon.mail.letters import Letter, MailEvent, job_letter
from federator.daemon.mail.sending import PAUSES_S, MailSender
from federator.sched.state.workload_record import WorkloadRecord
from tests.fakes.build import workload
from tests.fakes.mail_server import SmtpServer

LETTER = Letter(
    "ada", "ada@example.org", "Slurm Job_id=7 Name=Züge Began", "Site:   alpine\n", "7.1.begin"
)


@pytest.fixture
def server() -> Iterator[SmtpServer]:
    server = SmtpServer()
    yield server
    server.end()


async def _no_pause(_seconds: float) -> None:
    pass


def send(config: MailConfig, *letters: Letter, now_s: float = 0.0) -> None:
    sender = MailSender(lambda: config, "demo", pause=_no_pause)
    sender.post(letters, now_s)
    asyncio.run(sender.send_waiting())


def test_a_mail_reaches_the_server(server: SmtpServer) -> None:
    send(MailConfig(smtp=server.address), LETTER)
    (got,) = server.got
    assert got["To"] == "ada@example.org"
    assert got["From"] == "federator@localhost"
    assert got["Subject"] == LETTER.subject
    assert got["Message-ID"] == "<7.1.begin@demo>"
    assert str(got.get_payload()).strip() == "Site:   alpine"


def test_a_mail_that_the_server_refuses_is_not_sent_again(server: SmtpServer) -> None:
    server.says = "451 not now"
    with capture_logs() as logs:
        send(MailConfig(smtp=server.address), LETTER)
    assert len(server.got) == 1
    assert [line["event"] for line in logs] == ["mail_failed"]


def test_a_server_that_comes_back_gets_what_waited() -> None:
    first = SmtpServer()
    first.end()
    port = first.server_address[1]
    servers: list[SmtpServer] = []

    async def comes_back(_seconds: float) -> None:
        if not servers:
            servers.append(SmtpServer(port))

    sender = MailSender(lambda: MailConfig(smtp=first.address), "demo", pause=comes_back)
    sender.post([LETTER, LETTER], 0.0)
    asyncio.run(sender.send_waiting())
    servers[0].end()
    assert len(servers[0].got) == 2


def test_what_waits_for_a_server_that_stays_away_is_dropped_in_the_end() -> None:
    gone = SmtpServer()
    gone.end()
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    sender = MailSender(lambda: MailConfig(smtp=gone.address), "demo", pause=pause)
    sender.post([LETTER, LETTER], 0.0)
    with capture_logs() as logs:
        asyncio.run(sender.send_waiting())
    assert tuple(pauses) == PAUSES_S
    assert [(line["event"], line["mails"]) for line in logs] == [("mail_failed", 2)]


def test_a_user_gets_no_more_than_so_many_an_hour_and_is_told(server: SmtpServer) -> None:
    config = MailConfig(smtp=server.address, per_user_h=3)
    sender = MailSender(lambda: config, "demo", pause=_no_pause)
    sender.post([LETTER] * 10, 0.0)
    sender.post([LETTER._replace(user="bob")], 0.0)
    sender.post([LETTER], 3600.0)
    asyncio.run(sender.send_waiting())
    assert len(server.got) == 5
    assert "7 mails before it were not sent: 3 an hour" in str(server.got[-1].get_payload())


@pytest.mark.parametrize(
    "to", ["-oQ/tmp", "a b", "a,b", "a\nb", "a\r\nBcc: c", "<a@b>", "|sh", "", "a@x..y", "a@b."]
)
def test_what_is_no_address_gets_nothing(server: SmtpServer, to: str) -> None:
    with capture_logs() as logs:
        send(MailConfig(smtp=server.address), LETTER._replace(to=to))
    assert server.got == []
    assert [line["event"] for line in logs] == ["mail_refused"]


@pytest.mark.parametrize(
    "name",
    [
        "=?utf-8?q?a=0D=0ABcc:_evil@x.org=0D=0A=0D=0Abody?=",
        "=\0utf-8?q?a=0D=0ABcc:_evil@x.org?=",
        "=?utf-7?q?+2AA-?=",
        "a\r\nBcc: evil@x.org",
    ],
)
def test_a_name_of_a_job_adds_no_line_to_a_mail(server: SmtpServer, name: str) -> None:
    """Also where a mailer would decode it to one, or fails at that."""
    entry = WorkloadRecord(workload=replace(workload(), name=name))
    ended = MailEvent("END", "Ended")
    with capture_logs() as logs:
        send(MailConfig(smtp=server.address), job_letter(ended, entry, "ada"), LETTER)
    assert logs == []
    got, usual = server.got
    assert got.keys() == usual.keys()
    assert str(got.get_payload()).startswith("Job:")


class Broken(Letter):
    """No mail can be made of it."""

    __slots__ = ()

    @property
    def subject(self) -> str:
        raise RuntimeError("a fault of ours")


def test_one_that_cannot_be_written_keeps_no_other_back(server: SmtpServer) -> None:
    with capture_logs() as logs:
        send(MailConfig(smtp=server.address), Broken(*LETTER), LETTER)
    assert len(server.got) == 1
    assert [line["event"] for line in logs] == ["mail_failed"]


def test_what_waits_when_a_reload_ends_mail_is_not_sent_later(server: SmtpServer) -> None:
    config = [MailConfig(smtp=server.address)]
    sender = MailSender(lambda: config[0], "demo", pause=_no_pause)
    sender.post([LETTER], 0.0)
    config[0] = MailConfig()
    asyncio.run(sender.send_waiting())
    config[0] = MailConfig(smtp=server.address)
    sender.post([LETTER, LETTER], 1.0)
    asyncio.run(sender.send_waiting())
    assert len(server.got) == 2


def test_a_command_is_called_as_slurms_mail_program_without_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "mail.py"
    script.write_text(
        "import sys\n"
        f"with open({str(tmp_path / 'got')!r}, 'w') as out:\n"
        "    out.write(repr(sys.argv[1:]) + sys.stdin.read())\n"
    )
    subject = "Slurm Job_id=7 Name=$(id);`id` Began"
    config = MailConfig(command=(sys.executable, str(script)))
    send(config, LETTER._replace(subject=subject))
    got = (tmp_path / "got").read_text()
    assert got == repr(["-s", subject, "ada@example.org"]) + LETTER.body


def test_a_command_that_fails_is_not_called_again() -> None:
    with capture_logs() as logs:
        send(MailConfig(command=("/bin/false",)), LETTER)
    assert [line["event"] for line in logs] == ["mail_failed"]
