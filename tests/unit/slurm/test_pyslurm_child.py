"""The child makes of pyslurm's objects what Slurm's commands print of the same moment."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from federator.agent.base import Partition
from federator.model.site import Node, SiteJob
from federator.slurm import pyslurm_child
from federator.slurm.parse_base import Reading
from federator.slurm.parse_jobs import OTHERS_FORMAT, SQUEUE_FORMAT, parse_jobs, parse_others
from federator.slurm.parse_nodes import parse_nodes
from federator.slurm.parse_site import parse_partitions
from federator.slurm.pyslurm_child import CannotTellError, ExitCodes, answer
from tests.contract.record_pyslurm import READS, RELEASES
from tests.contract.runners import TRANSCRIPTS
from tests.fakes.pyslurm_shapes import ATTRIBUTES, replaying

PARSERS: Final[dict[str, Callable[[bytes], Reading[Any]]]] = {
    "squeue": parse_jobs,
    "nodes": lambda raw: parse_nodes(raw.decode()),
    "partitions": lambda raw: parse_partitions(raw.decode()),
}
SQUEUE: Final = READS["squeue"]
NAMES: Final = {1001: "ann", 1002: "bob"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("what", READS)
def test_every_field_is_that_of_the_command(
    release: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One moment of a busy site, recorded by both ways: gangs, het jobs, arrays, hostile names."""
    folder = TRANSCRIPTS / f"{release}-pyslurm" / "parity"
    slurm, name_of = replaying(folder / "shapes.jsonl")
    monkeypatch.setattr(pyslurm_child, "_account", name_of)
    said = PARSERS[what](answer(slurm, ExitCodes(slurm), READS[what]))
    printed = PARSERS[what]((folder / f"{what}.txt").read_bytes())
    assert said.problems == printed.problems == ()
    assert len(said.records) > 1
    assert _by_name(said) == _by_name(printed)


def _by_name(reading: Reading[Any]) -> dict[object, object]:
    """Jobs come in another order, which nothing depends on; some of what is shown is not told."""
    return {r.job_id if isinstance(r, SiteJob) else r.name: _told(r) for r in reading.records}


def _told(record: Any) -> Any:
    if isinstance(record, Node):
        return replace(record, weight=None)
    if isinstance(record, Partition):
        return replace(record, root_only=None, over_subscribe="", groups="")
    return record


def a_job(**fields: object) -> SimpleNamespace:
    usual: dict[str, object] = dict.fromkeys(ATTRIBUTES["Jobs"])
    usual |= {
        "id": 7,
        "user_id": 1001,
        "state": "RUNNING",
        "exit_code": 0,
        "exit_code_signal": 0,
        "submit_time": 100,
        "start_time": 200,
        "end_time": 500,
        "allocated_nodes": "g1",
        "partition": "fed",
        "requeue_count": 0,
        "name": "train",
    }
    return SimpleNamespace(**(usual | fields))


class Slurm:
    """Pyslurm with these jobs and nodes; ``codes`` as the older way tells them."""

    def __init__(
        self,
        jobs: tuple[SimpleNamespace, ...] = (),
        codes: dict[int, tuple[int, str]] | None = None,
        nodes: tuple[tuple[SimpleNamespace, dict[str, object]], ...] = (),
    ) -> None:
        self.dumps = 0
        self.codes = codes or {}
        self.found = dict(enumerate(jobs))
        self.Jobs = SimpleNamespace(load=lambda: self.found)
        self._nodes = nodes
        self.Nodes = SimpleNamespace(load=lambda: {n.name: n for n, _ in self._nodes})

    def job(self) -> SimpleNamespace:
        def get() -> dict[int, dict[str, object]]:
            self.dumps += 1
            return {
                i: {"end_time": end, "exit_code": code} for i, (end, code) in self.codes.items()
            }

        return SimpleNamespace(get=get)

    def node(self) -> SimpleNamespace:
        return SimpleNamespace(get=lambda: {n.name: old for n, old in self._nodes})


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyslurm_child, "_account", lambda uid: NAMES[uid])


def jobs_of(slurm: Slurm, *more: str) -> tuple[SiteJob, ...]:
    return parse_jobs(answer(slurm, ExitCodes(slurm), (*SQUEUE, *more))).records


@pytest.mark.parametrize(("told", "true"), [(127, 255), (3, 131), (0, 128), (3, 3)])
def test_an_exit_code_from_128_on_is_not_taken_for_a_smaller_one(told: int, true: int) -> None:
    """Pyslurm takes 128 off; the older way has the code, and another job's signal."""
    job = a_job(state="FAILED", exit_code=told)
    slurm = Slurm((job,), {7: (500, f"{true}:15")})
    (read,) = jobs_of(slurm)
    assert (read.exit_code, read.signal) == (true, 0)


