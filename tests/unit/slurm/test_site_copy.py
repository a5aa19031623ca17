"""A copy goes on step by step, whoever dies, and is only ever in its place as a whole."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federator.cli.data_digest import tree_digest
from federator.site_installer.helper import HELPER_SOURCE, helper_of
from federator.slurm import site_copy, site_worker

Json = dict[str, Any]
PATIENCE_S = 30.0
COPIES = '#!/bin/sh\nfor a; do b=$from; from=$to; to=$a; done\ncp -r "$from" "$to"\n'
HANGS = COPIES + f"echo $$ >{{pid}}\nexec {sys.executable} -c 'import time; time.sleep(600)'\n"


class Site:
    """The helper as it is installed, with a program of the test's in the place of rsync."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rsync, self.pid = folder / "rsync", folder / "pid"
        source = helper_of(HELPER_SOURCE.read_text())
        self.helper = folder / "helper"
        self.helper.write_text(source.replace('"/usr/bin/rsync"', repr(str(self.rsync))))
        self.runs(COPIES)
        self.here, self.root = folder / "west/sets/wiki", folder / "east"
        (self.here / "deep").mkdir(parents=True)
        (self.here / "words").write_text("many words\n")
        (self.here / "deep/more").write_bytes(b"\0" * 100_000)
        self.root.mkdir()
        self.place = self.root / "sets/wiki"

    def runs(self, script: str) -> None:
        """Have rsync be this from now on."""
        self.rsync.write_text(script.replace("{pid}", str(self.pid)))
        self.rsync.chmod(0o755)

    def order(self, **changes: Any) -> Json:
        return {
            "host": "",
            "port": "",
            "source": str(self.here),
            "root": str(self.root),
            "path": "sets/wiki",
            "digest": tree_digest(bytes(self.here)).digest,
            "size_bytes": 100_011,
            "keep_free_bytes": 0,
            "kib_per_s": 0,
            "replace": False,
            "drop": False,
        } | changes

    def step(self, **changes: Any) -> Json:
        request = json.dumps({"op": "copy", "order": self.order(**changes)})
        done = subprocess.run(
            [sys.executable, str(self.helper)],
            input=request,
            capture_output=True,
            text=True,
            check=True,
        )
        answer: Json = json.loads(done.stdout)
        return answer

    def until(self, *phases: str, **changes: Any) -> Json:
        """Ask again and again, as the daemon does."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            told = self.step(**changes)
            if told.get("phase") in phases:
                return told
        raise AssertionError(told)

    def hidden(self) -> list[str]:
        return [name for name in os.listdir(self.place.parent) if name.startswith(".")]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(made.pid.read_text()), signal.SIGKILL)


def running(site: Site) -> int:
    """The pid of an rsync that hangs, once its part of the copy is made."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError, ValueError):
            return int(site.pid.read_text())
    raise AssertionError("rsync was not run")


def test_a_copy_is_in_its_place_whole_and_leaves_nothing_beside_it(site: Site) -> None:
    assert site.until("done")["bytes"] == 100_011
    assert tree_digest(bytes(site.place)) == tree_digest(bytes(site.here))
    assert site.hidden() == []


def test_one_file_is_a_data_set_too(site: Site) -> None:
    words = site.here / "words"
    of = {"source": str(words), "digest": tree_digest(bytes(words)).digest, "path": "words"}
    site.place = site.root / "words"
    site.until("done", **of)
    assert site.place.read_text() == "many words\n"


def test_an_order_that_is_repeated_after_the_end_finds_what_is_there(site: Site) -> None:
    site.until("done")
    site.runs("#!/bin/sh\nexit 99\n")
    site.until("done")


def test_while_a_worker_is_at_work_nothing_is_in_the_place_and_no_other_begins(site: Site) -> None:
    site.runs(HANGS)
    site.step()
    pid = running(site)
    assert [site.step()["phase"] for _ in range(3)] == ["copying"] * 3
    assert int(site.pid.read_text()) == pid
    assert not site.place.exists()


