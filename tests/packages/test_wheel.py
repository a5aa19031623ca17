"""The wheel has all that a site is given, and its programs run in an environment of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fedbuild import wheel

from federator import __version__
from federator.data_files import DATA, TREES
from federator.testbed.layout import REPOSITORY

pytestmark = pytest.mark.packages

PROGRAMS = (
    "federator",
    "fsacct",
    "fsalloc",
    "fsbatch",
    "fscancel",
    "fscontrol",
    "fsinfo",
    "fsprio",
    "fsqueue",
    "fsrun",
    "fsshare",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def venv(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment with the wheel, and what it needs without any extra."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    argv = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    lock = str(REPOSITORY / "requirements.lock")
    subprocess.run([*argv, "-c", lock, str(built)], check=True)
    return folder


def run(venv: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program away from the checkout, which must not help it out."""
    argv = [str(venv / "bin" / name), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, cwd=venv, check=False)


def test_its_name_tells_the_version_of_the_package(built: Path) -> None:
    assert built.name == f"federator-{__version__}-py3-none-any.whl"


def test_a_package_index_would_accept_it(built: Path) -> None:
    wheel.check(built)
    metadata = wheel.contents(built)[f"federator-{__version__}.dist-info/METADATA"].decode()
    assert "\nLicense-Expression: BSD-3-Clause\n" in metadata


@pytest.mark.parametrize("name", TREES)
def test_every_file_that_a_site_is_given_is_in_it(built: Path, name: str) -> None:
    asked = subprocess.run(
        ["git", "ls-files", "-z", "--", TREES[name]],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    tracked = [path for path in asked.stdout.split("\0") if path]
    assert tracked
    have = wheel.contents(built)
    for path in tracked:
        inside = f"federator/{DATA}/{name}/{Path(path).relative_to(TREES[name])}"
        assert have[inside] == (REPOSITORY / path).read_bytes(), path


def test_nothing_but_the_package_is_in_it(built: Path) -> None:
    tops = {name.split("/")[0] for name in wheel.contents(built)}
    assert tops == {"federator", f"federator-{__version__}.dist-info"}


def test_every_module_is_in_it(built: Path) -> None:
    package = REPOSITORY / "federator"
    modules = {f"federator/{path.relative_to(package)}" for path in package.rglob("*.py")}
    assert modules <= set(wheel.contents(built))


def test_all_extras_can_be_asked_for(built: Path) -> None:
    name = f"federator-{__version__}.dist-info/METADATA"
    lines = wheel.contents(built)[name].decode().splitlines()
    extras = {line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra: ")}
    assert extras == {
        "browser",
        "daemon",
        "dask",
        "dev",
        "docs",
        "forecast",
        "otel",
        "parquet",
        "planner",
        "postgresql",
        "report",
        "testbed",
        "top",
        "web",
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_says_how_it_is_used(venv: Path, name: str) -> None:
    done = run(venv, name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert name in done.stdout


def test_without_the_extra_the_daemon_says_what_to_install(venv: Path) -> None:
    done = run(venv, "federator", "daemon", "--config", "federation.yaml")
    assert done.returncode != 0
    assert "install federator[daemon]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", TREES)
def test_installed_the_trees_are_found_where_the_wheel_put_them(venv: Path, name: str) -> None:
    done = run(
        venv, "python", "-c", f"from federator import data_files; print(data_files.tree('{name}'))"
    )
    found = Path(done.stdout.strip())
    assert found.is_relative_to(venv.resolve()) or found.is_relative_to(venv), done.stderr
    assert any(found.iterdir())
