"""A program that calls sstat is told where the job is, and by what number."""

from __future__ import annotations

import sys

import msgspec
import pytest

from federator.cli import main as program
from federator.cli import sstat
from federator.wire.client_protocol import Call, QueueCall, QueueReply, QueueRow
from federator.wire.replies import Reply
from tests.unit.cli.test_control_show import JOB


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"-j {JOB.id}", f"job {JOB.id} is 73 at alpine; there: sstat -j 73."),
        (f"-n -P --jobs={JOB.id}.batch -o MaxRSS", "there: sstat -j 73.batch."),
        (f"-j{JOB.id}", "there: sstat -j 73."),
        (f"-a {JOB.id}", "there: sstat -j 73."),
        ("", "call it at the job's site"),
    ],
)
def test_the_site_and_its_number_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert said in refused(monkeypatch, capsys, words, (placed(73),))


def test_a_job_that_is_at_no_site_has_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rows in ((), (placed(0),)):
        assert "is at no site now" in refused(monkeypatch, capsys, f"-j {JOB.id}", rows)


def placed(number: int) -> QueueRow:
    return msgspec.structs.replace(JOB, site="alpine", site_job_id=number)


def refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    rows: tuple[QueueRow, ...],
) -> str:
    def call(message: Call) -> Reply:
        assert isinstance(message, QueueCall)
        assert message.ids == (str(JOB.id),)
        return QueueReply(rows=rows, now_s=0.0)

    monkeypatch.setattr(sstat, "call", call)
    monkeypatch.setattr(sys, "argv", ["/home/ada/bin/sstat", *words.split()])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 1
    return capsys.readouterr().err
