"""A job of the federation sees what plain sbatch would show it: names, values, limits.

The same options go to fsbatch and, with the plan's nodes, to the sbatch of the site that ran it.
Names are compared in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.federation import (
    Row,
    Running,
    at,
    open_to_all,
    output_name,
    output_of,
    within,
)

pytestmark = pytest.mark.slurm

Environment = dict[str, str]
PRINT = "#!/bin/sh\nenv -0\n"
STEP = "=== the step\n"
PRINT_BOTH = f"#!/bin/sh\n/usr/bin/env -0\necho '{STEP.strip()}'\n/usr/bin/srun /usr/bin/env -0\n"
GPU_NAMES = {"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES"}
# Values that name the job itself, or its hour; 22.05 still calls a het group a pack group, too.
OWN = re.compile(
    r"SLURM_(JOB_?ID(_(HET|PACK)_GROUP_\d+)?|(HET|ARRAY)_JOB_ID|JOB_SLUID|TASK_PID"
    r"|JOB_(START|END)_TIME)"
)
# The attempt is in the job's comment, where plain sbatch was given none. sbatch calls a job whose
# script comes from standard input "sbatch", and before 26.05 told all but the job; ours is told.
ONLY_OURS = {"SLURM_JOB_COMMENT", "SLURM_JOB_NAME"}


@pytest.fixture(scope="module", autouse=True)
def _the_partition_is_open(testbed: StateDir) -> Iterator[None]:
    """What plain sbatch is compared with has no ticket."""
    with open_to_all(*(site.name for site in layout.SITES)):
        yield


SHAPES: dict[str, list[list[str]]] = {
    "two nodes": [["-N2", "-n4", "--gres=gpu:{gpu}:2", "--time=3", "--job-name=env"]],
    "gpus in total": [["--gpus={gpu}:4", "-c2", "--time=3"]],
    "het": [["-N1", "-n2", "--gres=gpu:{gpu}:4", "--time=3"], ["-N1", "-n1", "-c16", "--time=3"]],
}


def environment(text: str) -> Environment:
    """What ``env -0`` printed, as far as Slurm makes it."""
    pairs = dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)
    return {k: v for k, v in pairs.items() if k.startswith("SLURM") or k in GPU_NAMES}


def differing(ours: Environment, theirs: Environment) -> set[str]:
    """Names in both whose values differ, but for those of one job alone."""
    both = ours.keys() & theirs.keys()
    return {name for name in both if ours[name] != theirs[name] and not OWN.fullmatch(name)}


def joined(components: list[list[str]]) -> list[str]:
    return list(chain.from_iterable([":", *words] for words in components))[1:]


def plain(row: Row, components: list[list[str]], node_names: list[str], script: str) -> Row:
    """Run the same with the site's own sbatch on the same nodes, in the order of the plan."""
    names = iter(node_names)
    placed = []
    for words in components:
        count = 2 if "-N2" in words else 1
        nodes = ",".join(next(names) for _ in range(count))
        placed.append(["--partition=fed", "--account=vision", f"--nodelist={nodes}", *words])
    id_ = at(
        row["site"], "sbatch", "--parsable", *joined(placed), user="vision1", stdin=script
    ).strip()
    within(60, lambda: not at(row["site"], "squeue", "--noheader", f"--jobs={id_}"))
    return dict(row, site_job_id=int(id_))


def plain_output(plain_row: Row, task: str = "") -> str:
    """Where a job of plain sbatch wrote."""
    return f"/home/vision1/slurm-{plain_row['site_job_id']}{task}.out"


def forget(plain_row: Row) -> None:
    """Remove what a job wrote that no daemon knows of."""
    at(plain_row["site"], "sh", "-c", f"rm -f /home/vision1/slurm-{plain_row['site_job_id']}[._]*")


@pytest.mark.parametrize("shape", SHAPES)
def test_environment_is_that_of_plain_sbatch(federation: Running, shape: str) -> None:
    """At alpine (22.05) and cedar (26.05); of a het job, the leader's."""
    asked = [
        [[word.format(gpu=gpu) for word in words] for words in SHAPES[shape]]
        for gpu in ("a100", "h100")
    ]
    ids = [federation.submit(PRINT, *joined(components)) for components in asked]
    for row, components in zip(federation.await_end(*ids), asked, strict=True):
        output = output_of(row)
        ours = environment(output)
        plain_row = plain(row, components, row["node_names"], PRINT)
        theirs = environment(at(row["site"], "cat", plain_output(plain_row)))
        forget(plain_row)
        assert set(theirs) - set(ours) == set()
        assert set(ours) - set(theirs) <= ONLY_OURS
        assert {k: (ours[k], theirs[k]) for k in differing(ours, theirs)} == {}
        assert f"FED_JOB_ID={row['id']}\0" in output
        assert f"FED_SITE={row['site']}\0" in output


@pytest.mark.parametrize("gpu", ["a100", "h100"])  # 22.05 or 24.11, and 26.05
@pytest.mark.parametrize("export", ["ALL", "NONE", "NIL", "PATH"])
def test_environment_of_an_array_task_is_that_of_plain_sbatch(
    federation: Running, gpu: str, export: str
) -> None:
    """In the script and in its steps, whatever is exported; the array's id is the federation's."""
    words = ["--array=2-8:3%9", f"--gres=gpu:{gpu}:1", "--time=3", f"--export={export}"]
    script = PRINT_BOTH
    id_ = federation.submit(script, *words)
    rows = sorted(federation.await_end(id_), key=lambda row: int(row["array_index"]))
    assert [row["array_index"] for row in rows] == [2, 5, 8]
    plain_row = plain(rows[0], [words], rows[0]["node_names"], script)
    for row in rows:
        index = row["array_index"]
        written = at(plain_row["site"], "cat", plain_output(plain_row, f"_{index}"))
        theirs, _ = map(environment, written.split(STEP))
        ours, ours_of_step = map(environment, output_of(row).split(STEP))
        if row["site"] == plain_row["site"]:
            assert set(theirs) - set(ours) == set()
            assert set(ours) - set(theirs) <= ONLY_OURS
        names = {name for name in theirs if name.startswith("SLURM_ARRAY_TASK_")}
        assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
        for told in (ours, ours_of_step):
            assert told["SLURM_ARRAY_TASK_ID"] == str(index)
            assert told["SLURM_ARRAY_JOB_ID"] == str(id_)
            assert told["SLURM_JOB_ID"] == str(row["site_job_id"])
            bounds = [told[f"SLURM_ARRAY_TASK_{end}"] for end in ("COUNT", "MIN", "MAX", "STEP")]
            assert bounds == ["3", "2", "8", "3"]
    forget(plain_row)


def test_umask_is_that_of_the_submission(federation: Running) -> None:
    """As with sbatch: the job has it, and its output file is made under it."""
    submit = "umask 077; fsbatch --parsable --gres=gpu:a100:1 --wrap umask"
    id_ = int(at("alpine", "sh", "-c", submit, user="vision1"))
    (row,) = federation.await_end(id_)
    assert output_of(row).strip() == "0077"
    name = f"/home/vision1/{output_name(row)}"
    assert at(row["site"], "stat", "--format=%a", name).strip() == "600"
