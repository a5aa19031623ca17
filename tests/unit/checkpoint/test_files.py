"""How checkpoints lie on disk: numbers, seals, permission bits, what is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from federator.checkpoint import files


def write(directory: Path, step: int, content: bytes = b"state") -> files.StoredCheckpoint:
    part = files.part_of(directory, f"1-{step}")
    files.begin(directory, part)
    files.state_of(part, 0).write_bytes(content)
    files.seal(part, 0, ranks=1, checksum=True)
    return files.commit(part, step)


def steps(directory: Path) -> list[int]:
    return [checkpoint.step for checkpoint in files.stored(directory)]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_the_newest_is_the_one_that_was_written_last_whatever_its_step(tmp_path: Path) -> None:
    for step in (100, 200, 50):  # somebody went back to step 50
        write(tmp_path, step)
    assert steps(tmp_path) == [50, 200, 100]


def test_clocks_that_go_backwards_change_nothing(tmp_path: Path) -> None:
    older, newer = write(tmp_path, 1), write(tmp_path, 2)
    os.utime(newer.path, (1, 1))
    assert files.stored(tmp_path) == [newer, older]


def test_the_same_step_may_be_written_again(tmp_path: Path) -> None:
    first, second = write(tmp_path, 7, b"before"), write(tmp_path, 7, b"after")
    assert files.stored(tmp_path) == [second, first]
    assert files.state_of(second.path, 0).read_bytes() == b"after"


def test_a_state_may_be_a_folder(tmp_path: Path) -> None:
    part = files.part_of(tmp_path, "1-1")
    files.begin(tmp_path, part)
    inner = files.state_of(part, 0) / "shards"
    inner.mkdir(parents=True)
    (inner / "a").write_bytes(b"a")
    files.seal(part, 0, ranks=1, checksum=True)
    stored = files.commit(part, 1)
    assert files.is_whole(stored, 0)
    (files.state_of(stored.path, 0) / "shards" / "a").unlink()
    assert not files.is_whole(stored, 0)


@pytest.mark.parametrize("damage", [b"", b"sta", b"stale", b"state and more"])
def test_a_state_that_is_not_as_it_was_written_is_not_whole(tmp_path: Path, damage: bytes) -> None:
    stored = write(tmp_path, 1)
    assert files.is_whole(stored, 0)
    files.state_of(stored.path, 0).write_bytes(damage)
    assert not files.is_whole(stored, 0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {"x": 3}}', "\0\0"])
def test_a_seal_that_makes_no_sense_seals_nothing(tmp_path: Path, text: str) -> None:
    stored = write(tmp_path, 1)
    (stored.path / "state-0.seal.json").write_text(text)
    assert not files.is_whole(stored, 0)


def test_a_save_that_writes_elsewhere_is_told_so(tmp_path: Path) -> None:
    part = files.part_of(tmp_path, "1-1")
    files.begin(tmp_path, part)
    (part / "state-0.npy").write_bytes(b"numpy adds a suffix")
    with pytest.raises(FileNotFoundError, match="state-0, a file or a folder"):
        files.seal(part, 0, ranks=1, checksum=True)


def test_what_a_dead_writer_left_is_removed_and_never_seen(tmp_path: Path) -> None:
    files.begin(tmp_path, files.part_of(tmp_path, "1-5"))
    assert files.stored(tmp_path) == []
    write(tmp_path, 6)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-00000001-step-6"]


def test_only_whole_checkpoints_count_as_kept(tmp_path: Path) -> None:
    stored = [write(tmp_path, step) for step in (1, 2, 3, 4)]
    files.prune(tmp_path, 2, torn={stored[3].path})
    assert steps(tmp_path) == [4, 3, 2]
    files.prune(tmp_path, 2, torn=())
    assert steps(tmp_path) == [4, 3]


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ckpt-mine").write_text("x")
    (tmp_path / ".fed").mkdir()
    for step in range(4):
        write(tmp_path, step)
        files.prune(tmp_path, 1, torn=())
    assert {path.name for path in tmp_path.iterdir()} == {
        "ckpt-mine",
        ".fed",
        "ckpt-00000004-step-3",
    }


@pytest.mark.parametrize(
    ("above", "folder_bits", "file_bits"),
    [(0o777, 0o777, 0o666), (0o2770, 0o770, 0o660), (0o700, 0o700, 0o600), (0o1777, 0o755, 0o644)],
)
def test_permission_bits_are_those_of_the_directory_whatever_the_umask(
    tmp_path: Path, above: int, folder_bits: int, file_bits: int
) -> None:
    """Another site of the region may know the user by another UID; /tmp's bits mean no such."""
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    directory.chmod(above)
    with umask(0o027):
        stored = write(directory, 1)
        files.make_folder(directory / ".fed")
        files.put_in_place(directory / ".fed" / "saved.1", "")
    for path in (stored.path, directory / ".fed"):
        assert path.stat().st_mode & 0o777 == folder_bits
    for path in (*stored.path.iterdir(), directory / ".fed" / "saved.1"):
        assert path.stat().st_mode & 0o777 == file_bits


def test_links_that_others_put_in_the_way_are_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "precious"
    theirs.write_text("theirs")
    for name in ("saved.1", f".saved.1.{os.getpid()}", f".saved.1.{b'guessed!'.hex()}"):
        (tmp_path / name).symlink_to(theirs)
    files.put_in_place(tmp_path / "saved.1", "mine")
    assert (tmp_path / "saved.1").read_text() == "mine"
    monkeypatch.setattr(os, "urandom", lambda _size: b"guessed!")
    with pytest.raises(FileExistsError):
        files.put_in_place(tmp_path / "saved.1", "mine again")
    assert theirs.read_text() == "theirs"


def test_an_answer_that_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "saved.1").mkdir()
    with pytest.raises(OSError, match=r"saved\.1"):
        files.put_in_place(tmp_path / "saved.1", "mine")
    assert os.listdir(tmp_path) == ["saved.1"]


def test_what_a_writer_that_died_left_can_be_removed_by_another_uid(tmp_path: Path) -> None:
    """Folders in folders as well, from the moment that they are made."""
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    directory.chmod(0o2770)
    part = files.part_of(directory, "1-1")
    with umask(0o077):
        files.begin(directory, part)
        with files.shared(part), files.shared(part):
            (files.state_of(part, 0) / "shards").mkdir(parents=True)
        assert os.umask(0o077) == 0o077
    for folder in (part, part / "state-0", part / "state-0" / "shards"):
        assert folder.stat().st_mode & 0o777 == 0o770


def test_a_folder_that_is_private_makes_nothing_more_private_elsewhere(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with umask(0o022), files.shared(tmp_path):
        assert os.umask(0o022) == 0o022


def test_a_directory_that_is_made_here_is_as_the_umask_says(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with umask(0o077):
        write(tmp_path / "new" / "place", 1)
    assert (tmp_path / "new" / "place").stat().st_mode & 0o777 == 0o700
