"""Only sealed checkpoints are copied, whole, and what was copied in vain goes with the job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from federator.checkpoint import files
from federator.site_installer.helper import HELPER_SOURCE, helper_of

Json = dict[str, Any]
PATIENCE_S = 30.0
COPIES = '#!/bin/sh\nfor a; do b=$from; from=$to; to=$a; done\ncp -r "$from" "$to"\n'
JOB = "ada/checkpoints/7"


class Regions:
    """A workload's folders in two regions, and the helper as it is installed there."""

    def __init__(self, folder: Path) -> None:
        self.west, self.east = folder / "west", folder / "east"
        self.rsync = folder / "rsync"
        source = helper_of(HELPER_SOURCE.read_text())
        self.helper = folder / "helper"
        self.helper.write_text(source.replace('"/usr/bin/rsync"', repr(str(self.rsync))))
        self.runs(COPIES)
        self.here, self.there = self.west / JOB, self.east / JOB
        (self.here / ".fed").mkdir(parents=True)
        self.east.mkdir()

    def runs(self, script: str) -> None:
        self.rsync.write_text(script)
        self.rsync.chmod(0o755)

    def save(self, step: int, text: str = "weights", *, ranks: int = 1) -> str:
        """Write a checkpoint as ``Checkpointer`` does; return its name."""
        return saved(self.here, step, text, ranks=ranks)

    def ask(self, op: str, **request: Any) -> Json:
        done = subprocess.run(
            [sys.executable, str(self.helper)],
            input=json.dumps({"op": op} | request),
            capture_output=True,
            text=True,
            check=True,
        )
        answer: Json = json.loads(done.stdout)
        return answer

    def step(self, path: str, digest: str, **changes: Any) -> Json:
        order = {
            "host": "",
            "port": "",
            "source": str(self.west / path),
            "root": str(self.east),
            "path": path,
            "digest": digest,
            "size_bytes": 10,
            "keep_free_bytes": 0,
            "kib_per_s": 0,
            "replace": False,
            "drop": False,
        } | changes
        return self.ask("copy", order=order)

    def newest(self) -> Json:
        return self.step(JOB, "sealed:", root=str(self.west), source="/")

    def copy(self, *phases: str) -> Json:
        """Have the newest one copied, asking again and again as the daemon does."""
        name, digest = self.newest()["detail"].split()
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            seen = self.step(f"{JOB}/{name}", digest)
            if seen["phase"] in phases:
                return seen
        raise AssertionError(seen)

    def tidy(self) -> Json:
        root = str(self.east / "ada/checkpoints")
        return self.ask("tidy", root=root, ended=[7], live=[], below=0, before_s=0.0)

    def names(self) -> list[str]:
        """What is in its folder there; a copy's hidden one goes a moment after that is done."""
        return sorted(n for n in os.listdir(self.there) if not n.startswith(".fed-copy-"))


def saved(folder: Path, step: int, text: str, *, ranks: int = 1) -> str:
    part = files.part_of(folder, str(step))
    files.begin(folder, part)
    for rank in range(ranks):
        state = files.state_of(part, rank)
        state.mkdir()
        (state / "model").write_text(f"{text} {rank}")
        files.seal(part, rank, ranks=ranks, checksum=True)
    return files.commit(part, step).path.name


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    return Regions(tmp_path)


def test_the_newest_sealed_checkpoint_is_found_with_its_size(regions: Regions) -> None:
    regions.save(1)
    name = regions.save(2, ranks=3)
    found = regions.newest()
    assert found["phase"] == "found"
    assert found["detail"].startswith(name + " sealed:")
    size = sum(p.stat().st_size for p in (regions.here / name).rglob("*") if p.is_file())
    assert found["bytes"] == size


def test_one_that_lacks_a_file_is_passed_over_for_the_one_before(regions: Regions) -> None:
    before = regions.save(1)
    torn = regions.save(2, ranks=2)
    (regions.here / torn / "state-1/model").unlink()
    assert regions.newest()["detail"].startswith(before + " ")


@pytest.mark.parametrize("name", ["events.log", "ckpt-1"])
def test_a_folder_with_other_files_stays_where_it_is(regions: Regions, name: str) -> None:
    regions.save(1)
    (regions.here / name).write_text("the job's own")
    assert regions.newest()["detail"] == f"- its folder holds other files, too: {name}"


def test_a_folder_without_checkpoints_has_none(regions: Regions) -> None:
    assert regions.newest()["detail"] == "- its folder holds no sealed checkpoint"
    shutil.rmtree(regions.here)
    assert regions.newest()["phase"] == "failed"


