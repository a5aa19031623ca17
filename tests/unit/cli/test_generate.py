"""``federator generate`` writes what ``federator simulate`` reads."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli import main as admin
from federator.cli.generate import generate
from federator.errors import InvalidRequest
from federator.sim.generate.sia import SIA_VARIANTS, sia_workload
from federator.sim.importers.trace_csv import read_pools
from federator.sim.importers.trace_file import read_any_trace
from federator.sim.importers.trace_write import write_pools, write_trace
from federator.sim.trace import Trace, TracePool


def run(*words: str) -> str:
    result = CliRunner().invoke(generate, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def files(folder: Path) -> list[str]:
    return ["--trace", str(folder / "T.csv"), "--pools", str(folder / "P.csv")]


@pytest.mark.parametrize("variant", SIA_VARIANTS)
def test_what_is_written_is_read_back_as_it_was(variant: str, tmp_path: Path) -> None:
    said = run("sia", "--variant", variant, "--seed", "4", *files(tmp_path))
    jobs = sia_workload(variant).generate(4)
    assert read_any_trace(tmp_path / "T.csv", read_pools(tmp_path / "P.csv")) == jobs
    assert f"{len(jobs)} jobs" in said
    assert f"{len(jobs.pools)} pools, {jobs.capacity} GPUs" in said


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for seed in ("1", "1", "2"):
        run("sia", "--seed", seed, *files(tmp_path))
        found.append((tmp_path / "T.csv").read_bytes())
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--variant", "x", "--trace", "T", "--pools", "P"], "--variant: 'x' is unknown; expected"),
        (["--trace", "T"], "Missing option '--pools'"),
        (["--trace", "T", "--pools", "./T"], "--pools: T: is --trace, too; name another file"),
        (["--trace", "/none/T", "--pools", "P"], "--trace: /none/T: cannot be written: No such"),
        (["--seed", "-1", "--trace", "T", "--pools", "P"], "Invalid value for '--seed'"),
    ],
)
def test_a_mistake_is_one_message_and_status_64(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["federator", "generate", "sia", *words])
    with pytest.raises(SystemExit) as caught:
        admin.main()
    assert caught.value.code == 64
    assert message in capsys.readouterr().err


def test_what_is_written_has_the_columns_of_the_format_and_types_of_gpu() -> None:
    pools, jobs = io.StringIO(), io.StringIO()
    ant = TracePool(name="ant", nodes=1, gpus_per_node=2, gpu_type="a100")
    write_pools(Trace(pools=(ant,)), pools)
    write_trace(Trace(pools=(ant,)), jobs)
    assert pools.getvalue() == "pool,nodes,gpus_per_node,gpus,gpu_type\nant,1,2,2,a100\n"
    columns = "submit_s,duration_s,gpus,num_nodes,pool,user,status,cpus,job_id\n"
    assert jobs.getvalue() == columns


def test_two_names_of_one_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "T.csv").touch()
    (tmp_path / "P.csv").hardlink_to(tmp_path / "T.csv")
    with pytest.raises(InvalidRequest, match=r"is --trace, too|is the input"):
        CliRunner().invoke(generate, ["sia", *files(tmp_path)], catch_exceptions=False)


def test_json_tells_what_was_made(tmp_path: Path) -> None:
    words = [
        "sia",
        "--trace",
        str(tmp_path / "T.csv"),
        "--pools",
        str(tmp_path / "P.csv"),
        "--json",
    ]
    told = json.loads(CliRunner().invoke(generate, words).stdout)
    assert (told["schema"], told["variant"], told["seed"]) == (1, "base", 0)
    assert told["jobs"] == len((tmp_path / "T.csv").read_text().splitlines()) - 1
    assert (told["pools"], told["gpus"]) == (4, 32)


def test_a_name_of_a_compressed_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    words = ["sia", "--trace", str(tmp_path / "T.csv.gz"), "--pools", str(tmp_path / "P.csv")]
    refused = CliRunner().invoke(generate, words)
    assert isinstance(refused.exception, InvalidRequest)
    assert list(tmp_path.iterdir()) == []
