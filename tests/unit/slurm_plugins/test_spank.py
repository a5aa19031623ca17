"""The SPANK plug-in reads what fsbatch reads, hands it on, and is inert without its options.

It is linked with a driver that stands for Slurm (driver.c), with the compiler's sanitizers on, and
once more for valgrind. Real Slurm: tests/slurm/test_spank.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from federator.errors import InvalidRequest
from federator.slurm.options import own_values
from federator.slurm.options.option_table import OPTIONS, OWN
from federator.testbed.layout import REPOSITORY

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROWS: list[dict[str, Any]] = json.loads(
    (REPOSITORY / "tests" / "data" / "fed_options.json").read_text(encoding="utf-8")
)
READERS: dict[str, Callable[[str], object]] = {
    "fed-tp": lambda text: own_values.parallel(text, "fed-tp"),
    "fed-pp": lambda text: own_values.parallel(text, "fed-pp"),
    "fed-spare": lambda text: own_values.parallel(text, "fed-spare"),
    "fed-dataset": own_values.datasets,
    "fed-output": own_values.output,
    "fed-elastic": own_values.elastic,
    "fed-progress": own_values.progress_s,
    "fed-project": own_values.project,
    "fed-gpu-mem": own_values.gpu_mem_gib,
    "fed-gpu-types": own_values.gpu_types,
    "fed-priority": own_values.priority,
    "fed-optional": own_values.optional_tasks,
}
VARIABLES = {
    "fed-tp": "FED_TP",
    "fed-pp": "FED_PP",
    "fed-dataset": "FED_DATASET",
    "fed-elastic": "FED_ELASTIC",
    "fed-progress": "FED_PROGRESS",
    "fed-project": "FED_PROJECT",
}
STRICT = ("-std=c11", "-D_DEFAULT_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic")
CLIENTS = ("local", "allocator")


def build(folder: Path, *flags: str) -> Path:
    program = folder / "driver"
    command = ["cc", *STRICT, *flags, f"-I{HERE / 'stub'}", "-o", str(program)]
    done = subprocess.run(
        [*command, str(HERE / "driver.c")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With every access of memory checked; a fault ends it."""
    folder = tmp_path_factory.mktemp("sanitized")
    return build(folder, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run(driver: Path, *words: str, **environment: str) -> list[str]:
    """The records that the driver printed, the last one of which tells that it came to its end."""
    done = subprocess.run(
        [str(driver), *words],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], **environment},
    )
    assert done.returncode == 0, done.stderr.decode()
    records = done.stdout.decode().split("\0")[:-1]
    if words[0] != "options":
        assert records.pop() == "end"
    return records


def words_of(row: dict[str, Any]) -> str:
    return f"--{row['option']}={row['value']}"


def refusal(row: dict[str, Any]) -> str:
    """What fsbatch says of a value; "" when it takes it."""
    try:
        READERS[row["option"]](row["value"])
    except InvalidRequest as error:
        return str(error)
    return ""


@pytest.mark.parametrize("row", ROWS, ids=words_of)
def test_fsbatch_takes_the_sound_values_of_the_table_and_no_others(row: dict[str, Any]) -> None:
    said = refusal(row)
    assert bool(said) == (row["reads_as"] is None), said
    if said:
        assert said.startswith(f'Invalid --{row["option"]} value "{row["value"][:30]}')


def test_the_plugin_refuses_what_fsbatch_refuses_in_the_same_words(driver: Path) -> None:
    wrong = [row for row in ROWS if row["reads_as"] is None]
    told = run(driver, "allocator", *map(words_of, wrong))
    assert told == [f"refused {refusal(row)}" for row in wrong]


def test_the_plugin_takes_what_fsbatch_takes_and_hands_it_on(driver: Path) -> None:
    for row in (row for row in ROWS if row["reads_as"] is not None):
        told = set(run(driver, "allocator", words_of(row)))
        name = VARIABLES.get(row["option"])
        handed_on = {f"{kind} {name}={row['reads_as']}" for kind in ("env", "control")}
        assert {line for line in told if not line.startswith("told ")} == (
            {"ok"} | (handed_on if name else set())
        )


def test_it_offers_what_fsbatch_offers_with_the_same_kind_of_value(driver: Path) -> None:
    offered = dict(record.split() for record in run(driver, "options"))
    ours = {name: str(OPTIONS[name].arity.value) for name in OWN - {"json"}}
    assert offered == ours


def test_of_an_option_given_twice_the_last_one_counts(driver: Path) -> None:
    told = run(driver, "allocator", "--fed-tp=4", "--fed-tp=8")
    assert told == ["ok", "ok", "env FED_TP=8", "control FED_TP=8"]


