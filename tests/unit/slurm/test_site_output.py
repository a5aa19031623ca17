"""What a job writes is put in its place whole and once, or removed, whoever dies meanwhile."""

from __future__ import annotations

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
from federator.slurm import site_output, site_worker

Json = dict[str, Any]
PATIENCE_S = 30.0


class Site:
    """The helper as it is installed, and a storage domain."""

    def __init__(self, folder: Path) -> None:
        self.helper = folder / "helper"
        self.helper.write_text(helper_of(HELPER_SOURCE.read_text()))
        self.root = folder / "flash"
        self.root.mkdir(mode=0o755)
        self.above = self.root / "ada/outputs/maps"
        self.working, self.place = self.above / ".fed-output-7", self.above / "big@7"

    def order(self, **changes: Any) -> Json:
        order = {"root": str(self.root), "path": "ada/outputs/maps/big@7", "id": 7, "drop": False}
        return order | changes

    def ask(self, **request: Any) -> Json:
        words = [sys.executable, str(self.helper)]
        done = subprocess.run(
            words, input=json.dumps(request), capture_output=True, text=True, check=True
        )
        answer: Json = json.loads(done.stdout)
        return answer

    def make(self, **changes: Any) -> Path:
        """The folder, made as sbatch's helper makes it; sbatch itself is not called: too late."""
        files = {"names": [], "shared": [], "aside": "", "output": self.order(**changes)}
        answer = self.ask(
            op="sbatch",
            argv=["--comment=fed:7:1"],
            args=[],
            script="#!/bin/sh\n",
            environment={},
            work_dir="/",
            umask=0o22,
            checkpoint_dir="",
            files=files,
            start_by_s=0.0,
        )
        assert "too late" in answer["error"], answer
        return self.working / "data"

    def step(self, **changes: Any) -> Json:
        return self.ask(op="output", order=self.order(**changes))

    def until(self, *phases: str, **changes: Any) -> Json:
        """Ask again and again, as the daemon does."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            told = self.step(**changes)
            if told.get("phase") in phases:
                return told
        raise AssertionError(told)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def written(site: Site) -> Path:
    data = site.make()
    (data / "deep").mkdir()
    (data / "words").write_text("many words\n")
    (data / "deep/more").write_bytes(b"\0" * 1000)
    return data


def test_an_output_is_sealed_and_put_in_its_place_by_one_rename(site: Site) -> None:
    data = written(site)
    digest, inode = tree_digest(bytes(data)).digest, data.stat().st_ino
    told = site.until("done")
    assert told == {"phase": "done", "bytes": 1011, "files": 2, "digest": digest, "detail": ""}
    assert site.place.stat().st_ino == inode
    assert site.step() == told, "an answer that is lost is given again"
    assert site.step(drop=True)["phase"] == "dropped"
    assert os.listdir(site.above) == ["big@7"]
    assert site.step(drop=True)["phase"] == "dropped"


def test_a_second_attempt_goes_on_in_the_folder_of_the_first(site: Site) -> None:
    written(site)
    assert sorted(os.listdir(site.make())) == ["deep", "words"]


def test_the_folder_of_a_job_that_failed_is_removed(site: Site) -> None:
    written(site)
    assert site.step(drop=True)["phase"] == "dropped"
    assert os.listdir(site.above) == []


def test_nothing_written_is_told_and_put_nowhere(site: Site) -> None:
    site.make()
    assert site.until("done")["files"] == 0
    assert not site.place.exists()
    assert site.step(drop=True)["phase"] == "dropped"


@pytest.mark.parametrize("dies_before", ["rename sealed", "rename data", "note_news done"])
def test_a_worker_that_dies_is_followed_by_one_that_finishes(site: Site, dies_before: str) -> None:
    """The worker's steps are made one by one here; the real helper then goes on."""
    data = written(site)
    digest, size = site_worker.digest_of_tree(bytes(data))
    noted = json.dumps({"bytes": size, "files": 2, "digest": digest})
    (site.working / "news").write_text('{"phase": "checking", "bytes": 0, "detail": ""}')
    name = "sealed.new" if dies_before == "rename sealed" else "sealed"
    (site.working / name).write_text(noted)
    if dies_before == "note_news done":
        data.rename(site.place)
    told = site.until("done")
    assert (told["digest"], told["bytes"], told["files"]) == (digest, 1011, 2)
    assert (site.place / "words").read_text() == "many words\n"


def test_nothing_is_put_over_something_else(site: Site) -> None:
    written(site)
    site.place.mkdir()
    assert site.until("failed")["detail"] == "something else is at its place"
    site.place.rmdir()
    assert site.until("done")["files"] == 2


def test_links_are_sealed_by_nobody(site: Site) -> None:
    (written(site) / "link").symlink_to("/etc/passwd")
    assert "symbolic links" in site.until("failed")["detail"]
    assert not site.place.exists()


def test_what_lies_elsewhere_is_not_removed_through_a_link(site: Site, tmp_path: Path) -> None:
    data, other = written(site), tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    (data / "deep/link").symlink_to(other)
    assert site.step(drop=True)["phase"] == "dropped"
    site.above.joinpath(".fed-output-7").symlink_to(other)
    assert site.step(drop=True)["phase"] == "failed"
    assert os.listdir(other) == ["precious"]


def test_notes_that_the_owner_changed_prove_nothing(site: Site) -> None:
    written(site)
    site.until("done")
    sound = json.loads((site.working / "sealed").read_text())
    wrong: list[Json] = [{"bytes": -1}, {"bytes": 1 << 63}, {"files": -1}, {"files": 1 << 63}]
    wrong += [{"digest": "sha256tree:" + "0" * 90}, {"files": True}]
    for notes in ({}, *(sound | each for each in wrong)):
        (site.working / "sealed").write_text(json.dumps(notes))
        told = site.step()
        assert (told["phase"], told["bytes"]) == ("failed", 0), notes
        assert "its notes were changed" in told["detail"]


def test_a_domain_that_is_not_mounted_is_no_proof_that_a_folder_is_gone(site: Site) -> None:
    assert "as if it were not mounted" in site.step(drop=True)["detail"]
    assert site.step()["phase"] == "failed"
    (site.root / "eve").mkdir()
    assert site.step(drop=True)["phase"] == "dropped"


def test_a_domain_in_which_others_could_replace_the_folder_is_refused(site: Site) -> None:
    site.root.chmod(0o777)
    files = {"names": [], "shared": [], "aside": "", "output": site.order()}
    request = {"argv": ["--comment=fed:7:1"], "args": [], "script": "#!", "environment": {}}
    answer = site.ask(
        op="sbatch",
        work_dir="/",
        umask=0,
        checkpoint_dir="",
        files=files,
        start_by_s=0.0,
        **request,
    )
    assert answer["exit_status"] == 66
    assert "lets others rename" in answer["error"]


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "ada/../eve/x@1"},
        {"path": "ada/x@1"},
        {"path": "/ada/outputs/x@1"},
        {"path": "ada/outputs/x@1\0"},
        {"root": "flash"},
        {"id": 0},
        {"id": True},
        {"id": "7"},
        {"drop": 1},
        {"more": 1},
    ],
)
def test_an_order_that_cannot_be_is_refused(site: Site, changes: Json) -> None:
    assert site.step(**changes)["exit_status"] == 64
    assert site_output.output_mistake(site.order(**changes))
