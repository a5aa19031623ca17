"""``federator simulate`` replays a trace and prints how it went."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from federator.cli import main as admin
from federator.cli.simulate import simulate
from federator.errors import InvalidRequest

TRACE = """\
submit_s,duration_s,gpus,num_nodes,pool,user,status,cpus,job_id
0,7200,8,1,ant,ann,COMPLETED,8,1
60,3600,4,,ant,bob,FAILED,8,2
90,600,4,1,bee,,,,3
95,600,9,,bee,,,,4
"""
POOLS = "pool,nodes,gpus_per_node,gpus\nant,1,8,8\nbee,1,4,4\n"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "T.csv").write_text(TRACE)
    (tmp_path / "P.csv").write_text(POOLS)
    return ["--trace", str(tmp_path / "T.csv"), "--pools", str(tmp_path / "P.csv")]


def run(*words: str) -> Result:
    result = CliRunner().invoke(simulate, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result


def parsed(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--json").stdout)
    return found


def status(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["federator", "simulate", *words])
    with pytest.raises(SystemExit) as caught:
        admin.main()
    return int(caught.value.code or 0)


def test_the_summary_as_json(words: list[str]) -> None:
    found = parsed(*words, "--policy", "pool-fifo")
    assert list(found) == [
        "schema",
        "policy",
        "seed",
        "jobs",
        "left_out",
        "preemptions",
        "gpus",
        "makespan_s",
        "gpu_hours",
        "utilisation_frac",
        "wait_s",
        "jct_s",
        "pools",
        "left_out_jobs",
    ]
    assert (found["policy"], found["jobs"], found["left_out"]) == ("pool-fifo", 3, 1)
    assert found["wait_s"] == {"mean": 2380.0, "median": 0.0, "p95": 7140, "max": 7140}
    assert [pool["pool"] for pool in found["pools"]] == ["ant", "bee"]
    assert found["left_out_jobs"] == [
        {"job_id": "4", "line": 5, "pool": "bee", "gpus": 9, "reason": "larger than its pool"}
    ]


def test_the_summary_as_a_table(words: list[str]) -> None:
    head, columns, ant, bee, in_all = run(*words, "--policy", "pool-fifo").stdout.splitlines()
    assert head == "policy pool-fifo, seed 0, makespan 03:00:00, 0 preemptions"
    assert columns.split()[:6] == ["POOL", "GPUS", "JOBS", "LEFTOUT", "GPUHOURS", "USE"]
    assert ant.split() == [
        "ant",
        "8",
        "2",
        "0",
        "20.0",
        "83.3%",
        "00:59:30",
        "00:59:30",
        "01:59:00",
        "01:59:00",
        "02:29:30",
    ]
    assert bee.split()[:6] == ["bee", "4", "1", "1", "0.7", "5.6%"]
    assert in_all.split()[:4] == ["ALL", "12", "3", "1"]
    assert len({len(line) for line in (columns, ant, bee, in_all)}) == 1


def test_by_default_the_federation_decides(words: list[str]) -> None:
    """Job 2 of ant need not wait for ant: bee is free, though its own job then waits."""
    found = parsed(*words)
    assert found["policy"] == "mast"
    assert found["wait_s"] == {"mean": 1190.0, "median": 0.0, "p95": 3570, "max": 3570}
    assert found == parsed(*words, "--policy", "mast")


def test_a_job_that_is_left_out_is_named_on_stderr(words: list[str], tmp_path: Path) -> None:
    for extra in ([], ["--json"]):
        assert run(*words, *extra).stderr == (
            f"federator simulate: left out: {tmp_path}/T.csv:5: job 4: 9 GPUs of bee: "
            "larger than its pool\n"
        )


def test_many_that_are_left_out_are_counted(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "T.csv").write_text(TRACE + "95,600,9,,bee,,,,x\n" * 20)
    lines = run(*words).stderr.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "federator simulate: left out: 11 more jobs; --json lists them"


def test_each_job_is_written(words: list[str], tmp_path: Path) -> None:
    run(*words, "--jobs-out", str(tmp_path / "J.csv"), "--policy", "pool-sjf")
    assert (tmp_path / "J.csv").read_bytes() == (
        b"job_id,pool,submit_s,start_s,end_s,gpus,site,preemptions\n"
        b"1,ant,0,0,7200,8,ant,0\n2,ant,60,7200,10800,4,ant,0\n3,bee,90,90,690,4,bee,0\n"
    )


def test_each_job_is_written_as_parquet_with_the_columns_and_types_of_the_csv(
    words: list[str], tmp_path: Path
) -> None:
    table, text = tmp_path / "J.parquet", tmp_path / "J.csv"
    run(*words, "--jobs-out", str(text))
    run(*words, "--jobs-out", str(table))
    found = pq.read_table(table)
    types = dict(zip(found.column_names, map(str, found.schema.types), strict=True))
    rows = list(csv.DictReader(text.read_text().splitlines()))
    assert list(types) == list(rows[0])
    assert {name for name, kind in types.items() if kind == "string"} == {"job_id", "pool", "site"}
    assert set(types.values()) == {"string", "int64"}
    assert [{name: str(cell) for name, cell in row.items()} for row in found.to_pylist()] == rows
    before = table.read_bytes()
    run(*words, "--jobs-out", str(table))
    assert table.read_bytes() == before


def test_without_pyarrow_parquet_is_refused_before_the_replay(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def find_spec(name: str) -> None:
        assert name == "pyarrow"

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    out = tmp_path / "J.parquet"
    assert status(monkeypatch, *words, "--jobs-out", str(out)) == os.EX_USAGE
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"federator: error: --jobs-out: {out}: Parquet needs pyarrow, which is not installed here; "
        "install federator[parquet], or name a .csv file"
    )
    assert not out.exists()


def test_the_same_seed_gives_the_same_bytes(words: list[str], tmp_path: Path) -> None:
    out = tmp_path / "J.csv"
    for policy in (
        "mast",
        "pool-fifo",
        "tiresias",
        "themis",
        "maxmin",
        "federated",
        "sia",
        "sia-vc",
    ):
        more = ["--policy", policy, "--seed", "3", "--json", "--jobs-out", str(out)]
        first, jobs = run(*words, *more).stdout_bytes, out.read_bytes()
        assert (run(*words, *more).stdout_bytes, out.read_bytes()) == (first, jobs)


def test_policies_are_listed() -> None:
    names = [line.split()[0] for line in run("--policy", "list").stdout.splitlines()]
    assert names[:5] == ["mast", "global-fifo", "pool-fifo", "pool-sjf", "pool-fifo-count"]
    found = parsed("--policy", "list")
    assert found["schema"] == 1
    assert [policy["name"] for policy in found["policies"]] == names


def test_no_progress_bar_without_a_terminal(words: list[str]) -> None:
    assert "replaying" not in run(*words).stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--policy", "x"],
            "--policy: 'x' is unknown; expected one of mast, global-fifo, pool-fifo",
        ),
        (["--seed", "x"], "Invalid value for '--seed'"),
        (["--jobs-out", "/none/J.csv"], "--jobs-out: /none/J.csv: cannot be written: No such"),
        (["--trace", "/none"], "/none: cannot be read: No such file"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str],
    more: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert status(monkeypatch, *words, *more) == os.EX_USAGE
    lines = [line for line in capsys.readouterr().err.splitlines() if "left out" not in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"federator: error: {message}")


@pytest.mark.parametrize("missing", ["--trace", "--pools"])
def test_both_files_are_needed(
    words: list[str],
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = words.index(missing)
    assert status(monkeypatch, *words[:at], *words[at + 2 :]) == os.EX_USAGE
    assert f"missing option '{missing}'" in capsys.readouterr().err


def test_the_result_is_not_written_over_what_is_read(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Path(words[words.index("--trace") + 1])
    before = trace.read_bytes()
    assert status(monkeypatch, *words, "--jobs-out", str(trace)) == os.EX_USAGE
    link = tmp_path / "link.csv"
    link.symlink_to(trace)
    assert status(monkeypatch, *words, "--jobs-out", str(link)) == os.EX_USAGE
    assert trace.read_bytes() == before


def test_a_trace_that_is_missing_or_cannot_be_is_one_message(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "J.csv").write_text("old")
    out = ["--jobs-out", str(tmp_path / "J.csv")]
    assert status(monkeypatch, "--trace", "none.csv", *words[2:], *out) == os.EX_USAGE
    assert status(monkeypatch, *words, "--jobs-out", "x" * 300) == os.EX_USAGE
    assert (tmp_path / "J.csv").read_text() == "old"


def test_settings_are_named_numbers_and_for_mast_alone(words: list[str]) -> None:
    told = json.loads(run(*words, "--set", "startup_median_s=30", "--json").stdout)
    assert told["policy"] == "mast"
    for policy, change in (("mast", "save_s"), ("mast", "colour=1"), ("pool-fifo", "save_s=1")):
        refused = CliRunner().invoke(simulate, [*words, "--policy", policy, "--set", change])
        assert isinstance(refused.exception, InvalidRequest), change
        assert "--set" in str(refused.exception)
    assert "does not apply to policy pool-fifo, which takes no settings" in str(refused.exception)


def test_a_setting_without_effect_is_told_on_stderr(words: list[str]) -> None:
    told = run(*words, "--set", "grace_s=30", "--json")
    assert "--set: grace_s has no effect: nobody is evicted" in told.stderr
    json.loads(told.stdout)
    assert "no effect" not in run(*words, "--set", "startup_median_s=30", "--json").stderr
