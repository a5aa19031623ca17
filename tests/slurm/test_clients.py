"""Programs that call Slurm, as they are on PyPI, with links of Slurm's names first on PATH.

Each runs a small pipeline, as a user's on a login node of alpine would; its jobs are at alpine and
at boreal: ``tests/slurm/clients``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.federation import LIVE, Running, at, within

pytestmark = pytest.mark.slurm

USER, REGION = "vision1", "west"
SITES = ("alpine", "boreal")  # of the region, and so of one folder
# One Python for both sites, as an environment of conda's is: Parsl takes no worker of another. With
# the times of its files: else what is compiled of them is out of date, and users may not renew it.
COPY_PYTHON = """
cd "$1" && mkdir -p bin lib
cp /usr/bin/python3 bin/python3
cp -a /usr/lib/python$2 lib/
"""
PROGRAMS = Path(__file__).parent / "clients"
AT_BOTH = f"at {' '.join(SITES)}"
WANTED = PROGRAMS / "requirements.txt"
RUN = """
cd "$1" && shift
federator shims "$PWD/bin" >&2
packages=${PWD%/*}/packages
PATH=$PWD/bin:$packages/bin:$PATH PYTHONPATH=$packages exec "$@"
"""


@pytest.fixture(scope="module")
def shared_packages(testbed: StateDir) -> Iterator[Path]:
    """The clients and all that they need, in a folder that the sites of a region share."""
    fetched, folder = _fetched(testbed), testbed.shared(REGION) / USER / "packages"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(fetched, folder, copy_function=os.link)
    place = f"/shared/{REGION}/{USER}/packages"
    at(SITES[0], "sh", "-c", COPY_PYTHON, "sh", place, layout.site(SITES[0]).python)
    yield folder
    shutil.rmtree(folder)


def _fetched(testbed: StateDir) -> Path:
    """The folder into which they are fetched once, for the Python of alpine."""
    site = layout.site(SITES[0])
    if f"{sys.version_info[0]}.{sys.version_info[1]}" != site.python:
        pytest.skip(f"the clients are fetched by Python {site.python} alone, which alpine has")
    key = hashlib.sha256(WANTED.read_bytes()).hexdigest()[:12]
    folder = testbed.root / "cache" / f"clients-{site.python}-{key}"
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        argv += ["--no-deps", f"--target={unfinished}", f"--requirement={WANTED}"]
        subprocess.run(argv, check=True)
        for program in (unfinished / "bin").iterdir():
            if program.is_file():  # pip has named the Python of this machine
                lines = program.read_text().split("\n")
                program.write_text("\n".join(["#!/usr/bin/env python3", *lines[1:]]))
        unfinished.rename(folder)
    return folder


class Client:
    """A folder that the sites of a region share, in which a client runs."""

    def __init__(self, folder: Path) -> None:
        """Make it, with the programs in it."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(PROGRAMS, folder)
        folder.chmod(0o777)
        self.folder = folder

    def run(self, *argv: str, status: int = 0) -> str:
        """What a program prints that ends with this status; at alpine, as the user."""
        command = ["sh", "-c", RUN, "sh", f"/shared/{REGION}/{USER}/{self.folder.name}", *argv]
        done = subprocess.run(
            inside.exec_argv(layout.site("alpine"), command, user=USER),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def read(self, name: str) -> list[str]:
        """The lines of a file, none until it is there."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def lives(federation: Running) -> bool:
    """Whether any job has not ended."""
    return any(row["state"] in LIVE for row in federation.rows())


@pytest.fixture
def client(federation: Running, shared_packages: Path) -> Iterator[Client]:
    client = Client(shared_packages.with_name("clients"))
    yield client
    shutil.rmtree(client.folder)


@pytest.fixture
def other_client(federation: Running, shared_packages: Path) -> Iterator[Client]:
    """One that runs beside it."""
    client = Client(shared_packages.with_name("other-clients"))
    yield client
    shutil.rmtree(client.folder)


def test_simple_slurm_chains_jobs_of_two_sites(client: Client, federation: Running) -> None:
    with federation.only_room_at("boreal"):
        output = client.run("python3", "simple_slurm_array.py")
        assert output.splitlines()[-1] == "True True True True True"
        parts = [f"part {k} at boreal" for k in range(3)]
        assert within(60, lambda: client.read("whole.out")) == [*parts, "whole at alpine"]
        assert within(60, lambda: client.read("after.out")) == ["after"]
        assert "never" not in client.read(
            "stopped.out"
        )  # Slurm may say there that it was cancelled


def test_psij_sees_how_its_jobs_end_at_another_site(client: Client, federation: Running) -> None:
    with federation.only_room_at("boreal"):
        output = client.run("python3", "psij_jobs.py")
    ends = dict(line.split(" ", 1) for line in output.splitlines())
    assert (ends["good"], ends["bad"]) == ("COMPLETED 0", "FAILED 3")
    assert ends["stopped"].startswith("CANCELED")
    assert client.read("psij-good.out") == ["well at boreal"]


def test_parsl_runs_apps_on_blocks_of_workers_at_two_sites(
    client: Client, federation: Running
) -> None:
    with federation.one_node_free_at(*SITES):
        output = client.run("python3", "parsl_apps.py")
        told = ["total 14", AT_BOTH, "failed on purpose", "behind it DependencyError"]
        assert output.splitlines() == told
        within(60, lambda: not lives(federation))  # its blocks, once it is closed


def test_dask_jobqueue_scales_up_and_down_at_two_sites(client: Client, federation: Running) -> None:
    with federation.one_node_free_at(*SITES):
        output = client.run("python3", "dask_workers.py")
        told = [AT_BOTH, "total 6", "failed ZeroDivisionError", "workers 1"]
        assert output.splitlines()[-4:] == told
        within(60, lambda: not lives(federation))  # once the cluster is closed


SNAKEMAKE = (
    *("snakemake", "--executor", "slurm", "--jobs", "3", "--latency-wait", "5"),
    *("--default-resources", "slurm_account=vision", "slurm_partition=fed"),
    *("--seconds-between-status-checks", "5"),
    *("--slurm-init-seconds-before-status-checks", "5"),  # by itself it looks after 40 s
)

# sacct's raw numbers of tasks name no tasks: it would take the end of the first for that of all.
ARRAY = ("--slurm-array-jobs=part", "--slurm-status-command=squeue")


def test_snakemake_runs_an_array_at_two_sites_and_what_depends_on_it_and_sees_a_job_fail(
    client: Client, other_client: Client, federation: Running
) -> None:
    """The latter in another folder meanwhile: at each look in vain it waits 10 s longer."""
    with federation.one_node_free_at(*SITES), ThreadPoolExecutor(1) as pool:
        fails = pool.submit(other_client.run, *SNAKEMAKE, "snake-never.txt", status=1)
        client.run(*SNAKEMAKE, *ARRAY)
        fails.result()
    parts = [line.rsplit(" at ", 1) for line in client.read("snake-whole.txt")]
    assert [part for part, _ in parts] == ["part 0", "part 1", "part 2"]
    assert {site for _, site in parts} == set(SITES)


def test_snakemake_cancels_its_jobs_when_it_is_interrupted(
    client: Client, federation: Running
) -> None:
    """One that is interrupted as it looks for its jobs forgets them, under Slurm, too."""
    looks_late = ("--slurm-init-seconds-before-status-checks", "20")
    interrupted = ("python3", "interrupted.py", "snake-began", *SNAKEMAKE, *looks_late)
    for _ in range(3):
        before = {row["id"] for row in federation.rows()}
        client.run(*interrupted, "snake-endless.txt", status=1)
        (new,) = (row["id"] for row in federation.rows() if row["id"] not in before)
        if federation.row(new)["state"] != "RUNNING":
            break
        federation.cancel_all()
        (client.folder / "snake-began").unlink()
    else:
        pytest.fail("none of three was cancelled")
    (row,) = federation.await_end(new)
    assert row["state"] == "CANCELLED"
