"""The helper looks at a job's data sets as the job's user, and follows no link below the root."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from federator.slurm import site_exec
from federator.slurm.site_files import data_mistake


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A storage domain with a folder and a file; itself reached through a link."""
    real = tmp_path / "real"
    (real / "vision" / "set").mkdir(parents=True)
    (real / "vision" / "file").write_text("x")
    (tmp_path / "root").symlink_to(real)
    return tmp_path / "root"


def mistake(root: Path, path: str, *, write: bool = False) -> str:
    return data_mistake(os.fsencode(root), os.fsencode(path), write)


def test_a_folder_or_a_file_below_the_root_is_as_it_should_be(root: Path) -> None:
    assert mistake(root, "vision/set") == ""
    assert mistake(root, "vision/file", write=True) == ""


def test_a_link_on_the_way_is_refused_wherever_it_leads(root: Path) -> None:
    (root / "vision" / "link").symlink_to("set")
    (root / "out").symlink_to("/etc")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nowhere")
    for path in ("vision/link", "out", "out/passwd", "loop", "dangling"):
        assert "leads through a link" in mistake(root, path), path


@pytest.mark.parametrize(
    "path", ["..", "../real", "vision/../vision/set", "", "vision//set", "./vision"]
)
def test_a_path_that_leads_up_is_refused_here_too(root: Path, path: str) -> None:
    assert "has an empty part, . or .." in mistake(root, path)


def test_what_is_not_there_or_not_data_is_named(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert mistake(root, "vision/none") == "it does not exist"
    assert mistake(root, "vision/file/below") == "it does not exist"
    assert mistake(root, "pipe") == "it is neither a folder nor a file"
    assert "is not mounted" in mistake(root / "none", "set")


def test_a_mount_point_without_its_file_system_does_not_say_that_data_is_gone(
    tmp_path: Path,
) -> None:
    (tmp_path / ".not-mounted").touch()
    assert "as if it were not mounted" in mistake(tmp_path, "set")
    assert "as if it were not mounted" in mistake(tmp_path, "vision/set")
    (tmp_path / "vision").mkdir()
    assert mistake(tmp_path, "set") == "it does not exist"
    assert mistake(tmp_path, "vision/set") == "it does not exist"


def test_a_root_that_cannot_be_listed_proves_nothing_but_a_folder_on_the_way_does(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(_path: bytes) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "scandir", scandir)
    assert "as if it were not mounted" in mistake(root, "none")
    assert mistake(root, "vision/none") == "it does not exist"


def test_what_the_user_may_not_read_or_write_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[int] = []

    def access(_path: bytes, mode: int) -> bool:
        wanted.append(mode)
        return False

    monkeypatch.setattr(os, "access", access)
    assert mistake(root, "vision/set") == "permission denied"
    assert mistake(root, "vision/file", write=True) == "permission denied"
    assert wanted == [os.R_OK | os.X_OK, os.R_OK | os.W_OK]


# ---- in the helper ----


def request(root: Path, path: object, write: object = False) -> dict[str, object]:
    return {
        "op": "sbatch",
        "argv": ["--comment=fed:7:1"],
        "args": [],
        "script": "#!/bin/sh\n",
        "environment": {},
        "work_dir": "/",
        "umask": 0o022,
        "checkpoint_dir": "",
        "files": {"names": [], "shared": [], "aside": "", "data": [[str(root), path, write]]},
        "start_by_s": 4e9,
    }


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An sbatch that leaves a mark beside it."""
    path = tmp_path / "sbatch"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\necho 7\n")
    path.chmod(0o755)
    monkeypatch.setattr(site_exec, "SBATCH", str(path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "called"


def test_a_job_whose_data_is_sound_is_submitted(root: Path, sbatch: Path) -> None:
    assert site_exec.answer_to(json.dumps(request(root, "vision/set")).encode()) == {"job_id": 7}
    assert sbatch.exists()


def test_a_job_whose_data_leads_through_a_link_is_not_and_says_so(root: Path, sbatch: Path) -> None:
    (root / "link").symlink_to("/etc")
    said = site_exec.answer_to(json.dumps(request(root, "link/passwd")).encode())
    assert said["exit_status"] == site_exec.NO_FILES
    assert f"data set {root}/link/passwd: its path leads through a link" in str(said["error"])
    assert not sbatch.exists()


@pytest.mark.parametrize(("path", "write"), [(5, False), ("a", 1), ("a\0b", False), (None, True)])
def test_an_order_of_another_form_is_refused(
    root: Path, sbatch: Path, path: object, write: object
) -> None:
    said = site_exec.answer_to(json.dumps(request(root, path, write)).encode())
    assert said["exit_status"] == site_exec.USAGE
    assert not sbatch.exists()
