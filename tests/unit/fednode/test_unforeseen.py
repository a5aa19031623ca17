"""Names and files that nobody can foresee, and hooks that start quickly."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fednode import unforeseen

HOOKS = Path(__file__).parents[3] / "prolog_epilog"
SLOW = {"tempfile", "secrets", "random", "hashlib", "traceback"}  # a third of a hook's time


def test_a_new_file_is_hidden_empty_and_its_owners_alone(tmp_path: Path) -> None:
    descriptor, path = unforeseen.new_file(str(tmp_path))
    os.write(descriptor, b"here")
    os.close(descriptor)
    (found,) = tmp_path.iterdir()
    assert str(found) == path
    assert found.name.startswith(".")
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert found.read_bytes() == b"here"


def test_a_file_or_a_link_that_is_there_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unforeseen, "name", lambda: "taken")
    (tmp_path / ".taken").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        unforeseen.new_file(str(tmp_path))
    assert not (tmp_path / "elsewhere").exists()


def test_names_are_not_the_same_twice() -> None:
    assert len({unforeseen.name() for _ in range(100)}) == 100


@pytest.mark.parametrize("hook", ["gate", "epilog"])
def test_a_hook_imports_nothing_slow_that_it_can_do_without(hook: str) -> None:
    told = f"import sys; sys.path.insert(0, {str(HOOKS)!r}); import fednode.{hook}"
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(HOOKS)!r}); {told}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert SLOW & set(done.stdout.split()) == set()
