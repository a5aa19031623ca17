"""``federator simulate`` replays a trace and prints how it went."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from federator.cli import main as admin
from federator.cli.simulate import simulate
from federator.errors import FederatorError, InvalidRequest
from federator.sim.runs.replay import ReplayTask

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


def on_a_terminal(*words: str) -> bytes:
    """What a terminal shows on stderr."""
    here, there = pty.openpty()
    command = [sys.executable, "-m", "federator.cli.main", "simulate", *words]
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=there, env=environment
    ) as child:
        os.close(there)
        shown = b""
        with contextlib.suppress(OSError), open(here, "rb", buffering=0) as terminal:
            while data := terminal.read(4096):  # an error once the other side has closed
                shown += data
        assert child.wait() == 0
    return shown


@pytest.mark.slow
def test_a_terminal_sees_how_much_is_done_and_what_is_left(words: list[str]) -> None:
    alone, several = on_a_terminal(*words), on_a_terminal(*words, "--seed", "1", "--seed", "2")
    assert b"replaying" in alone
    assert b"replaying (2 runs)" in several
    for shown in (alone, several):
        assert b"%" in shown
        assert b"left" in shown.partition(b"replaying")[2]


# ---- several runs ----


def lines(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]


def test_several_policies_seeds_and_values_are_a_run_each_in_this_order(words: list[str]) -> None:
    more = ["--policy", "mast", "--policy", "global-fifo", "--seed", "3", "--seed", "1"]
    found = lines(*words, *more, "--set", "startup_median_s=30,20", "--set", "startup_p90_s=60")
    told = [(one["policy"], one["settings"]["startup_median_s"], one["seed"]) for one in found]
    assert told == [
        (policy, median_s, seed)
        for policy in ("mast", "global-fifo")
        for median_s in (30, 20)
        for seed in (3, 1)
    ]
    assert {one["settings"]["startup_p90_s"] for one in found} == {60}


def test_a_line_of_several_is_that_of_the_run_alone_with_its_settings(words: list[str]) -> None:
    first, second = lines(*words, "--policy", "pool-fifo", "--policy", "maxmin")
    assert first == {**parsed(*words, "--policy", "pool-fifo"), "settings": {}}
    assert second == {**parsed(*words, "--policy", "maxmin"), "settings": {}}


def test_several_runs_are_a_line_each_of_one_table(words: list[str]) -> None:
    said = run(*words, "--policy", "pool-fifo", "--policy", "maxmin", "--seed", "1", "--seed", "2")
    head, *rows = said.stdout.splitlines()
    assert head.split() == [
        "RUN",
        "JOBS",
        "LEFTOUT",
        "PREEMPT",
        "MAKESPAN",
        "USE",
        "WAITMEAN",
        "WAITP50",
        "WAITP95",
        "WAITMAX",
        "JCTMEAN",
    ]
    assert [row[:16].strip() for row in rows] == [
        "pool-fifo seed=1",
        "pool-fifo seed=2",
        "maxmin seed=1",
        "maxmin seed=2",
    ]
    assert rows[0].split()[2:] == [
        "3",
        "1",
        "0",
        "03:00:00",
        "57.4%",
        "00:39:40",
        "00:00:00",
        "01:59:00",
        "01:59:00",
        "01:43:00",
    ]
    assert len({len(line) for line in (head, *rows)}) == 1


def test_one_run_says_the_same_bytes_with_any_option(words: list[str], tmp_path: Path) -> None:
    for shape in ([], ["--json"]):
        alone = run(*words, *shape).stdout_bytes
        for more in (["--jobs", "2"], ["--resume", str(tmp_path / "kept")]):
            assert run(*words, *shape, *more).stdout_bytes == alone


def test_a_run_that_was_kept_is_not_done_again(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--policy", "pool-fifo", "--policy", "maxmin", "--resume", str(tmp_path / "kept")]
    before = run(*words, *more).stdout_bytes
    monkeypatch.setattr(ReplayTask, "__call__", None)
    assert run(*words, *more).stdout_bytes == before


def test_a_file_that_is_no_result_is_named_and_the_run_done_again(
    words: list[str], tmp_path: Path
) -> None:
    more = ["--resume", str(tmp_path / "kept")]
    before = run(*words, *more).stdout_bytes
    (path,) = (tmp_path / "kept").iterdir()
    path.write_bytes(b"damaged")
    said = run(*words, *more)
    assert said.stdout_bytes == before
    assert f"federator simulate: {path}: not the whole result of this run; done again" in (
        said.stderr
    )


def test_a_run_that_fails_is_named_and_the_others_are_printed(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = ReplayTask.__call__

    def broken(task: ReplayTask, progress: Any) -> Any:
        if task.policy == "maxmin":
            raise FederatorError("no room")
        return real(task, progress)

    monkeypatch.setattr(ReplayTask, "__call__", broken)
    policies = ["--policy", "maxmin", "--policy", "pool-fifo", "--json"]
    assert status(monkeypatch, *words, *policies) == os.EX_SOFTWARE
    said = capsys.readouterr()
    assert [json.loads(line)["policy"] for line in said.out.splitlines()] == ["pool-fifo"]
    assert said.err.splitlines()[-1] == (
        "federator: error: 1 of 2 runs failed: maxmin seed=0: no room"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--policy", "mast", "--policy", "mast"], "--policy: expected each value once"),
        (["--seed", "1", "--seed", "1"], "--seed: expected each value once"),
        (["--set", "save_s=1,1"], "--set: save_s: expected each value once"),
        (["--set", "save_s=1,"], "--set: 'save_s=1,': expected NAME=NUMBER"),
        (["--policy", "list", "--policy", "mast"], "--policy: 'list' is unknown"),
        (
            ["--jobs-out", "J.csv", "--seed", "1", "--seed", "2"],
            "--jobs-out: expected one run, and 2 are asked for",
        ),
        (["--jobs-out", "J.csv", "--jobs", "2"], "--jobs-out: not together with --jobs, --dask"),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
        (["--jobs", "2", "--dask", "x"], "--jobs and --dask exclude each other"),
        (["--resume", "/proc/none"], "--resume: /proc/none: cannot be written: "),
        (
            ["--set", f"save_s={','.join(map(str, range(10_001)))}"],
            "10001 runs are asked for; expected at most 10000",
        ),
    ],
)
def test_a_mistake_about_several_runs_is_one_line(
    words: list[str],
    more: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert status(monkeypatch, *words, *more) == os.EX_USAGE
    errors = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(errors) == 1
    assert errors[0].startswith(f"federator: error: {message}")