def test_exit_codes_are_looked_up_once() -> None:
    slurm = Slurm((a_job(state="FAILED", exit_code=3), a_job(id=8)), {7: (500, "3:0")})
    codes = ExitCodes(slurm)
    for _ in range(3):
        answer(slurm, codes, SQUEUE)
    assert slurm.dumps == 1
    slurm.found[2] = a_job(id=9, state="FAILED", exit_code=1, end_time=600)
    slurm.codes[9] = (600, "1:0")
    answer(slurm, codes, SQUEUE)
    assert slurm.dumps == 2


def test_a_signal_needs_no_second_look() -> None:
    slurm = Slurm((a_job(state="CANCELLED", exit_code_signal=15),))
    (read,) = jobs_of(slurm)
    assert (read.exit_code, read.signal, slurm.dumps) == (0, 15, 0)


@pytest.mark.parametrize("codes", [{}, {7: (900, "3:0")}])
def test_a_job_that_ran_again_meanwhile_has_no_code(codes: dict[int, tuple[int, str]]) -> None:
    slurm = Slurm((a_job(state="FAILED", exit_code=3),), codes)
    with pytest.raises(CannotTellError):
        jobs_of(slurm)


@pytest.mark.parametrize(
    ("fields", "array", "task"),
    [
        ({}, 0, None),
        ({"array_id": 5, "array_task_id": 2}, 5, 2),
        ({"array_id": 5}, 5, 0),  # pyslurm has no 0
        ({"array_id": 7}, 7, 0),  # the last task bears the array's id
        ({"array_id": 7, "array_tasks_waiting": "0-3", "allocated_nodes": None}, 7, None),
        ({"array_id": 7, "state": "CANCELLED", "allocated_nodes": None}, 0, None),
    ],
)
def test_tasks_of_arrays(fields: dict[str, object], array: int, task: int | None) -> None:
    (read,) = jobs_of(Slurm((a_job(**fields),)))
    assert (read.array_job_id, read.array_task_id) == (array, task)


def test_partitions_choose_as_squeue_chooses() -> None:
    jobs = (
        a_job(id=1, partition="fed"),
        a_job(id=2, partition="local"),
        a_job(id=3, partition="local,fed", state="PENDING", allocated_nodes=None),
    )
    assert [job.job_id for job in jobs_of(Slurm(jobs), "-p", "fed,cpu")] == [1, 3]
    assert len(jobs_of(Slurm(jobs))) == 3


def test_of_other_partitions_only_what_holds_nodes() -> None:
    jobs = (a_job(id=1), a_job(id=2, state="COMPLETED"), a_job(id=3, state="COMPLETING"))
    slurm = Slurm(jobs)
    argv = (*SQUEUE[:5], "R,CF,CG,S", "-O", OTHERS_FORMAT)
    held = parse_others(answer(slurm, ExitCodes(slurm), argv)).records
    assert [(job.id, job.nodes, job.ends_by_s) for job in held] == [
        (1, ("g1",), 500.0),
        (3, ("g1",), 500.0),
    ]


def test_users_words_are_cut_to_bytes_and_forge_nothing() -> None:
    name = "é" * 40 + "\n9|root|RUNNING|0:0|" + "|" * 100
    jobs = (a_job(name=name, comment="a\n|b" * 90, account="\n"), a_job(id=8))
    read = jobs_of(Slurm(jobs))
    assert [job.job_id for job in read] == [7, 8]
    assert read[0].name == "é" * 32


@pytest.mark.parametrize(
    "argv",
    [
        (*SQUEUE, "-j", "7"),
        (*SQUEUE[:-1], f"{SQUEUE_FORMAT},tres-alloc:|"),
        (*SQUEUE[:-1], "JobID:20 Name"),
        ("squeue",),
        ("scontrol", "show", "config"),
        ("rm", "-rf", "/"),
    ],
)
def test_other_questions_are_not_answered(argv: tuple[str, ...]) -> None:
    slurm = Slurm((a_job(),))
    with pytest.raises(CannotTellError):
        answer(slurm, ExitCodes(slurm), argv)


def test_a_field_of_slurms_that_would_break_the_record_is_refused() -> None:
    with pytest.raises(CannotTellError, match="line's end"):
        jobs_of(Slurm((a_job(allocated_nodes="g1\n8|root"),)))


def a_node(**fields: object) -> SimpleNamespace:
    usual: dict[str, object] = dict.fromkeys(ATTRIBUTES["Nodes"])
    usual |= {
        "name": "g1",
        "allocated_cpus": 2,
        "effective_cpus": 62,
        "total_cpus": 64,
        "real_memory": 1000,
        "allocated_memory": 10,
        "state": "MIXED",
        "partitions": ["fed"],
    }
    return SimpleNamespace(**(usual | fields))


