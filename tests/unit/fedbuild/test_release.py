"""A release is made from nothing but a commit, and its checksums are those of its files."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from fedbuild import release, wheel

from federator import __version__
from federator.errors import ConfigError, FederatorError
from federator.testbed.layout import StateDir

ABOUT = "Metadata-Version: 2.4\nName: federator\n"
SHOWN = "Description-Content-Type: text/markdown\n\nText.\n"


def quiet(_what: str, _doing: str) -> None:
    return None


def wheel_with(folder: Path, about: str, listed: str = "") -> Path:
    path = folder / f"federator-{__version__}-py3-none-any.whl"
    inside = f"federator-{__version__}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{inside}/METADATA", about)
        archive.writestr(f"{inside}/RECORD", f"{inside}/METADATA,,\n{inside}/RECORD,,\n{listed}")
    return path


def test_sha256sum_can_check_what_is_listed(tmp_path: Path) -> None:
    (tmp_path / "el").mkdir()
    files = [tmp_path / "a.whl", tmp_path / "el" / "b.rpm"]
    for path in files:
        path.write_bytes(path.name.encode())
    (tmp_path / release.SUMS).write_text(release.sums(tmp_path, files))
    argv = ["sha256sum", "--check", "--strict", "--quiet", release.SUMS]
    subprocess.run(argv, cwd=tmp_path, check=True)
    files[1].write_bytes(b"other")
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "el/b.rpm: FAILED" in done.stdout


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    with pytest.raises(ConfigError, match="not empty"):
        release.make(tmp_path, (), StateDir(root=tmp_path), quiet)


def test_an_unknown_release_of_debian_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no packages for woody; only bookworm"):
        release.make(tmp_path / "new", ("woody",), StateDir(root=tmp_path), quiet)
    assert not (tmp_path / "new").exists()


def test_a_release_is_signed_unless_it_is_said_not_to_be() -> None:
    for options in ([], ["--unsigned", "--key", "me"]):
        done = CliRunner().invoke(release.main, options)
        assert done.exit_code == 2
        assert "either --key KEY or --unsigned" in done.output


def test_what_is_not_committed_is_in_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "uncommitted", lambda: ["?? new.py"])
    done = CliRunner().invoke(release.main, ["--unsigned"])
    assert done.exit_code == 78
    assert "not committed: ?? new.py" in done.output


def test_a_wheel_that_an_index_would_take_passes(tmp_path: Path) -> None:
    wheel.check(wheel_with(tmp_path, f"{ABOUT}Version: {__version__}\n{SHOWN}"))


@pytest.mark.parametrize(
    ("about", "listed", "why"),
    [
        (f"{ABOUT}Version: one\n{SHOWN}", "", "would refuse it"),
        (
            f"{ABOUT}Version: {__version__}\nLicense-Expression: ours\n{SHOWN}",
            "",
            "would refuse it",
        ),
        (f"{ABOUT}Version: {__version__}\n\nText.\n", "", "would not show its description"),
        (f"{ABOUT}Version: {__version__}\n{SHOWN}", "gone.py,,\n", "wrong about gone.py"),
    ],
)
def test_a_wheel_that_is_wrong_is_refused(
    tmp_path: Path, about: str, listed: str, why: str
) -> None:
    with pytest.raises(FederatorError, match=why):
        wheel.check(wheel_with(tmp_path, about, listed))


def test_a_wheel_of_another_version_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "federator-9-py3-none-any.whl", "w") as archive:
        archive.writestr("federator-9.dist-info/METADATA", f"{ABOUT}Version: 9\n{SHOWN}")
    with pytest.raises(FederatorError, match="not of version"):
        wheel.check(tmp_path / "federator-9-py3-none-any.whl")
