"""``federator whatif`` prints an admin's history beside what it would have been."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from federator.cli import main as admin
from federator.cli.whatif import whatif
from federator.sim.report.before_after import JOB_COLUMNS
from federator.testbed.layout import REPOSITORY
from tests.unit.sim.test_whatif import CONFIG, HEAD, row

pytestmark = pytest.mark.slow

EXAMPLE = REPOSITORY / "examples" / "whatif"


def run(*words: str) -> Result:
    result = CliRunner().invoke(whatif, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result


def refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> str:
    monkeypatch.setattr(sys, "argv", ["federator", "whatif", *words])
    with pytest.raises(SystemExit) as caught:
        admin.main()
    assert caught.value.code == 64
    return capsys.readouterr().err


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Two jobs that ran on alpha one after the other, and two that say nothing."""
    rows = [
        row(given="gres/gpu=8"),
        row("8", given="gres/gpu=8", start=170, elapsed=30),
        row("9", account="guests", given="cpu=1"),
        row("10", state="RUNNING"),
    ]
    (tmp_path / "dump.txt").write_text(HEAD + "".join(rows))
    (tmp_path / "federation.yaml").write_text(CONFIG)
    (tmp_path / "P.csv").write_text("pool,nodes,gpus_per_node\nalpha,1,8\nbeta,1,8\n")
    return [
        "--sacct",
        str(tmp_path / "dump.txt"),
        "--config",
        str(tmp_path / "federation.yaml"),
        "--pools",
        str(tmp_path / "P.csv"),
    ]


def documented() -> list[str]:
    """The words of the command that docs/simulator.md shows, from the repository's root."""
    page = (REPOSITORY / "docs" / "simulator.md").read_text()
    _, _, rest = page.partition("federator whatif --sacct examples")
    words = f"--sacct examples{rest.partition('```')[0]}".replace("\\\n", " ").split()
    return [str(REPOSITORY / word) if word.startswith("examples/") else word for word in words]


def history(table: str) -> list[list[str]]:
    """What the lines of a table say of the time before; the federation may do better one day."""
    lines = [re.sub(r"> *\S+", "", line).split() for line in table.splitlines()]
    return [words[:-2] if words[-1].isdigit() else words for words in lines]