def old_node(**fields: object) -> dict[str, object]:
    return {"alloc_cpus": 2, "gres": [], "gres_used": None, "reason_uid": None} | fields


def test_commas_in_brackets_of_gres_stay_as_they_are() -> None:
    """Pyslurm splits the one at each comma, the other between entries."""
    gres = "gpu:a100:8(S:0,1),nic:2"
    used = "gpu:a100:3(IDX:0,2-3),nic:1"
    old = old_node(gres=gres.split(","), gres_used=["gpu:a100:3(IDX:0,2-3)", "nic:1"])
    slurm = Slurm(nodes=((a_node(), old),))
    said = answer(slurm, ExitCodes(slurm), READS["nodes"])
    assert f" Gres={gres} GresUsed={used} ".encode() in said
    (node,) = parse_nodes(said.decode()).records
    assert (node.gpus, node.gpus_alloc, node.cpus, node.cpus_alloc) == (8, 3, 62, 2)


@pytest.mark.parametrize("used", [None, []])
def test_gres_of_which_the_use_is_not_told_are_the_commands_to_tell(used: object) -> None:
    slurm = Slurm(nodes=((a_node(), old_node(gres=["gpu:8"], gres_used=used)),))
    with pytest.raises(CannotTellError, match="not told"):
        answer(slurm, ExitCodes(slurm), READS["nodes"])


def test_two_looks_of_different_moments_are_not_mixed() -> None:
    slurm = Slurm(nodes=((a_node(allocated_cpus=8), old_node()),))
    with pytest.raises(CannotTellError, match="nodes change"):
        answer(slurm, ExitCodes(slurm), READS["nodes"])


@pytest.mark.parametrize(
    ("told", "in_use", "printed"),
    [
        ("ALLOCATED", 2, "MIXED"),  # pyslurm 22.5
        ("ALLOCATED*+DRAIN", 2, "MIXED*+DRAIN"),
        ("MIXED", 2, "MIXED"),
        ("ALLOCATED", 62, "ALLOCATED"),
        ("IDLE+RESERVED", 0, "IDLE+RESERVED"),
    ],
)
def test_a_node_of_which_a_part_is_in_use_is_mixed(told: str, in_use: int, printed: str) -> None:
    node = a_node(state=told, allocated_cpus=in_use)
    slurm = Slurm(nodes=((node, old_node(alloc_cpus=in_use)),))
    assert f" State={printed} ".encode() in answer(slurm, ExitCodes(slurm), READS["nodes"])


def test_a_reason_comes_last_and_on_the_nodes_own_line() -> None:
    node = a_node(state="IDLE+DRAIN", reason="bad\nState=IDLE fan", reason_time=900)
    slurm = Slurm(nodes=((node, old_node(reason_uid=1001)),))
    (read,) = parse_nodes(answer(slurm, ExitCodes(slurm), READS["nodes"]).decode()).records
    assert (read.drain_reason, read.drained_by, read.drained_at_s) == (
        "bad State=IDLE fan",
        "ann",
        900.0,
    )
    assert not read.state.takes_jobs


def test_whatever_goes_wrong_is_an_answer() -> None:
    def fail() -> None:
        raise RuntimeError("Unable to contact slurm controller")

    slurm = SimpleNamespace(Partitions=SimpleNamespace(load=fail), Jobs=Slurm((a_job(),)).Jobs)
    out = io.BytesIO()
    asked = (b"no JSON\n", json.dumps(READS["partitions"]).encode(), json.dumps(SQUEUE).encode())
    pyslurm_child.serve(slurm, iter(asked), out)
    lines = out.getvalue().split(b"\n", 3)
    assert "JSONDecodeError" in json.loads(lines[0])["cannot"]
    assert json.loads(lines[1]) == {"cannot": "RuntimeError: Unable to contact slurm controller"}
    assert json.loads(lines[2])["bytes"] == len(lines[3])


def test_nothing_of_the_package_imports_pyslurm_but_the_childs_file() -> None:
    """It is under GPL-2: docs/pyslurm.md. import-linter sees that nothing imports that file."""
    package = Path(pyslurm_child.__file__).parents[1]
    with_it = [
        path.name
        for path in package.rglob("*.py")
        if any(
            line.split()[:2] in (["import", "pyslurm"], ["from", "pyslurm"])
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    ]
    assert with_it == ["pyslurm_child.py"]
    assert "federator" not in Path(pyslurm_child.__file__).read_text(encoding="utf-8")