def test_a_killed_worker_is_followed_by_one_that_goes_on_with_what_is_there(site: Site) -> None:
    site.runs(HANGS)
    site.step()
    rsync = running(site)
    worker = int(Path(f"/proc/{rsync}/stat").read_text().split(")")[1].split()[1])
    os.kill(worker, signal.SIGKILL)
    assert site.step()["phase"] == "copying"  # its rsync still writes, and holds the lock
    os.kill(rsync, signal.SIGKILL)
    site.runs("#!/bin/sh\nfor a; do to=$a; done\ntest -f $to/wiki/words\n")
    site.until("done")
    assert tree_digest(bytes(site.place)) == tree_digest(bytes(site.here))


def test_what_came_damaged_is_never_published(site: Site) -> None:
    site.runs(COPIES + 'echo other >"$to/wiki/words"\n')
    assert "another digest" in site.until("failed")["detail"]
    assert not site.place.exists()
    site.runs(COPIES)
    site.until("done")


def test_what_rsync_said_is_told(site: Site) -> None:
    site.runs("#!/bin/sh\necho 'connection refused' >&2; exit 12\n")
    assert "ended with 12: connection refused" in site.until("failed")["detail"]


def test_something_else_in_the_place_stays_there(site: Site) -> None:
    site.place.mkdir(parents=True)
    (site.place / "mine").write_text("mine")
    assert "something else is at its place" in site.until("failed")["detail"]
    assert (site.place / "mine").read_text() == "mine"


def test_a_damaged_replica_gives_way_to_a_whole_one(site: Site) -> None:
    site.place.mkdir(parents=True)
    (site.place / "words").write_text("torn")
    site.until("done", replace=True)
    assert tree_digest(bytes(site.place)) == tree_digest(bytes(site.here))
    assert site.hidden() == []


def test_a_copy_that_leaves_too_little_free_is_refused(site: Site) -> None:
    assert "no room" in site.until("failed", keep_free_bytes=2**62)["detail"]
    assert not site.place.exists()


def test_a_worker_that_cannot_write_its_words_makes_room_for_them(site: Site) -> None:
    site.runs("#!/bin/sh\nln -s /no/such/folder news.new\nexit 11\n")  # as on a full disk
    assert "rsync ended with 11" in site.until("failed")["detail"]
    assert not site.place.exists()


def left_behind(site: Site, name: str, age_s: float) -> Path:
    """What a copy of an earlier day left beside the place of this one."""
    folder = site.place.parent / name
    (folder / "in/set").mkdir(parents=True)
    (folder / "in/set/half").write_text("half")
    for each in ("asked", "lock", "news"):
        (folder / each).touch()
        os.utime(folder / each, (time.time() - age_s,) * 2)
    os.utime(folder, (time.time() - age_s,) * 2)
    return folder


def test_what_was_left_long_ago_is_swept_by_the_next_copy_beside_it(site: Site) -> None:
    left_behind(site, ".fed-copy-" + "a" * 16, 15 * 86400.0)
    recent = left_behind(site, ".fed-copy-" + "b" * 16, 13 * 86400.0)
    site.until("done")
    assert site.hidden() == [recent.name]
    assert (recent / "in/set/half").read_text() == "half"


def test_the_sweep_touches_nothing_that_is_not_a_copys(site: Site, tmp_path: Path) -> None:
    old_s = 15 * 86400.0
    moved = left_behind(site, ".fed-copy-" + "a" * 16, old_s)  # by somebody who may write here
    (moved / "mine").touch()
    other = left_behind(site, ".fed-copies", old_s)
    no_lock = left_behind(site, ".fed-copy-" + "b" * 16, old_s)
    (no_lock / "lock").unlink()
    os.utime(no_lock, (time.time() - old_s,) * 2)
    link = site.place.parent / (".fed-copy-" + "c" * 16)
    link.symlink_to(tmp_path / "west")
    held = left_behind(site, ".fed-copy-" + "d" * 16, old_s)
    with (held / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        site.until("done")
    kept = {each.name for each in (moved, other, no_lock, link, held)}
    assert set(site.hidden()) == kept
    for folder in (moved, other, no_lock, held):
        assert (folder / "in/set/half").exists()
    assert (site.here / "words").exists()


def test_a_copy_that_is_dropped_goes_with_its_worker(site: Site) -> None:
    site.runs(HANGS)
    site.step()
    running(site)
    site.until("dropped", drop=True)
    assert site.hidden() == []
    assert not site.place.exists()


def test_no_link_below_the_root_is_followed(site: Site) -> None:
    elsewhere = site.folder / "elsewhere"
    elsewhere.mkdir()
    (site.root / "sets").symlink_to(elsewhere)
    told = site.step()
    assert told.get("phase") == "failed" or "error" in told
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "-oProxyCommand=x"},
        {"host": "a b"},
        {"port": "22;x"},
        {"source": "etc/passwd"},
        {"root": "here"},
        {"digest": 7},
        {"kib_per_s": -1},
    ],
)
def test_malformed_orders_are_refused(site: Site, changes: Json) -> None:
    assert "error" in site.step(**changes)


