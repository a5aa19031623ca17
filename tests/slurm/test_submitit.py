"""Real submitit through the federation: evicted, saved by its own code, resumed, its result read.

The submitting process runs at alpine, as a user's on a login node would. ``bio`` has no quota
here, and its sites know the user by different UIDs and have different Pythons.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed import inside, layout
from federator.testbed.layout import REPOSITORY, StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, at, within

pytestmark = pytest.mark.slurm

USER, REGION = "bio1", "west"
EXAMPLE = REPOSITORY / "examples" / "submitit"
PACKAGES = ("submitit", "cloudpickle", "typing_extensions")
GRACE_S = 20.0
ALL_OF_A_SITE = ("-N8", "--gres=gpu:a100:8")
SUBMIT = """
cd "$1" && shift && PATH=$PWD/bin:$PATH && export PATH PYTHONPATH=$PWD:$PWD/packages
exec python3 submit.py "$PWD" "$@"
"""


def place(folder: Path) -> None:
    """Put the example, and submitit with what it needs, where the sites of the region see it."""
    shutil.copytree(EXAMPLE, folder)
    folder.chmod(0o777)
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            pytest.skip(f"{name} is not installed here: pip install submitit")
        origin = Path(found.origin)
        if origin.name == "__init__.py":
            shutil.copytree(
                origin.parent,
                folder / "packages" / name,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        else:
            shutil.copy(origin, folder / "packages" / origin.name)


@pytest.fixture
def example(testbed: StateDir) -> Iterator[Path]:
    """The folder of the example on this machine; see ``submit`` for its name at the sites."""
    folder = testbed.shared(REGION) / USER / "submitit"
    shutil.rmtree(folder, ignore_errors=True)
    place(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def evicting(example: Path, tmp_path: Path) -> Iterator[Running]:
    preemption = {"grace_s": GRACE_S, "cooldown_s": 1.0, "budget_frac": 1.0}
    tenants = {"bio": {"quota": {"gpus": 0}}}
    yield from lasting(
        Running(tmp_path, tenants=tenants, pass_interval_s=5.0, preemption=preemption)
    )


class Submitter:
    """A process at alpine that submits with submitit and waits for the results."""

    def __init__(self, *arguments: str) -> None:
        command = ["sh", "-c", SUBMIT, "sh", f"/shared/{REGION}/{USER}/submitit", *arguments]
        self.process = subprocess.Popen(
            inside.exec_argv(layout.site("alpine"), command, user=USER),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.ids = self.process.stdout.readline().split()
        assert self.ids, self.process.communicate()

    def told(self) -> list[str]:
        """What it printed of each job once all have ended."""
        output, errors = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, errors
        return [line for line in output.splitlines() if line.startswith(("result ", "failed "))]


def noted(example: Path) -> list[tuple[str, int]]:
    """Site and attempt, and step, in the order of attempts."""
    logs = sorted(example.glob("log.*"))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [(f"{site} {attempt}", int(step)) for site, attempt, step in map(str.split, lines)]


def counts(example: Path, attempt: str) -> bool:
    """Whether the attempt, ``alpine 1`` say, has counted for a second."""
    return sum(who == attempt for who, _ in noted(example)) > 10


def take(running: Running, site: str, user: str) -> Row:
    """A gang within its quota takes all of a site from whoever may be evicted there."""
    gang = running.submit("#!/bin/sh\nsleep 600\n", *ALL_OF_A_SITE, user=user)
    row = running.await_state(gang, "RUNNING", timeout_s=GRACE_S + 40)
    assert row["site"] == site
    return row


def test_a_job_of_submitit_moves_from_site_to_site_and_its_result_comes_home(
    evicting: Running, example: Path
) -> None:
    evicting.fill("boreal")
    submitter = Submitter("count")
    id_ = int(submitter.ids[0])
    within(120, lambda: counts(example, "alpine 1"))
    first = take(evicting, "alpine", "vision1")
    evicting.await_state(id_, "PENDING")
    at("boreal", "scancel", "--partition=local")
    within(120, lambda: counts(example, "boreal 2"))
    take(evicting, "boreal", "nlp1")
    assert evicting.run("fscancel", str(first["id"])).returncode == 0
    within(120, lambda: counts(example, "alpine 3"))

    (example / "enough").touch()
    row = evicting.await_state(id_, "COMPLETED")
    assert (row["site"], row["attempt"]) == ("alpine", 3)
    steps = [step for _, step in noted(example)]
    assert sorted(set(steps)) == list(range(1, steps[-1] + 1))  # none was left out
    assert len(steps) <= steps[-1] + 2  # what each eviction interrupted was done again, no more
    attempts = ["alpine 1", "boreal 2", "alpine 3"]
    assert submitter.told() == [f"result {(steps[-1], attempts)}"]


def test_an_array_of_submitit_tells_each_result_and_each_failure(
    evicting: Running, example: Path
) -> None:
    first, second, third = Submitter("double", "4", "13", "21").told()
    assert (first, third) == ("result 8", "result 42")
    assert second.startswith("failed ")
    assert "ValueError: not 13" in second


def test_submitit_is_told_that_its_job_was_cancelled(evicting: Running, example: Path) -> None:
    submitter = Submitter("cancel")
    evicting.await_state(int(submitter.ids[0]), "CANCELLED")
    (told,) = submitter.told()
    assert "(state: CANCELLED)" in told
