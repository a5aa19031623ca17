"""``federator audit``: what it shows, and what it says of an audit that was changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.audit.chain import AuditAct
from federator.audit.file import AuditFile, files_of
from federator.cli.audit import audit
from federator.errors import DamagedAudit, InvalidRequest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    file = AuditFile(tmp_path / "audit", 400)
    file.open(0.0)
    for act in (
        AuditAct(at_s=100.0, act="drain", by="root", on="alpine", why={"reason": "new fans"}),
        AuditAct(at_s=200.0, act="award", on="4294967300.1", effect={"site": "alpine", "gpus": 8}),
        AuditAct(at_s=300.0, act="submit", by="eve", via="cedar", refused="cedar may not speak"),
    ):
        file.append([act], None)
    assert len(files_of(tmp_path / "audit")) > 1
    return tmp_path / "audit"


def shown(folder: Path, *options: str) -> str:
    done = CliRunner().invoke(audit, ["--dir", str(folder), *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_line_says_who_did_what_why_and_with_what_effect(folder: Path) -> None:
    drain, award, refused = shown(folder).splitlines()
    assert drain.split(" ", 1)[1] == "root drain alpine reason='new fans'"
    assert award.split(" ", 1)[1] == "federation award 4294967300.1 site=alpine gpus=8"
    assert refused.split(" ", 1)[1] == "eve@cedar submit - refused: cedar may not speak"


def test_lines_are_chosen_by_time_user_and_act(folder: Path) -> None:
    assert shown(folder, "--since", "uts200").count("\n") == 2
    assert "eve@cedar" in shown(folder, "--who", "eve")
    assert shown(folder, "--act", "award").count("\n") == 1
    (line,) = json.loads(shown(folder, "--who", "root", "--json"))["lines"]
    assert line == {
        "n": 1,
        "at_s": 100.0,
        "act": "drain",
        "by": "root",
        "on": "alpine",
        "why": {"reason": "new fans"},
    }


def test_a_sound_audit_says_where_it_ends_and_that_may_be_expected_later(folder: Path) -> None:
    said = shown(folder, "--verify")
    assert "sound, 3 lines; the last is 3:" in said
    end = said.split()[-1]
    found = json.loads(shown(folder, "--verify", "--json", "--expect", end))
    assert (found["lines"], f"{found['n']}:{found['hash']}") == (3, end)
    for wrong in (f"3:{'0' * 64}", f"4:{'0' * 64}"):
        with pytest.raises(DamagedAudit, match="expected"):
            shown(folder, "--verify", "--expect", wrong)
    with pytest.raises(InvalidRequest, match="expected N:HASH"):
        shown(folder, "--verify", "--expect", "3")


def test_the_first_broken_line_is_named(folder: Path) -> None:
    path = files_of(folder)[0]
    path.write_bytes(path.read_bytes().replace(b"new fans", b"old fans"))
    with pytest.raises(DamagedAudit, match="line 1 was changed"):
        shown(folder, "--verify")


def test_a_file_that_is_missing_is_noticed_unless_it_was_archived(folder: Path) -> None:
    files_of(folder)[0].unlink()
    with pytest.raises(DamagedAudit, match="line 1 is missing"):
        shown(folder, "--verify")
    assert "sound" in shown(folder, "--verify", "--archived")
    files_of(folder)[-1].unlink()
    with pytest.raises(DamagedAudit, match="is missing"):
        shown(folder, "--verify", "--archived")


def test_a_line_that_is_being_written_is_passed_over(folder: Path) -> None:
    with files_of(folder)[-1].open("ab") as file:
        file.write(b"0123 {")
    assert shown(folder).count("\n") == 3
    assert "sound" in shown(folder, "--verify")


@pytest.mark.parametrize(
    "options", [[], ["--dir", "/nonexistent"], ["--dir", "/tmp", "--expect", "1"]]
)
def test_what_is_asked_wrongly_is_refused(options: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        CliRunner().invoke(audit, options, catch_exceptions=False)