@pytest.mark.parametrize("path", ["../west/x", "a//b", "", "a/./b"])
def test_paths_that_lead_out_are_refused(site: Site, path: str) -> None:
    assert site.step(path=path)["phase"] == "failed"


def test_the_digest_is_that_of_verify(site: Site) -> None:
    (site.here / "deep.txt").write_text("sorts before what is in deep/")
    found, size = site_worker.digest_of_tree(bytes(site.here))
    expected = tree_digest(bytes(site.here))
    assert (found, size) == (expected.digest, expected.size_bytes)


def test_a_pipe_that_a_job_left_is_refused_and_not_waited_for(site: Site) -> None:
    os.mkfifo(site.here / "pipe")
    with pytest.raises(site_worker.CopyFailed, match="neither a file nor a folder"):
        site_worker.digest_of_tree(bytes(site.here))


def test_what_leaves_this_host_is_bounded_and_comes_as_the_user(site: Site, tmp_path: Path) -> None:
    said = tmp_path / "argv"
    site.runs(f'#!/bin/sh\nprintf "%s\\n" "$@" >{said}; exit 1\n')
    site.until("failed", host="gate.example", port="2222", kib_per_s=512)
    words = said.read_text().splitlines()
    assert f"gate.example:{site.here}" in words
    assert "--bwlimit=512" in words
    assert any("BatchMode=yes" in word and "2222" in word for word in words)


def test_folders_that_are_missing_are_made_for_the_owner_alone(site: Site) -> None:
    site.until("done")
    assert site.place.parent.stat().st_mode & 0o777 == 0o700


def test_a_copy_is_done_once_its_worker_has_ended_and_nothing_hidden_is_left(site: Site) -> None:
    """A worker that has said its last word and lives on, for a moment: a busy machine's."""
    site.until("done")
    hidden = site.place.parent / site_copy.copy_name(site.order())
    hidden.mkdir(0o700)
    (hidden / "news").write_text('{"phase": "done", "bytes": 1, "detail": ""}')
    with (hidden / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert site.step()["phase"] == "checking"
    assert site.step()["phase"] == "done"
    assert site.hidden() == []


def test_what_is_replaced_stays_until_the_whole_copy_is_there(site: Site) -> None:
    site.place.mkdir(parents=True)
    (site.place / "words").write_text("damaged")
    site.runs(COPIES + 'echo other >"$to/wiki/words"\n')
    site.until("failed", replace=True)
    assert (site.place / "words").read_text() == "damaged"
    site.runs(COPIES)
    site.until("done", replace=True)
    assert site.hidden() == []


@pytest.mark.parametrize(
    "forged",
    [
        {"phase": "done", "bytes": 1, "detail": ""},
        {"phase": "copying", "bytes": 10**30, "detail": ""},
        {"phase": [], "bytes": 1, "detail": ""},
    ],
)
def test_forged_news_are_not_believed(site: Site, forged: Json) -> None:
    site.runs(HANGS)
    site.step()
    os.kill(running(site), signal.SIGKILL)
    site.until("failed")
    (folder,) = (site.place.parent / name for name in site.hidden())
    (folder / "news").write_text(json.dumps(forged))
    told = site.step()
    assert told["phase"] != "done"
    assert 0 <= told["bytes"] < 2**63


DEEPER = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(1200):
    os.mkdir("d")
    os.chdir("d")
"""


def test_a_worker_that_meets_the_unforeseen_says_so(site: Site, tmp_path: Path) -> None:
    (site.folder / "deeper").write_text(DEEPER)
    deeper = f'exec {sys.executable} {site.folder}/deeper "$to/wiki"\n'
    site.runs(COPIES + deeper)
    try:
        assert "RecursionError" in site.until("failed")["detail"]
    finally:  # Python, and with it pytest, cannot
        subprocess.run(["rm", "-rf", "--", *map(str, tmp_path.iterdir())], check=True)
