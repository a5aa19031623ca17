"""A log that is being compacted is the old one or the new one, whatever happens meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from federator.errors import NotCompacted
from federator.store.sqlite import SqliteStore

pytestmark = pytest.mark.slow

OLD = [b"old %d " % k + b"x" * 500 for k in range(5_000)]
NEW = [b"new %d " % k + b"y" * 5_000 for k in range(4_000)]
COMPACTS = """
import sys, time
from pathlib import Path
from federator.store.sqlite import SqliteStore
from tests.unit.store.test_compaction import NEW
store = SqliteStore(Path(sys.argv[1]))
store.lead(0)
print("now", flush=True)
store.compact(NEW)
print("done", flush=True)
time.sleep(60)
"""


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.lead(0)
    store.append(OLD)
    store.close()
    return path


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 0.2, None])
def test_a_daemon_that_is_killed_while_it_compacts_leaves_the_old_log_or_the_new_one(
    path: Path, after_s: float | None
) -> None:
    argv = [sys.executable, "-c", COMPACTS, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        if after_s is None:
            assert process.stdout.readline() == b"done\n"
        else:
            until_s = time.monotonic() + after_s
            while time.monotonic() < until_s:
                pass
        process.kill()
    store = SqliteStore(path)
    assert store.lead(0) is not None, "the lock went with the process"
    found = list(store.records())
    assert found == NEW if after_s is None else found in (OLD, NEW)
    store.append([b"later"])
    assert list(store.records()) == [*found, b"later"]
    store.close()


def test_a_disk_without_room_for_both_logs_is_seen_before_anything_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path)
    store.lead(0)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: _Usage(10**9, 10**9, 50_000_000))
        with pytest.raises(NotCompacted, match="MiB free"):
            store.compact(NEW)
    store.append([b"later"])
    assert list(store.records()) == [*OLD, b"later"]
    store.compact(NEW)
    assert list(store.records()) == NEW
    store.close()


def test_the_space_of_the_old_log_is_used_again(path: Path) -> None:
    store = SqliteStore(path)
    store.lead(0)
    store.compact(NEW)
    size = path.stat().st_size
    for _ in range(4):
        store.append(OLD)
        store.compact(NEW)
    assert path.stat().st_size < 2.5 * size
    assert Path(f"{path}-wal").stat().st_size < size
    store.close()
