"""Slurm's names lead to the federation's commands, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli.main import federator
from federator.cli.shims import SHIMS
from federator.errors import ConfigError, InvalidRequest


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with every command of the federation."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for command in SHIMS.values():
        (folder / command).write_text(f'#!/bin/sh\necho {command} "$@"\n')
        (folder / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "argv", ["federator"])
    return folder


def made(folder: Path) -> str:
    return CliRunner().invoke(federator, ["shims", str(folder)], catch_exceptions=False).output


def test_each_name_of_slurms_leads_to_ours(programs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shims"
    assert "put it first on PATH" in made(folder)
    assert {path.name for path in folder.iterdir()} == set(SHIMS)
    for name, command in SHIMS.items():
        assert subprocess.check_output([folder / name, "-x"], text=True) == f"{command} -x\n"


def test_links_are_made_anew_but_nothing_else_is_touched(programs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shims"
    made(folder)
    (folder / "squeue").unlink()
    (folder / "squeue").symlink_to("/gone/fsqueue")  # of an installation that moved
    made(folder)
    assert (folder / "squeue").resolve() == programs / "fsqueue"
    (folder / "sacct").unlink()
    (folder / "sacct").write_text("mine")
    with pytest.raises(InvalidRequest, match="sacct is there already and is not ours"):
        made(folder)
    assert (folder / "sacct").read_text() == "mine"


def test_a_command_that_is_missing_is_named(programs: Path, tmp_path: Path) -> None:
    (programs / "fseff").unlink()
    os.environ["PATH"] = str(programs)
    with pytest.raises(ConfigError, match="fseff is not on PATH"):
        made(tmp_path / "shims")


def test_a_folder_that_cannot_be_made_is_one_message(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match="file"):
        made(tmp_path / "file")
