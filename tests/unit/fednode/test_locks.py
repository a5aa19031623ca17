"""A lock keeps two runs apart, and nobody else can take it or be waited for without end."""

from __future__ import annotations

from pathlib import Path

import pytest
from fednode import dcgm
from fednode.locks import locked


def test_only_its_owner_can_open_a_lock_even_one_that_was_open_to_all(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    with locked(str(file)):
        assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with locked(str(file)):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_lock_is_held_by_one_and_free_afterwards(tmp_path: Path) -> None:
    file = str(tmp_path / ".lock")
    with locked(file), pytest.raises(TimeoutError, match=r"\.lock has been held"), locked(file):
        pass
    with locked(file, wait_s=0.01):
        pass


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), locked(str(tmp_path / ".lock")):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_mapping_folder_that_somebody_keeps_locked_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dcgm, "_WAIT_S", 0.01)
    with locked(str(tmp_path / ".lock")):
        with pytest.raises(OSError, match="held by another"):
            dcgm.write(str(tmp_path), (0,), 7)
        with pytest.raises(OSError, match="held by another"):
            dcgm.remove(str(tmp_path), 7)
    dcgm.write(str(tmp_path), (0,), 7)
    assert (tmp_path / "0").read_text() == "7\n"
