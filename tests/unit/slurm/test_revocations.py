"""A site's file says which nodes its provider takes back, and is believed only from its owner."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.model.site_message import Revocation
from federator.slurm.revocations import MOST_BYTES, MOST_NODES, parse_revoked, read_revoked

AT_S = datetime(2026, 10, 1, 12, tzinfo=UTC).timestamp()


def test_each_line_names_nodes_a_deadline_and_a_reason() -> None:
    found = parse_revoked(
        "# written by the spot handler\n\n"
        f"n[07-08],n11 {AT_S:.0f} spot notice, 2 minutes\n"
        "* 2026-10-01T12:00:00Z\n"
        "n1 2026-10-01T14:00:00+02:00 the same\n"
    )
    assert found.problems == ()
    assert found.notices == (
        Revocation(nodes=("n07", "n08", "n11"), deadline_s=AT_S, reason="spot notice, 2 minutes"),
        Revocation(deadline_s=AT_S),
        Revocation(nodes=("n1",), deadline_s=AT_S, reason="the same"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "n1",
        "n1 soon",
        "n1 2026-10-01T12:00:00",  # of which zone?
        "n1 nan",
        "n1 -5",
        "n1 1e999",
        "n[1 5",
        "(null) 5",
        "n[1-999999] 5",
    ],
)
def test_a_line_that_cannot_be_read_is_a_problem_and_the_others_count(line: str) -> None:
    found = parse_revoked(f"{line}\nn2 1000\n")
    assert found.notices == (Revocation(nodes=("n2",), deadline_s=1000.0),)
    assert len(found.problems) == 1
    assert found.problems[0].startswith("revoked, line 1: ")


def test_nodes_are_bounded() -> None:
    lines = "\n".join(f"n[1-{MOST_NODES // 2}] {k}" for k in (1, 2, 3))
    found = parse_revoked(lines)
    assert len(found.notices) == 2
    assert "line 3" in found.problems[0]


@given(text=st.text())
def test_any_text_can_be_read(text: str) -> None:
    found = parse_revoked(text)
    assert len(found.notices) + len(found.problems) <= len(text.splitlines())


def test_without_a_file_nothing_is_revoked(tmp_path: Path) -> None:
    assert read_revoked(tmp_path) == ((), ())


def test_a_file_of_this_user_is_believed(tmp_path: Path) -> None:
    (tmp_path / "revoked").write_bytes(b"n1 1000 \xff\n")
    (tmp_path / "revoked").chmod(0o644)
    assert [n.nodes for n in read_revoked(tmp_path).notices] == [("n1",)]


def test_a_file_that_others_may_have_written_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    file.write_text("n1 1000\n")
    for mode, wrong in ((0o664, "chmod go-w"), (0o646, "chmod go-w")):
        file.chmod(mode)
        found = read_revoked(tmp_path)
        assert found.notices == ()
        assert wrong in found.problems[0]


def test_a_file_of_another_user_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "revoked"
    file.write_text("n1 1000\n")
    file.chmod(0o644)
    if os.getuid() == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    found = read_revoked(tmp_path)
    assert found.notices == ()
    assert "another user's" in found.problems[0]


def test_a_link_a_pipe_and_a_folder_are_no_file(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    (tmp_path / "other").write_text("n1 1000\n")
    file.symlink_to(tmp_path / "other")
    assert read_revoked(tmp_path).notices == ()
    assert read_revoked(tmp_path).problems
    file.unlink()
    os.mkfifo(file, 0o600)
    assert read_revoked(tmp_path).problems == ("revoked is no file",)
    file.unlink()
    file.mkdir(0o700)
    assert read_revoked(tmp_path).problems == ("revoked is no file",)


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    file.write_text("n1 1000\n" * (MOST_BYTES // 8 + 1))
    file.chmod(0o600)
    assert read_revoked(tmp_path).notices == ()
    assert "more than 65536 bytes" in read_revoked(tmp_path).problems[0]