def test_a_checkpoint_comes_whole_and_is_the_one_that_a_job_resumes_from(regions: Regions) -> None:
    regions.save(1)
    name = regions.save(2, ranks=2)
    regions.copy("done")
    assert regions.names() == [".fed", name]
    (found,) = files.stored(regions.there)
    assert all(files.is_whole(found, rank) for rank in (0, 1))
    assert (found.path / "state-1/model").read_text() == "weights 1"


def test_it_has_the_permissions_of_the_folder_it_comes_to(regions: Regions) -> None:
    name = regions.save(1)
    regions.here.chmod(0o700)
    (regions.east / "ada").mkdir(mode=0o750)
    regions.copy("done")
    place = regions.there / name
    assert {oct(p.stat().st_mode & 0o777) for p in (place, place / "state-0")} == {"0o750"}
    assert oct((place / "state-0/model").stat().st_mode & 0o777) == "0o640"


def test_what_came_damaged_is_never_seen(regions: Regions) -> None:
    name = regions.save(1)
    regions.runs(COPIES + f'echo other 0 >"$to/{name}/state-0/model"\n')
    assert "it is not whole" in regions.copy("failed")["detail"]
    assert name not in regions.names()
    regions.runs(COPIES)
    regions.copy("done")


def test_seals_of_another_checkpoint_do_not_pass(regions: Regions) -> None:
    name = regions.save(1)
    (regions.there / ".fed").mkdir(parents=True)
    assert saved(regions.there, 1, "of another life") == name
    assert "something else is at its place" in regions.copy("failed")["detail"]


def test_one_that_is_there_already_is_not_copied_again(regions: Regions) -> None:
    regions.save(1)
    regions.copy("done")
    regions.runs("#!/bin/sh\nexit 99\n")
    regions.copy("done")


def test_a_folder_with_a_newer_one_takes_no_older_one(regions: Regions) -> None:
    name = regions.save(1)
    regions.there.mkdir(parents=True)
    for step in (1, 2):
        saved(regions.there, step, "of another life")
    shutil.rmtree(regions.there / name)
    assert "a newer checkpoint is in its folder" in regions.copy("failed")["detail"]


def test_what_was_copied_in_vain_goes_when_the_job_has_ended(regions: Regions) -> None:
    regions.save(1)
    regions.copy("done")
    half = regions.there / ".fed-copy-0123456789abcdef"
    (half / "in").mkdir(parents=True)
    assert regions.tidy() == {"removed": [7], "wrong": ""}
    assert not regions.there.exists()
    assert regions.here.exists()


def test_of_what_was_copied_where_nobody_runs_the_two_newest_stay(regions: Regions) -> None:
    made = []
    for step in range(1, 5):
        made.append(regions.save(step))
        regions.copy("done")
        assert regions.names() == [".fed", *made[-2:]]
    assert sorted(os.listdir(regions.there / ".fed")) == [f"copied.{name}" for name in made[-2:]]


def test_beside_what_somebody_has_saved_there_the_two_newest_copies_stay_too(
    regions: Regions,
) -> None:
    made = []
    for step in (1, 2):
        made.append(regions.save(step))
        regions.copy("done")
    own = saved(regions.there, 3, "of a run there")
    regions.save(3)
    for step in (4, 5, 6):
        made.append(regions.save(step))
        regions.copy("done")
        assert regions.names() == [".fed", *sorted([own, *made[-2:]])]
    notes = [name for name in os.listdir(regions.there / ".fed") if name.startswith("copied.")]
    assert sorted(notes) == [f"copied.{name}" for name in made[-2:]]


@pytest.mark.parametrize("note", ["progress.2", "saved.2", "checkpointed", "deadline.2"])
def test_where_an_attempt_has_run_it_stays(regions: Regions, note: str) -> None:
    name = regions.save(1)
    regions.copy("done")
    (regions.there / ".fed" / note).write_text("")
    regions.tidy()
    assert name in regions.names()


def test_it_stays_beside_what_somebody_else_has_written(regions: Regions) -> None:
    name = regions.save(1)
    regions.copy("done")
    own = saved(regions.there, 9, "new")
    regions.tidy()
    assert regions.names() == [".fed", name, own]


def test_a_folder_of_another_user_takes_no_checkpoint(regions: Regions) -> None:
    regions.save(1)
    (regions.east / "ada").mkdir()
    (regions.east / "ada").chmod(0o777)
    assert "is writable to all" in regions.copy("failed")["detail"]
