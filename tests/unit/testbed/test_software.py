"""Shared software: made once, whole or not at all, and the same for every region."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.errors import FederatorError
from federator.testbed import software
from federator.testbed import state as state_dir
from federator.testbed.images import Progress
from federator.testbed.layout import StateDir


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that were installed into; what is put there stands for PyTorch."""
    folders: list[Path] = []

    def install(folder: Path, _progress: Progress) -> None:
        folders.append(folder)
        (folder / "bin").mkdir()
        (folder / "bin" / "python").write_text("#!/bin/sh\n")
        (folder / "lib").symlink_to("bin")

    monkeypatch.setattr(software, "_install", install)
    monkeypatch.setattr(state_dir, "prepare", shared_folders)
    return folders


def shared_folders(state: StateDir) -> None:
    for region in ("east", "west"):
        state.shared(region).mkdir(parents=True, exist_ok=True)


def silent(_what: str, _doing: str) -> None:
    """Nobody watches."""


def test_every_region_has_it_and_it_is_installed_once(
    tmp_path: Path, installed: list[Path]
) -> None:
    state = StateDir(root=tmp_path)
    east, west = software.ensure(state, silent)
    software.ensure(state, silent)
    assert len(installed) == 1
    assert (east / "bin" / "python").samefile(west / "bin" / "python")
    assert (west / "lib").is_symlink()


def test_a_changed_recipe_makes_it_anew_everywhere(
    tmp_path: Path, installed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(root=tmp_path)
    before = software.ensure(state, silent)[0] / "bin" / "python"
    inode = before.stat().st_ino
    recipe = tmp_path / "recipe.sh"
    recipe.write_text("another")
    monkeypatch.setattr(software, "_RECIPE", recipe)
    east, west = software.ensure(state, silent)
    assert len(installed) == 2
    assert {(tree / "bin" / "python").stat().st_ino for tree in (east, west)} != {inode}


def test_an_installation_that_fails_leaves_nothing_that_looks_made(
    tmp_path: Path, installed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(root=tmp_path)

    def fail(folder: Path, _progress: Progress) -> None:
        (folder / "half").write_text("")
        raise FederatorError("no network")

    good = software._install
    monkeypatch.setattr(software, "_install", fail)
    with pytest.raises(FederatorError, match="no network"):
        software.ensure(state, silent)
    assert not software.pytorch(state, "east").exists()
    monkeypatch.setattr(software, "_install", good)
    east, _ = software.ensure(state, silent)
    assert not (east / "half").exists()
