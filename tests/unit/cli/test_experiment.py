"""``federator experiment`` writes a report and its data."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from federator.cli import main as admin
from federator.cli.experiment import experiment
from federator.errors import FederatorError
from federator.sim.experiments.fragmentation import PlacerTask
from federator.sim.experiments.registry import EXPERIMENTS

pytestmark = pytest.mark.slow

TRACE = """\
submit_s,duration_s,gpus,num_nodes,pool,user,status,cpus,job_id
0,100,1,1,ant,ann,COMPLETED,8,a
0,100,1,1,ant,bob,FAILED,8,b
60,60,1,1,bee,,,,c
95,600,9,,bee,,,,d
"""
POOLS = "pool,nodes,gpus_per_node,gpus\nant,1,1,1\nbee,1,1,1\n"
SMALL = [
    "--set",
    "warm_up_days=0",
    "--set",
    "policies=maxmin,ssf",
    "--set",
    "quantiles=4",
    "--set",
    "draws=2",
]


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "T.csv").write_text(TRACE)
    (folder / "P.csv").write_text(POOLS)
    return ["--trace", str(folder / "T.csv"), "--pools", str(folder / "P.csv")]


def run(*words: str) -> Result:
    result = CliRunner().invoke(experiment, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def refused(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["federator", "experiment", *words])
    with pytest.raises(SystemExit) as caught:
        admin.main()
    return int(caught.value.code or 0)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_report_and_a_csv_for_each_table(inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    said = run("sharing", *inputs, *SMALL, "--out", str(out))
    assert said.stdout.splitlines()[-1] == f"report: {out}/report.html"
    assert said.stdout.splitlines()[0].startswith("Speed-up and slow-down")
    found = files(out)
    assert set(found) == {
        "report.html",
        "summary.csv",
        "spread.csv",
        "runs.csv",
        "pools.csv",
        "speedup-all-pools.csv",
        "speedup-4-drawn-pools.csv",
    }
    rows = list(csv.DictReader(found["summary.csv"].decode().splitlines()))
    assert [(row["setting"], row["policy"]) for row in rows][:2] == [
        ("all pools", "maxmin"),
        ("all pools", "ssf"),
    ]
    assert float(rows[0]["slowed_worst_min"]) == 40 / 60
    assert b"<svg" in found["report.html"]


def test_the_same_seed_gives_the_same_files_and_another_seed_others(
    inputs: list[str], tmp_path: Path
) -> None:
    words = [
        "fragmentation",
        "--set",
        "jobs=40",
        "--set",
        "draws=1",
        "--set",
        "racks=2",
        "--set",
        "sites=1,2",
        "--set",
        "loads=0.9",
    ]
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        run(*words, "--seed", seed, "--out", str(tmp_path / name))
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert files(tmp_path / "a")["runs.csv"] != files(tmp_path / "c")["runs.csv"]


def test_json_prints_every_table_and_writes_nothing(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sharing", *inputs, *SMALL, "--seed", "4", "--json"]
    found: dict[str, Any] = json.loads(run(*words).stdout)
    assert list(found) == ["schema", "experiment", "seed", "parameters", "notes", "tables"]
    assert (found["schema"], found["experiment"], found["seed"]) == (1, "sharing", 4)
    assert found["parameters"]["policies"] == ["maxmin", "ssf"]
    assert found["parameters"]["trace"] == "3 jobs, 2 pools, 2 GPUs"
    tables = {table["name"]: table for table in found["tables"]}
    assert len(tables["runs"]["rows"]) == 2 * (1 + 2)
    assert all(len(row) == len(t["columns"]) for t in tables.values() for row in t["rows"])
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_folder_is_named_after_the_experiment(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("sharing", *inputs, *SMALL)
    assert (tmp_path / "experiment-sharing" / "report.html").exists()


def test_what_the_trace_loses_is_said(inputs: list[str]) -> None:
    said = run("sharing", *inputs, *SMALL, "--json").stderr
    assert "1 jobs of" in said
    assert "federator simulate names them" in said


def test_experiments_are_listed() -> None:
    lines = run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)
    found = json.loads(run("list", "--json").stdout)
    assert [entry["name"] for entry in found["experiments"]] == list(EXPERIMENTS)
    named = {entry["name"]: entry["parameters"] for entry in found["experiments"]}
    assert named["sharing"]["draws"] == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["best"], "no experiment 'best'; expected one of mast-slo"),
        (["sharing", "--set", "draws"], "--set: expected PARAMETER=VALUE, found 'draws'"),
        (["sharing", "--set", "x=1"], "--set: 'x' is unknown to this experiment; expected one"),
        (
            ["sharing", "--set", "draw=1"],
            "--set: 'draw' is unknown to this experiment; did you mean draws?",
        ),
        (["sharing", "--set", "policies=ssf,ssf"], "--set: policies: expected each value once"),
        (["sharing", "--trace", "/none"], "missing option '--pools'"),
        (["sharing", "--pools", "/none"], "missing option '--trace'"),
        (["sharing", "--seed", "-1"], "Invalid value for '--seed'"),
        (["fragmentation", "--out", "/proc/none"], "--out: /proc/none: cannot be written: "),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refused(monkeypatch, *words) == os.EX_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"federator: error: {message}")


def test_a_trace_without_jobs_is_refused(
    inputs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(inputs[1]).write_text(TRACE.splitlines()[0] + "\n")
    assert refused(monkeypatch, "sharing", *inputs) == os.EX_USAGE
    assert "expected at least one job that can be replayed" in capsys.readouterr().err


def test_the_report_is_not_written_beside_what_is_read(
    inputs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(inputs[1]).parent
    before = files(folder)
    assert refused(monkeypatch, "sharing", *inputs, "--out", str(folder)) == os.EX_USAGE
    assert "holds the input" in capsys.readouterr().err
    assert files(folder) == before


def test_without_matplotlib_json_works_and_a_report_is_refused_before_the_work(
    inputs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "matplotlib" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    out = tmp_path / "out"
    assert refused(monkeypatch, "sharing", *inputs, "--out", str(out)) == os.EX_USAGE
    assert capsys.readouterr().err.splitlines()[-1] == (
        "federator: error: a report needs matplotlib, which is not installed here; install "
        "federator[report], or use --json without --out"
    )
    assert not out.exists()
    assert run("sharing", *inputs, *SMALL, "--json").stdout


def test_a_link_to_the_trace_is_replaced_and_the_trace_is_spared(
    inputs: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run("sharing", *inputs, *SMALL, "--out", str(out))
    table = next(iter(sorted(out.glob("*.csv"))))
    table.unlink()
    table.symlink_to(inputs[1])
    run("sharing", *inputs, *SMALL, "--out", str(out))
    assert Path(inputs[1]).read_text() == TRACE
    assert not table.is_symlink()


def test_a_run_that_fails_is_named_and_no_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = PlacerTask.__call__

    def broken(task: PlacerTask, progress: Any) -> Any:
        if task.placer == "first fit":
            raise FederatorError("no floor")
        return real(task, progress)

    small = ["--set", "jobs=20", "--set", "draws=1", "--set", "sites=1", "--set", "loads=0.9"]
    out, kept = tmp_path / "out", tmp_path / "kept"
    words = ["fragmentation", *small, "--out", str(out), "--resume", str(kept)]
    with monkeypatch.context() as patch:
        patch.setattr(PlacerTask, "__call__", broken)
        assert refused(patch, *words) == os.EX_SOFTWARE
    assert capsys.readouterr().err.splitlines()[-1] == (
        "federator: error: 1 of 7 runs failed: draw 0, 1 site, load 0.9, first fit: no floor"
    )
    assert list(out.iterdir()) == []
    assert len(list(kept.iterdir())) == 6
    run(*words)
    assert (out / "report.html").exists()
    assert len(list(kept.iterdir())) == 7