def test_a_component_has_only_what_was_said_of_it_in_job_control(driver: Path) -> None:
    told = run(driver, "allocator", "--fed-tp=4", "--fed-project=a", ":", "--fed-tp=2", ":")
    components = [[], [], []]  # type: list[list[str]]
    at = 0
    for record in told:
        if record == "ok" and components[at]:
            at += 1
        elif record.startswith("control"):
            components[at].append(record)
    assert components == [
        ["control FED_TP=4", "control FED_PROJECT=a"],
        ["control FED_TP=2"],
        [],
    ]


def test_the_environment_is_that_of_the_first_component_that_says_something(driver: Path) -> None:
    told = run(driver, "local", "--fed-tp=4", ":", "--fed-tp=2", "--fed-pp=3")
    last = [record for record in told[told.index("control FED_TP=4") + 1 :] if "env" in record]
    assert last == ["env FED_TP=4", "env FED_PP=3"]


def test_it_says_what_plain_sbatch_does_nothing_about_where_that_would_mislead(
    driver: Path,
) -> None:
    words = ("--fed-continue", "--fed-gpu-mem=40G", "--fed-nvlink", "--fed-no-preempt")
    silent = ("--fed-priority=7", "--fed-optional", "--fed-tp=8", "--fed-dataset=a")
    (told,) = [r for r in run(driver, "allocator", *words, *silent) if r.startswith("told ")]
    assert told == (
        "told --fed-continue, --fed-gpu-mem, --fed-nvlink, --fed-no-preempt: of no effect here, "
        "only with fsbatch"
    )


@pytest.mark.parametrize("context", ["local", "allocator", "remote", "slurmd", "script", "error"])
def test_without_its_options_it_does_nothing(driver: Path, context: str) -> None:
    mine = {"FED_TP": "8", "FED_JOB_ID": "4294967296"}
    if context == "remote":
        assert run(driver, context, *(f"{k}={v}" for k, v in mine.items())) == [
            "env FED_TP=8",
            "env FED_JOB_ID=4294967296",
        ]
    else:
        assert sorted(run(driver, context, **mine)) == [
            "env FED_JOB_ID=4294967296",
            "env FED_TP=8",
        ]


@pytest.mark.parametrize("context", CLIENTS)
def test_what_slurm_would_hand_on_beside_the_variables_is_taken_back(
    driver: Path, context: str
) -> None:
    name = "_SLURM_SPANK_OPTION_federator_fed_gpu_mem"
    told = run(driver, context, "--fed-gpu-mem=40G", **{name: "40G"})
    assert not [record for record in told if "SPANK_OPTION" in record]


def test_a_job_step_gets_what_the_export_of_its_job_kept_out_and_nothing_else(
    driver: Path,
) -> None:
    told = run(
        driver,
        "remote",
        "SLURM_SPANK_FED_TP=8",
        "SLURM_SPANK_FED_PP=2",
        "FED_PP=4",
        "SLURM_SPANK_FED_CONTINUE=1",
        "SLURM_SPANK_FED_OTHER=x",
    )
    assert sorted(told) == ["env FED_CONTINUE=1", "env FED_PP=4", "env FED_TP=8"]


def test_a_job_step_drops_what_no_client_of_ours_has_checked(driver: Path) -> None:
    wrong = [row for row in ROWS if row["reads_as"] is None and row["option"] in VARIABLES]
    for row in wrong:
        name = VARIABLES[row["option"]]
        assert run(driver, "remote", f"SLURM_SPANK_{name}={row['value']}") == []
    assert run(driver, "remote", "SLURM_SPANK_FED_CONTINUE=$(x)") == []
    assert run(driver, "remote", f"SLURM_SPANK_FED_DATASET={'a' * 100_000}") == []


@pytest.mark.parametrize("context", [*CLIENTS, "remote"])
def test_calls_of_slurm_that_fail_never_refuse_a_job(driver: Path, context: str) -> None:
    told = run(driver, context, "--fed-tp=8", "SLURM_SPANK_FED_TP=8", FAILING="1")
    assert not [record for record in told if record.startswith(("failed", "refused"))]


def test_valgrind_finds_nothing(tmp_path: Path) -> None:
    program = build(tmp_path, "-O2", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong")
    components = [word for row in ROWS for word in (words_of(row), ":")]
    command = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=all",
        str(program),
        "allocator",
    ]
    remote = [f"SLURM_SPANK_{name}=8-9" for name in VARIABLES.values()]
    for words in (["allocator", *components], ["remote", *remote]):
        done = subprocess.run([*command[:-1], *words], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout.endswith(b"end\0")
