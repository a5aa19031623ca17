"""Several rsyncs share a copy: each file is in one share, and the shares are even."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.cli.data_digest import tree_digest
from federator.slurm import site_copy, site_streams
from federator.slurm.site_streams import FILE_COSTS_BYTES, LISTS, deal_out
from tests.unit.slurm.test_site_copy import Site

LISTED = [
    b"drwxr-xr-x          4,096 2026/11/27 10:55:20 books\n",
    b"-rw-r--r--            300 2026/11/27 10:55:20 books/one\n",
    b"-rw-r--r--  1,000,000,000 2026/11/27 10:55:20 books/ two  words \n",
    b"-rw-r--r--             30 2026/11/27 10:55:20 books/\xc3\xa9\n",
    b"-rw-r--r--              5 2026/11/27 10:55:20 books/new\\#012line\n",
    b"lrwxrwxrwx              5 2026/11/27 10:55:20 books/link -> one\n",
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shares(streams: int) -> list[list[bytes]]:
    return [Path(name).read_bytes().split(b"\0")[:-1] for name in LISTS[:streams]]


def test_files_alone_are_dealt_out_and_the_largest_has_a_share_of_its_own() -> None:
    assert deal_out(LISTED, 2) == 3
    assert shares(2) == [[b"books/one", b"books/\xc3\xa9"], [b"books/ two  words "]]


@given(st.lists(st.integers(0, 10**7), max_size=60), st.integers(1, 16))
def test_each_file_is_in_one_share_and_no_share_is_larger_by_more_than_one_file(
    sizes: list[int], streams: int
) -> None:
    lines = [
        b"-rw-r--r-- %14d 2026/11/27 10:55:20 a/%d\n" % (size, n) for n, size in enumerate(sizes)
    ]
    assert deal_out(lines, streams) == len(sizes)
    dealt = [[int(name[2:]) for name in share] for share in shares(streams)]
    assert sorted(n for share in dealt for n in share) == list(range(len(sizes)))
    loads = [sum(sizes[n] + FILE_COSTS_BYTES for n in share) for share in dealt]
    assert max(loads) - min(loads) <= max(sizes, default=0) + FILE_COSTS_BYTES


def test_the_notes_of_streams_are_a_copys() -> None:
    assert site_copy.OF_A_COPY.issuperset(LISTS)
    assert len(LISTS) == site_streams.MOST_STREAMS


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
@pytest.mark.parametrize("streams", [2, 16])
def test_a_copy_of_several_streams_is_the_same(tmp_path: Path, streams: int) -> None:
    site = Site(tmp_path)
    rsync = shutil.which("rsync")
    site.runs(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\nexec {rsync} "$@"\n')
    for number in range(40):
        (site.here / f"part {number}").write_bytes(b"x" * number * 1000)
    (site.here / "new\nline").write_text("a name that rsync writes in another way\n")
    size = tree_digest(bytes(site.here)).size_bytes
    told = site.until("done", "failed", streams=streams, size_bytes=size)
    assert told == {"phase": "done", "bytes": size, "detail": ""}
    assert tree_digest(bytes(site.place)) == tree_digest(bytes(site.here))
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("--files-from" in call for call in calls) == streams
    assert ("--list-only" in calls[0], "--delete" in calls[-1]) == (True, True)
    assert site.hidden() == []


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
def test_if_one_stream_fails_the_copy_fails_and_says_why(tmp_path: Path) -> None:
    site = Site(tmp_path)
    rsync = shutil.which("rsync")
    fails = (
        'case "$*" in *list.1*) echo no such way >&2; exit 12;; *list.0*) exec sleep 600;; esac\n'
    )
    site.runs(f'#!/bin/sh\n{fails}exec {rsync} "$@"\n')
    told = site.until("done", "failed", streams=2)
    assert told["phase"] == "failed"
    assert told["detail"] == "rsync ended with 12: no such way"


def test_one_file_has_one_stream(tmp_path: Path) -> None:
    site = Site(tmp_path)
    words = site.here / "words"
    listed = "-rw-r--r-- 11 2026/11/27 10:55:20 words"
    copies = 'for a; do b=$from; from=$to; to=$a; done\ncp -r "$from" "$to"\n'
    site.runs(f'#!/bin/sh\ncase "$*" in *--list-only*) echo "{listed}"; exit;; esac\n{copies}')
    of = {"source": str(words), "digest": tree_digest(bytes(words)).digest, "path": "words"}
    assert site.until("done", "failed", streams=4, **of)["phase"] == "done"


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
def test_there_are_no_more_streams_than_files_and_they_share_the_bandwidth(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.runs(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\nexec {shutil.which("rsync")} "$@"\n')
    assert site.until("done", "failed", streams=16, kib_per_s=1000)["phase"] == "done"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("--bwlimit=500 " in call for call in calls) == 2


@pytest.mark.parametrize("streams", [-1, "2", True])
def test_streams_that_cannot_be_are_refused(tmp_path: Path, streams: object) -> None:
    told = Site(tmp_path).step(streams=streams)
    assert told["exit_status"] == 64
