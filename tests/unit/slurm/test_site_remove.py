"""Only what has the right digest is removed, and never a part of it is taken for the whole."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from federator.cli.data_digest import tree_digest
from federator.site_installer.helper import HELPER_SOURCE, helper_of
from federator.slurm import site_copy, site_remove, site_worker
from federator.slurm.site_files import BARE

Json = dict[str, Any]
PATIENCE_S = 30.0


class Site:
    """The helper as it is installed, and a data set in its place."""

    def __init__(self, folder: Path) -> None:
        self.helper = folder / "helper"
        self.helper.write_text(helper_of(HELPER_SOURCE.read_text()))
        self.root = folder / "east"
        self.place = self.root / "sets/wiki"
        (self.place / "deep").mkdir(parents=True)
        (self.place / "words").write_text("many words\n")
        (self.place / "deep/more").write_bytes(b"\0" * 1000)
        self.digest = tree_digest(bytes(self.place)).digest

    def step(self, **changes: Any) -> Json:
        order = {"root": str(self.root), "path": "sets/wiki", "digest": self.digest} | changes
        done = subprocess.run(
            [sys.executable, str(self.helper)],
            input=json.dumps({"op": "remove", "order": order}),
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
            said = self.step(**changes)
            if said.get("phase") in phases:
                return said
        raise AssertionError(said)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_it_goes_and_leaves_nothing_beside_it(site: Site) -> None:
    (site.root / "sets/other").write_text("stays")
    assert site.step()["phase"] == "checking"
    site.until("dropped")
    assert os.listdir(site.root / "sets") == ["other"]
    assert site.step()["phase"] == "dropped"


def test_something_else_at_its_place_stays(site: Site) -> None:
    (site.place / "words").write_text("other words\n")
    assert "something else is at its place" in site.until("failed", "dropped")["detail"]
    assert (site.place / "deep/more").exists()
    assert site.until("failed", "dropped")["phase"] == "failed"


def test_a_link_at_its_place_or_above_it_is_not_followed(site: Site, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    site.place.rename(elsewhere)
    site.place.symlink_to(elsewhere)
    site.until("failed")
    assert (elsewhere / "words").exists()
    site.place.unlink()
    (site.root / "sets").rename(tmp_path / "sets")
    (site.root / "sets").symlink_to(tmp_path / "sets")
    elsewhere.rename(tmp_path / "sets/wiki")
    site.until("failed")
    assert (tmp_path / "sets/wiki/words").exists()


def test_a_domain_that_is_not_mounted_is_not_taken_for_one_without_it(site: Site) -> None:
    assert site.step(root=str(site.root / "sets/none"))["phase"] == "failed"
    empty = site.root.parent / "bare"
    empty.mkdir()
    assert site.step(root=str(empty)) == {"phase": "failed", "bytes": 0, "detail": BARE}


def test_what_an_earlier_worker_has_renamed_is_removed_by_the_next(site: Site) -> None:
    site.step()
    site.until("dropped")
    left = site.root / "sets" / (".fed-copy-" + _name(site)) / "in"
    left.mkdir(parents=True)
    (left / "half").write_text("gone soon")
    site.until("dropped")
    assert os.listdir(site.root / "sets") == []


def _name(site: Site) -> str:
    """As ``site_copy.copy_name``."""
    words = "\0".join((os.uname().nodename, "sets/wiki", site.digest))
    return hashlib.sha256(words.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "../sets/wiki"},
        {"path": "sets//wiki"},
        {"root": "east"},
        {"digest": 7},
        {"path": "sets/\0wiki"},
        {"more": 1},
    ],
)
def test_an_order_that_cannot_be_removes_nothing(site: Site, changes: Json) -> None:
    said = site.step(**changes)
    assert said.get("phase") == "failed" or said["exit_status"] == 64
    assert (site.place / "words").exists()


def test_what_is_read_only_goes_too(site: Site) -> None:
    for path in (site.place / "deep/more", site.place / "deep", site.place):
        path.chmod(path.stat().st_mode & ~0o222)
    site.until("dropped")
    assert os.listdir(site.root / "sets") == []


def test_one_that_was_renamed_away_is_not_gone_for_another_login_node(site: Site) -> None:
    """The node that renamed it has died; the name of its hidden folder is its own."""
    words = "\0".join(("sets/wiki", site.digest)).encode()
    gone = site.root / "sets" / (".fed-gone-" + hashlib.sha256(words).hexdigest()[:16])
    site.place.rename(gone)
    (site.root / "other").touch()
    assert site.step()["phase"] == "checking"
    site.until("dropped")
    assert not gone.exists()


def test_a_removal_that_nobody_asks_for_any_more_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "place").write_text("stays")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "asked").touch()
    monkeypatch.chdir(hidden)
    order = {"root": str(tmp_path), "path": "place", "digest": "any:0"}
    monkeypatch.setitem(site_copy.PROOFS, "any", lambda _: ("any:0", 5))
    os.utime("asked", (1.0, 1.0))
    with pytest.raises(site_worker.CopyFailed, match="nobody asks"):
        site_remove.remove_files(order)
    assert (tmp_path / "place").exists()
    (hidden / "asked").touch()
    os.utime("asked")
    assert site_remove.remove_files(order) == 0
    assert os.listdir(tmp_path) == ["hidden"]


def test_an_old_word_that_it_is_gone_is_not_believed_of_what_is_there_again(site: Site) -> None:
    site.step()
    hidden = site.root / "sets" / (".fed-copy-" + _name(site))
    until_s = time.monotonic() + PATIENCE_S
    while site.place.exists() and time.monotonic() < until_s:
        pass
    while '"dropped"' not in (hidden / "news").read_text():
        pass
    (site.place / "deep").mkdir(parents=True)
    (site.place / "words").write_text("many words\n")
    (site.place / "deep/more").write_bytes(b"\0" * 1000)
    assert site.step()["phase"] == "checking"
    site.until("dropped")
    assert not site.place.exists()
