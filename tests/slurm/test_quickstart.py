"""``./quickstart`` as a stranger types it, on a testbed of its own, and each command it prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from federator.testbed.layout import REPOSITORY, StateDir

pytestmark = pytest.mark.slurm

NAME: Final = f"{os.environ.get('FEDERATOR_TESTBED_NAME', '')}-quickstart".lstrip("-")
LASTS_S: Final = 900
JOBS: Final = 13  # six scripts, one of them an array of eight


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In the repository, as one who has no settings of Federator."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FEDERATOR_", "SLURM_"))}
    settings = {"FEDERATOR_TESTBED_NAME": NAME, "FEDERATOR_TESTBED_DIR": str(folder)}
    return subprocess.run(
        ["bash", "-ec", script],
        cwd=REPOSITORY,
        env=kept | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LASTS_S,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("quickstart")
    (found / "cache").symlink_to(StateDir.default().root / "cache")  # what was fetched before
    yield found
    shell("./quickstart --down", found)
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture(scope="module")
def kept(folder: Path) -> subprocess.CompletedProcess[str]:
    done = shell("./quickstart --keep", folder)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def containers() -> list[str]:
    listed = ("docker", "ps", "--all", "--format={{.Names}}", f"--filter=name=federator-{NAME}-")
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()


def test_it_says_what_it_does_and_explains_each_job(
    kept: subprocess.CompletedProcess[str],
) -> None:
    assert re.search(r"^\[ *\d+ s\] starting three Slurm clusters", kept.stderr, re.MULTILINE)
    assert "\x1b" not in kept.stdout + kept.stderr  # no terminal: plain lines
    _, _, why = kept.stdout.partition("Where each ran, and why there:")
    assert len(re.findall(r"^  \S+ on \S+: \S+ won", why, re.MULTILINE)) == JOBS


def test_each_command_that_it_prints_works(
    kept: subprocess.CompletedProcess[str], folder: Path
) -> None:
    _, _, said = kept.stdout.partition("Try:\n")
    commands = re.findall(r"^  (.+)$", said, re.MULTILINE)
    assert len(commands) == 4  # one that sets the variables for the other three
    done = shell("\n".join(commands), folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Submitted batch job") == 2


def test_its_page_answers_at_the_address_that_it_prints(
    kept: subprocess.CompletedProcess[str], folder: Path
) -> None:
    (address,) = re.findall(r"The page: (\S+)", kept.stdout)
    try:
        answer = urllib.request.urlopen(address, timeout=30)
    except urllib.error.URLError as error:
        raise AssertionError((folder / "web.log").read_text()) from error
    assert answer.status == 200


def test_down_leaves_neither_a_process_nor_a_container(
    kept: subprocess.CompletedProcess[str], folder: Path
) -> None:
    assert len(containers()) == 3
    pids = [int((folder / name).read_text()) for name in ("daemon.pid", "web.pid")]
    done = shell("./quickstart --down", folder)
    assert done.returncode == 0, done.stderr
    assert containers() == []
    assert not any((Path("/proc") / str(pid) / "exe").exists() for pid in pids)
