"""Wrong usage is one line on stderr and the exit status that the family of commands has."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from federator.cli import fscancel, fsinfo, fsqueue
from federator.cli import main as admin


@pytest.mark.parametrize(
    ("program", "main", "words", "status"),
    [
        ("fsqueue", fsqueue.main, ["--nosuch"], 1),
        ("fscancel", fscancel.main, ["-u"], 1),
        ("fsinfo", fsinfo.main, ["surplus"], 1),
        ("federator", admin.main, ["nosuch"], os.EX_USAGE),
        ("federator", admin.main, ["check"], os.EX_USAGE),
    ],
)
def test_wrong_usage_is_one_line(
    program: str,
    main: Callable[[], None],
    words: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"{program}: error: ")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("main", [fsqueue.main, fscancel.main, fsinfo.main, admin.main])
def test_help_ends_well(main: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def test_a_group_without_a_command_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["federator"])
    with pytest.raises(SystemExit) as ended:
        admin.main()
    assert ended.value.code == os.EX_USAGE
    assert capsys.readouterr().err.startswith("Usage: federator")
