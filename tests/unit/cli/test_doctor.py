"""``federator doctor``: what it asks for, how it shows findings, and its exit status."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from federator.cli import doctor as command
from federator.cli.doctor_text import WORDINGS, finding_lines
from federator.errors import InvalidRequest, NotAllowed, SiteUnavailable
from federator.history import schema
from federator.history.database import open_writer, put_rows, transaction
from federator.usage.diagnosis import OF_JOBS, OF_QUOTAS, Diagnosis
from federator.usage.job_doctor import examine
from federator.usage.quota_review import review
from federator.wire.client_protocol import Call, ErrorKind, ErrorReply
from federator.wire.replies import Reply
from federator.wire.usage_messages import DoctorCall, DoctorReply
from tests.fakes.doctor_series import SICK, T0_S, family
from tests.fakes.quota_series import SORTS, fleet
from tests.fakes.usage_rows import attempt_use, attempt_values

NOW_S = 1_764_072_000.0
DAY_S = 86_400.0
IDLE = Diagnosis(
    kind="idle",
    tenant="vision",
    user="ada",
    family="train-#",
    jobs=(2, 1),
    gpu_h=64.0,
    evidence={
        "idle_attempts": 2.0,
        "watched_attempts": 3.0,
        "watched_gpu_h": 80.0,
        "busy_frac": 0.021,
    },
)


class Run:
    """Runs the command against one answer, and keeps what it asked."""

    def __init__(self) -> None:
        self.reply: Reply = DoctorReply(
            findings=(IDLE,), federation="demo", at_s=NOW_S, attempts=9, measured=5
        )
        self.asked: list[Call] = []

    def __call__(self, *words: str) -> Result:
        ended = CliRunner().invoke(command.doctor, [*words], standalone_mode=False)
        if ended.exception is not None:
            raise ended.exception
        return ended

    def call(self, message: Call) -> Reply:
        self.asked.append(message)
        return self.reply


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    made = Run()
    monkeypatch.setattr(command, "call", made.call)
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    return made


def test_it_asks_about_the_last_week_unless_it_is_told(run: Run) -> None:
    run()
    run("-S", "now-1hours", "-E", "now", "--tenant", "vision,nlp", "-u", "ada")
    assert run.asked == [
        DoctorCall(start_s=NOW_S - 7 * DAY_S, end_s=NOW_S),
        DoctorCall(start_s=NOW_S - 3600, end_s=NOW_S, tenants=("vision", "nlp"), users=("ada",)),
    ]


def test_a_finding_says_whose_what_by_which_figures_and_what_to_do(run: Run) -> None:
    ended = run()
    assert ended.return_value == 1
    assert ended.stdout.splitlines() == [
        "idle: ada (vision) 'train-#': GPUs that do nothing, 64.0 GPU hours",
        "  in 2 of the 3 attempts that were watched the GPUs were busy 2.1% of the time",
        "  do: ask for no GPUs, or find out what the job waits for (input, a hung process)",
        "  jobs: 2, 1",
        "1 finding in 9 attempts; what 4 of them used is not known",
    ]


def test_the_status_is_0_where_nothing_is_found(run: Run) -> None:
    run.reply = DoctorReply(findings=(), federation="demo", at_s=NOW_S)
    ended = run()
    assert (ended.return_value, ended.stdout[:10]) == (0, "0 findings")


def test_json_has_every_figure(run: Run) -> None:
    ended = run("--json")
    told = json.loads(ended.stdout)
    assert ended.return_value == 1
    assert (told["schema"], told["attempts"], told["measured_attempts"]) == (1, 9, 5)
    (made,) = told["findings"]
    assert made["jobs"] == [2, 1]
    assert made["evidence"] == IDLE.evidence


def test_what_an_answer_lacks_is_said_on_standard_error(run: Run) -> None:
    run.reply = DoctorReply(
        findings=(IDLE,), federation="demo", at_s=NOW_S, is_whole=False, left_off=3
    )
    told = run().stderr
    assert "3 findings are left off" in told
    assert "only the latest were judged" in told


def test_names_of_users_cannot_write_on_the_terminal(run: Run) -> None:
    made = Diagnosis(kind="of-a-later-release", tenant="a\x1b[2J", user="b\nc")
    run.reply = DoctorReply(findings=(made,), federation="demo", at_s=NOW_S)
    assert "\x1b" not in run().stdout
    assert len(run().stdout.splitlines()) == 2


def test_quotas_are_reviewed_by_four_weeks(run: Run) -> None:
    run.reply = DoctorReply(findings=(), federation="demo", at_s=NOW_S, days=28)
    assert run("--quotas").stdout == "0 findings in 28 whole days\n"
    assert run.asked == [DoctorCall(start_s=NOW_S - 28 * DAY_S, end_s=NOW_S, quotas=True)]
    with pytest.raises(InvalidRequest, match="quotas are of tenants"):
        run("--quotas", "-u", "ada")
    run.reply = ErrorReply(message="an operator's", kind=ErrorKind.DENIED)
    with pytest.raises(NotAllowed):
        run("--quotas")


def test_errors_are_told_apart(run: Run) -> None:
    with pytest.raises(InvalidRequest, match="after end time"):
        run("-S", "now", "-E", "now-1hours")
    run.reply = ErrorReply(message="the history is away", kind=ErrorKind.UNAVAILABLE)
    with pytest.raises(SiteUnavailable, match="away"):
        run()
    run.reply = ErrorReply(message="no history is kept")
    with pytest.raises(InvalidRequest, match="no history"):
        run()


def test_every_kind_has_words_for_its_evidence() -> None:
    rng = random.Random(3)
    records = [
        each
        for kind, makes in SICK.items()
        for make in makes
        for k in range(5)
        for each in family(f"{kind}-{make.__name__}-{k}", make, rng)
    ]
    made = examine(records, T0_S + DAY_S)
    assert {each.kind for each in made} == set(OF_JOBS)
    rng = random.Random(3)
    months = [each for sort in SORTS for each in review(*fleet(sort, rng))]
    assert {each.kind for each in months} == set(OF_QUOTAS)
    assert set(WORDINGS) == {*OF_JOBS, *OF_QUOTAS}
    for each in made + months:
        assert 3 <= len(list(finding_lines(each))) <= 4


def test_the_history_alone_is_enough(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue-history.db"
    with transaction(open_writer(url)) as connection:
        schema.prepare(connection)
        rows = [attempt_values(1, attempt_use(1, NOW_S - 3600))]
        put_rows(connection, schema.attempts, iter(rows), replace=False)
        use = [{"id": 1, "attempt": 1, "gpu_util_frac": 0.0}]
        put_rows(connection, schema.measured, iter(use), replace=False)
    path = tmp_path / "federation.yaml"
    path.write_text(
        f"federation: demo\nstore: sqlite:///{tmp_path}/queue.db\n"
        "regions: {north: {shared: /shared}}\n"
        "sites: {alpine: {region: north, command: [x], partitions: [gpu]}}\n"
    )
    ended = run("--config", str(path))
    assert ended.return_value == 1
    assert ended.stdout.startswith("idle: user")
    assert run.asked == []
    with pytest.raises(InvalidRequest, match="section 'mail'"):
        run("--config", str(path), "--mail")
    kept = tmp_path / "mails"
    mailer = tmp_path / "mailer"
    mailer.write_text(f'#!/bin/sh\n{{ echo "$@"; cat; }} >>{kept}\n')
    mailer.chmod(0o755)
    path.write_text(f"{path.read_text()}mail: {{command: [{mailer}]}}\n")
    ended = run("--config", str(path), "--mail")
    assert "1 mail sent" in ended.stderr
    head, body = kept.read_text().split("\n", 1)
    assert head.startswith("-s Federator demo: 1 finding about your jobs user")
    assert "that ended from 2025-11-18 12:00 to 2025-11-25 12:00 (UTC)" in body


def test_findings_are_mailed_by_the_configuration_alone(run: Run) -> None:
    for words in (("--mail",), ("--mail", "--quotas", "--config", "federation.yaml")):
        with pytest.raises(InvalidRequest, match="--mail needs --config"):
            run(*words)
    assert run.asked == []
