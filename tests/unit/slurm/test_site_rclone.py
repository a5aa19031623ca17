"""A data set comes from an object store by its owner's rclone, whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from federator.cli.data_digest import tree_digest
from federator.slurm.site_rclone import rclone_words, read_log_line, says_folder
from tests.unit.slurm.test_site_copy import Json, Site

PROGRESS = b'{"level":"warning","msg":"Transferred","stats":{"bytes":1044483,"checks":0}}'
NOT_FOUND = b'{"level":"error","msg":"Attempt 1/1 failed with 1 errors and: directory not found"}'


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (PROGRESS, (1044483, "")),
        (NOT_FOUND, (7, "Attempt 1/1 failed with 1 errors and: directory not found")),
        (b'{"level":"info"}', (7, "")),
        (b'{"level":"info","stats":{"bytes":"many"}}', (7, "")),
        (b"[1]", (7, "")),
        (b"{" * 100_000, (7, "")),
        (b"2026/11/27 Failed to sync", (7, "")),
    ],
)
def test_the_log_says_how_far_it_is_and_what_went_wrong(
    line: bytes, found: tuple[int, str]
) -> None:
    assert read_log_line(line, 7) == found


@pytest.mark.parametrize(
    ("answer", "is_folder"),
    [(b'{"IsDir": true}', True), (b'{"IsDir": false}', False), (b"[]", False), (b"{", False)],
)
def test_a_folder_is_told_from_a_file(answer: bytes, is_folder: bool) -> None:
    assert says_folder(answer) is is_folder


def test_a_bound_and_the_files_at_once_are_told() -> None:
    words = rclone_words("rclone:s3:sets/wiki", "in/wiki", 512, 8, True)
    assert {"--bwlimit=512k", "--transfers=8"} <= set(words)
    assert words[-3:] == ["--", "s3:sets/wiki", "in/wiki"]


class Store(Site):
    """A site with rclone and a remote, here a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rclone = folder / "rclone"
        text = self.helper.read_text().replace('"/usr/bin/rclone"', repr(str(self.rclone)))
        self.helper.write_text(text)
        (folder / "rclone.conf").write_text(f"[box]\ntype = alias\nremote = {folder}/west\n")
        self.with_rclone("")

    def with_rclone(self, before: str) -> None:
        named = f"RCLONE_CONFIG={self.folder}/rclone.conf exec {shutil.which('rclone')}"
        self.rclone.write_text(f'#!/bin/sh\n{before}\n{named} "$@"\n')
        self.rclone.chmod(0o755)

    def order(self, **changes: object) -> Json:
        return super().order(**{"source": "rclone:box:sets/wiki", **changes})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    if shutil.which("rclone") is None:
        pytest.skip("rclone is not installed")
    return Store(tmp_path)


def test_it_comes_whole_and_leaves_nothing_beside_it(store: Store) -> None:
    assert store.until("done", "failed") == {"phase": "done", "bytes": 100_011, "detail": ""}
    assert tree_digest(bytes(store.place)) == tree_digest(bytes(store.here))
    assert store.hidden() == []
    modes = [path.stat().st_mode & 0o777 for path in (store.place, store.place / "words")]
    assert modes == [0o700, 0o600]


def test_one_object_is_a_data_set_too(store: Store) -> None:
    digest = tree_digest(bytes(store.here / "words")).digest
    source = "rclone:box:sets/wiki/words"
    told = store.until("done", "failed", source=source, digest=digest, size_bytes=11)
    assert told["phase"] == "done"
    assert store.place.read_text() == "many words\n"


def test_what_an_earlier_try_has_left_goes(store: Store) -> None:
    parts = store.folder / "parts"
    wild = (
        f"[ -e {parts} ] || {{ touch {parts}; mkdir -p in/wiki; echo torn >in/wiki/torn; exit 1; }}"
    )
    store.with_rclone(f'case "$*" in *lsjson*) ;; *) {wild};; esac')
    assert store.until("done", "failed")["phase"] == "failed"
    assert store.until("done", "failed")["phase"] == "done"
    assert sorted(os.listdir(store.place)) == ["deep", "words"]


def test_what_is_not_there_is_said_in_rclones_words(store: Store) -> None:
    told = store.until("done", "failed", source="rclone:box:sets/nothing")
    assert told["phase"] == "failed"
    assert "directory not found" in told["detail"]
    told = store.until("done", "failed", source="rclone:bag:sets/nothing")
    assert "rclone ended with 1" in told["detail"]
    assert "didn't find section in config file" in told["detail"]


def test_another_content_is_not_published(store: Store) -> None:
    told = store.until("done", "failed", digest="sha256tree:" + "0" * 64)
    assert (told["phase"], "another digest" in told["detail"]) == ("failed", True)
    assert not store.place.exists()


@pytest.mark.parametrize(
    "source", ["rclone:", "rclone:box", "rclone::local:/etc", "rclone:-x:y", "box:sets"]
)
def test_a_remote_that_cannot_be_is_refused(tmp_path: Path, source: str) -> None:
    assert Site(tmp_path).step(source=source)["exit_status"] == 64


def test_a_remote_of_another_host_is_refused(tmp_path: Path) -> None:
    assert Site(tmp_path).step(source="rclone:box:sets", host="gate")["exit_status"] == 64
