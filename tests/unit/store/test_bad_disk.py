"""What becomes of the embedded store on a disk that is full, fails or is cut off in a write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from federator.store.sqlite import SqliteStore

SOURCE = Path(__file__).with_name("bad_disk.c")
WRITER = """
import os, sys
from pathlib import Path
from federator.errors import StoreError
from federator.store.sqlite import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
store.lead(0)
store.append([b"one", b"two"])
print("two are acknowledged", flush=True)
Path(os.environ["BAD_DISK_NOW"]).write_text(sys.argv[2])
for attempt in range(2):
    try:
        store.append([b"three" * 1000])
        print("acknowledged after all")
    except StoreError as error:
        print(error)
try:
    SqliteStore(Path(sys.argv[1])).lead(0)
except StoreError as error:
    print(error)
store.close()
"""


@pytest.fixture(scope="module")
def bad_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload."""
    made = tmp_path_factory.mktemp("bad_disk") / "bad_disk.so"
    argv = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run(argv, check=True)
    return made


def told(library: Path, folder: Path, trouble: str) -> tuple[int, list[str]]:
    """Exit status and what the writer said, on a disk that has this trouble after two records."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "BAD_DISK": "queue.db",
        "BAD_DISK_NOW": str(folder / "now"),
    }
    argv = [sys.executable, "-c", WRITER, str(folder / "queue.db"), trouble]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def records(path: Path) -> list[bytes]:
    with closing(SqliteStore(path)) as store:
        assert store.lead(0) is not None
        return list(store.records())


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("full", "the disk is full: make room"), ("sync", "the disk failed (see dmesg): mend it")],
)
def test_a_failing_disk_is_named_once_and_nothing_is_acknowledged_or_lost(
    bad_disk: Path, tmp_path: Path, trouble: str, words: str
) -> None:
    status, (acknowledged, first, second, *_) = told(bad_disk, tmp_path, trouble)
    assert (status, acknowledged) == (0, "two are acknowledged")
    assert str(tmp_path / "queue.db") in first
    assert words in first
    assert "a write has failed" in second  # it does not try on what may be half there
    found = records(tmp_path / "queue.db")
    assert found[:2] == [b"one", b"two"]
    assert found[2:] in ([], [b"three" * 1000])  # which of both was not known, and not claimed


def test_a_last_record_that_was_cut_off_is_as_if_never_written(
    bad_disk: Path, tmp_path: Path
) -> None:
    status, said = told(bad_disk, tmp_path, "torn")
    assert (status, said) == (-signal.SIGKILL, ["two are acknowledged"])
    assert records(tmp_path / "queue.db") == [b"one", b"two"]
    assert records(tmp_path / "queue.db") == [b"one", b"two"]  # and again
