"""A file that cannot be opened is named at submission, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from federator.cli.file_warnings import warnings_of
from federator.model.submission import Submission
from federator.slurm.options.options import parse_command_line, resolve


def said(*words: str) -> list[str]:
    components = resolve(parse_command_line(list(words)).groups, (), ())
    submission = Submission(components=components, script="#!/bin/sh\n", work_dir=os.getcwd())
    return list(warnings_of(submission))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "there").mkdir()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-o", "%j.out"),
        ("-o", "logs/%j/%N.out"),
        ("-e", "/dev/null"),
        ("-i", "file"),
        ("-o", "file"),
        ("-e", "none"),
        ("-o", "%N/x"),
        ("-D", "sub", "-o", "x"),
        ("-i", "%N"),
        ("-o", "there/%A_%a.out"),
        ("-e", "there/%x-%a.err"),
        ("-D", "there", "-o", "%x_%j_%A_%S.log"),
    ],
)
def test_what_can_be_opened_or_made_is_no_matter(words: tuple[str, ...]) -> None:
    assert said(*words) == []


def test_what_cannot_be_opened_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for option, value, wrong in (
        ("output", "file/x", f"{tmp_path}/file is no folder here"),
        ("error", f"{tmp_path}/folder", f"{tmp_path}/folder is a folder here"),
        ("input", "absent", "absent cannot be read here"),
    ):
        (line,) = said(f"--{option}={value}")
        assert line == f"warning: --{option}: {wrong}; where it is like this, the job fails"


def test_a_folder_that_may_not_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = str(tmp_path / "closed")
    os.mkdir(closed)
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and may(path, mode))
    (line,) = said("-o", "closed/logs/%j")
    assert "closed/logs does not exist here, and " in line
    assert f"{closed} may not be written to" in line
