"""What the quickstart says of the auctions that its jobs went through; and Dask's workers."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from federator.cli.queue_columns import COLUMNS
from federator.model.score import Score

EXAMPLES = Path(__file__).parents[2] / "examples"


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def quickstart() -> ModuleType:
    return loaded(EXAMPLES / "quickstart.py")


def test_the_quickstart_names_each_term_of_a_score(quickstart: ModuleType) -> None:
    scores = {"alpine": list(Score(locality_cost=28.0, gpu_worth=8.0)), "boreal": list(Score())}
    said = quickstart.why_there({"site": "boreal", "offers": scores, "refusals": {}})
    assert said == "boreal won: alpine bid locality cost 28, gpu worth 8; boreal bid a perfect fit"


def test_in_a_narrow_terminal_the_quickstart_asks_for_columns_that_have_a_place(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0, stdout="a table\n")

    monkeypatch.setattr(quickstart, "run", run)
    for width in (80, 120):
        assert quickstart.table_of(Console(width=width), ["7", "8"]) == "a table"
    ((*_, fields, _, ids), wide) = asked
    assert (ids, wide) == ("7,8", ("fsqueue", "-t", "all", "-j", "7,8"))
    columns = dict(field.split(":") for field in fields.split(","))
    known = {column.name.lower() for column in COLUMNS}
    assert {name.lower() for name in columns} <= known
    assert sum(map(int, columns.values())) <= 80


def test_the_quickstart_shows_what_a_command_printed_as_it_stands(quickstart: ModuleType) -> None:
    printed = io.StringIO()
    row = "alpine [west]  " + "up " * 40
    quickstart.show(Console(file=printed, width=80), row)
    assert printed.getvalue() == f"{row}\n"


class SlurmCluster:
    """Stands for that of dask-jobqueue, which is not installed for tests: keeps its options."""

    def __init__(self, **options: object) -> None:
        self.options = options


def test_dask_workers_are_submitted_by_the_federations_own_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = ModuleType("dask_jobqueue.slurm")
    library.SLURMJob = type("SLURMJob", (), {"submit_command": "sbatch"})  # type: ignore[attr-defined]
    library.SLURMCluster = SlurmCluster  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_jobqueue", ModuleType("dask_jobqueue"))
    monkeypatch.setitem(sys.modules, "dask_jobqueue.slurm", library)
    example = loaded(EXAMPLES / "dask" / "cluster.py")
    job = example.FederationCluster.job_cls
    scripts = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())["project"]["scripts"]
    assert {job.submit_command, job.cancel_command} <= set(scripts)
    assert issubclass(job, library.SLURMJob)
    assert example.cluster(memory="8GB").options["memory"] == "8GB"