def test_the_example_is_what_its_script_makes(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_dumps", EXAMPLE / "make_dumps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(tmp_path)
    for name in ("alpine.txt", "cedar.txt"):
        assert (tmp_path / name).read_bytes() == (EXAMPLE / name).read_bytes()


def test_the_documented_command_prints_the_documented_table() -> None:
    printed = run(*documented()).stdout
    page = (REPOSITORY / "docs" / "simulator.md").read_text()
    shown = page[page.index("policy mast, seed 0, 2026-08-31") :].partition("```")[0]
    assert history(printed) == history(shown)


def test_json_holds_everything(words: list[str]) -> None:
    found: dict[str, Any] = json.loads(run(*words, "--json").stdout)
    assert list(found) == [
        "schema",
        "policy",
        "seed",
        "begin_s",
        "end_s",
        "in_all",
        "tenants",
        "sites",
        "accounts_without_tenant",
        "left_out",
        "left_out_jobs",
    ]
    assert (found["policy"], found["begin_s"], found["end_s"]) == ("mast", 100, 200)
    whole = found["in_all"]
    assert (whole["jobs"], whole["start_earlier"], whole["start_later"]) == (2, 2, 0)
    assert whole["before"]["wait_s"] == {"mean": 40.0, "median": 40.0, "p95": 70, "max": 70}
    assert whole["after"]["wait_s"] == {"mean": 0.0, "median": 0.0, "p95": 0, "max": 0}
    assert [(s["name"], s["jobs"], s["jobs_here"]) for s in found["sites"]] == [
        ("alpha", 2, 1),
        ("beta", 0, 1),
    ]
    assert found["left_out"] == 2
    assert found["left_out_jobs"][1] == {
        "job_id": "10",
        "line": 5,
        "pool": "alpha/gpu",
        "gpus": 2,
        "reason": "never ran, or has not ended",
    }


def test_jobs_out_holds_a_line_for_each_job(words: list[str], tmp_path: Path) -> None:
    run(*words, "--jobs-out", str(tmp_path / "J.csv"))
    header, *rows = csv.reader((tmp_path / "J.csv").read_text().splitlines())
    assert tuple(header) == JOB_COLUMNS
    assert rows == [
        [
            "7",
            "Vision",
            "ann",
            "8",
            "100",
            "60",
            "alpha",
            "110",
            "170",
            "0",
            "alpha",
            "100",
            "160",
            "0",
            "1",
        ],
        [
            "8",
            "Vision",
            "ann",
            "8",
            "100",
            "30",
            "alpha",
            "170",
            "200",
            "0",
            "beta",
            "100",
            "130",
            "0",
            "0",
        ],
    ]


def test_the_same_seed_gives_the_same_bytes(words: list[str]) -> None:
    assert run(*words, "--json").stdout == run(*words, "--json").stdout
    assert run(*words, "--seed", "5").stdout.startswith("policy mast, seed 5, 1970-01-01 00:01 to ")


def test_sizes_below_what_the_history_held_are_told(words: list[str]) -> None:
    dump = Path(words[1])
    dump.write_text(dump.read_text() + row("11", given="gres/gpu=3"))
    lines = run(*words).stdout.splitlines()
    assert "alpha: its jobs held up to 11 GPUs at once, and --pools says that it has 8" in lines
    assert "left out: 1 job: never ran, or has not ended" in lines


def test_a_dump_may_be_given_with_its_site(words: list[str]) -> None:
    words[1] = f"beta={words[1]}"
    found = json.loads(run(*words, "--json").stdout)
    assert [site["jobs"] for site in found["sites"]] == [0, 2]


def test_mistakes_are_one_message_and_status_64(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(monkeypatch, capsys, *words[:4])
    assert "missing option '--pools'" in said
    assert "SITE/PARTITION (alpha, beta, gamma)" in said
    said = refusal(monkeypatch, capsys, *words, "--jobs-out", words[1])
    assert "is the input" in said
    assert Path(words[1]).read_text().startswith(HEAD)
    said = refusal(monkeypatch, capsys, *words, "--sacct", "delta=x.txt")
    assert "delta=x.txt: cannot be read" in said
    said = refusal(monkeypatch, capsys, *words, "--jobs-out", f"{words[1]}/no")
    assert "--jobs-out" in said
    assert "cannot be written" in said
    out = Path(words[1]).parent / "J.csv"
    out.write_text("old")
    said = refusal(monkeypatch, capsys, *words, "--sacct", "alpha=none.txt", "--jobs-out", str(out))
    assert "none.txt: cannot be read" in said
    assert out.read_text() == "old"
    said = refusal(monkeypatch, capsys, *words, "--jobs-out", "J.parquet")
    assert "whatif writes CSV" in said


def test_a_report_is_one_page_with_both_tables(words: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "R.html"
    run(*words, "--report", str(page))
    text = page.read_text()
    assert "By tenant" in text
    assert "By site" in text
    assert text.count("<svg") == 2
    assert "http://" not in text.replace("http://www.w3.org", "")


# ---- several federations ----


def test_several_federations_are_an_answer_each(words: list[str], tmp_path: Path) -> None:
    other = tmp_path / "fifo.yaml"
    other.write_text(CONFIG.replace("policy: {", "policy: {name: global-fifo, "))
    both = [*words, "--config", str(other)]
    alone = [
        json.loads(run(*words, "--json").stdout),
        json.loads(run(*words[:2], *words[4:], "--config", str(other), "--json").stdout),
    ]
    for more in ([], ["--jobs", "2"], ["--resume", str(tmp_path / "kept")]):
        said = run(*both, "--json", *more).stdout.splitlines()
        assert [json.loads(line) for line in said] == alone
    assert [one["policy"] for one in alone] == ["mast", "global-fifo"]
    told = run(*both).stdout.splitlines()
    assert [line for line in told if line.endswith(".yaml:")] == [f"{words[3]}:", f"{other}:"]


def test_files_of_several_answers_are_refused(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for more in (["--config", words[3]], ["--jobs", "2"]):
        out = ["--jobs-out", str(tmp_path / "J.csv")]
        assert "expected one --config, and no --jobs, --dask" in refusal(
            monkeypatch, capsys, *words, *more, *out
        )
    assert not (tmp_path / "J.csv").exists()
