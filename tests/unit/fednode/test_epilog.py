"""The epilog does each of its parts, whatever becomes of the others, and fails no node."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fednode import config, dcgm, epilog, epilog_keys, gpu_use, processes, records, shm, summary
from fednode.epilog import HeldGpu, drain_reason
from fednode.processes import Process
from fednode.run import Ran
from fednode.watching import Reading

ENVIRON = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_UID": "2001",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_GPUS": "0,1",
    "SLURM_JOB_PARTITION": "fed",
    "SLURMD_NODENAME": "n1",
    "SLURM_JOB_EXIT_CODE2": "1:0",
}
EMPTY = "0, GPU-0, 4, 0, Disabled\n1, GPU-1, 4, 0, Disabled\n2, GPU-2, 4, 0, Disabled\n"
HELD = "0, GPU-0, 4, 0, Disabled\n1, GPU-1, 30000, 0, Disabled\n2, GPU-2, 9999, 0, Disabled\n"


class Node:
    """A node on which a job of ada's (2001) has ended; processes and programs are made up."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.processes: list[Process] = []
        self.answers_gpus: Callable[[], Ran] = lambda: self.gpus
        self.killed: list[int] = []
        self.called: list[str] = []
        self.gpus, self.apps = Ran(0, EMPTY, ""), Ran(0, "", "")
        self.swept = shm.Swept(files=2, kib=8)
        self.sweeps = 0
        self.meanwhile: Callable[[], None] = lambda: None  # while shared memory is looked at
        self.settings: dict[str, Any] = {
            "gpu_wait_s": 0,
            "dcgm_mapping_dir": str(folder / "map-%n"),
            "gpu_memory": "drain",
        }
        monkeypatch.setattr(processes, "all_processes", self._all)
        monkeypatch.setattr(processes, "look", self._look)
        monkeypatch.setattr(processes, "kill", self._kill)
        monkeypatch.setattr(shm, "sweep", self._sweep)
        monkeypatch.setattr(gpu_use, "run", self._run)
        monkeypatch.setattr(epilog, "run", self._run)

    def _all(self, uid: int) -> list[Process]:
        return [process for process in self.processes if process.uid == uid]

    def _look(self, pid: int, uid: int) -> Process | None:
        return next((p for p in self._all(uid) if p.pid == pid), None)

    def _kill(self, victims: Sequence[Process], *_: object) -> list[Process]:
        self.killed += [victim.pid for victim in victims]
        return list(victims)

    def _sweep(self, *_: object, alone: Callable[[], bool]) -> shm.Swept | None:
        self.sweeps += 1
        self.meanwhile()
        return self.swept if alone() else None

    def _run(self, argv: Sequence[str], *_: object) -> Ran:
        self.called.append(" ".join([Path(argv[0]).name, *argv[1:]]))
        if "--query-gpu" in self.called[-1]:
            return self.answers_gpus()
        return self.apps if "--query-compute-apps" in self.called[-1] else Ran(0, "", "")

    def prolog(self, **environ: str) -> None:
        record = records.from_environment(ENVIRON | environ, 1.0)
        records.write(record, str(self.folder))
        dcgm.write(str(self.folder / "map-n1"), record.gpus, record.job)

    def run(self, **settings: object) -> dict[str, Any]:
        """The job's epilog; what it logs."""
        document = {
            "state_dir": str(self.folder),
            "log_dir": str(self.folder / "log"),
            "epilog": self.settings | settings,
        }
        file = self.folder / "node.json"
        file.write_text(json.dumps(document))
        shared, own, problems = config.load("epilog", epilog_keys.SCHEMA, str(file))
        assert problems == []
        job = records.from_environment(ENVIRON, 2.0)
        epilog.Epilog(job, shared, own).run(ENVIRON)
        lines = (self.folder / "log" / "jobs.jsonl").read_text().splitlines()
        return dict(json.loads(lines[-1]))

    @property
    def drains(self) -> list[str]:
        return [call for call in self.called if call.startswith("scontrol")]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path, monkeypatch)
    node.prolog()
    return node


def process(pid: int, job: int | None, uid: int = 2001, node: str = "n1") -> Process:
    return Process(pid, uid, 1, job, node)


def test_the_jobs_processes_are_killed_and_nobody_elses(node: Node) -> None:
    node.processes = [
        process(2, 7),
        process(3, 8),
        process(4, None),
        process(5, 7, uid=2002),
        process(6, 7, node="n2"),
    ]
    assert node.run()["killed"] == 1
    assert node.killed == [2]


def test_all_that_a_user_runs_goes_only_where_nodes_are_exclusive(node: Node) -> None:
    node.processes = [process(2, 7), process(4, None)]
    node.run(exclusive_nodes=True)
    assert node.killed == [2, 4]
    node.killed.clear()
    node.processes.append(process(3, None)._replace(held=8))  # Slurm's own word of another job
    node.run(exclusive_nodes=True)
    assert node.killed == [2]
    node.killed.clear()
    node.processes.pop()
    node.prolog(SLURM_JOB_ID="8")
    node.run(exclusive_nodes=True)
    assert node.killed == [2]


def test_on_an_exclusive_node_no_process_escapes_by_saying_it_is_of_another_job(
    node: Node,
) -> None:
    node.processes = [process(2, 7), process(3, 1), process(4242, 1)]
    node.gpus = Ran(0, HELD, "")
    node.apps = Ran(0, "GPU-1, 4242, 30000\n", "")
    line = node.run(exclusive_nodes=True, orphans=True)
    assert set(node.killed) == {2, 3, 4242}
    assert (line["killed"], line["killed_on_gpus"]) == (3, 1)
    assert "shm" in line


def test_shared_memory_is_swept_unless_the_user_has_another_job_here(node: Node) -> None:
    assert node.run()["shm"] == {"files": 2, "kib": 8, "in_use": 0}
    node.processes = [process(3, 8)]
    assert "shm_left" in node.run()
    node.processes = []
    node.prolog(SLURM_JOB_ID="8", SLURMD_NODENAME="n2")  # no process yet, but its prolog has run
    assert "shm_left" in node.run()
    assert node.sweeps == 1


def test_shared_memory_stays_if_a_job_of_the_user_starts_while_gpus_are_waited_for(
    node: Node,
) -> None:
    def starts() -> Ran:
        node.prolog(SLURM_JOB_ID="8")
        return Ran(0, EMPTY, "")

    node.answers_gpus = starts
    assert "shm_left" in node.run()
    assert node.sweeps == 0


def test_shared_memory_stays_if_a_job_of_the_user_starts_while_it_is_looked_at(
    node: Node,
) -> None:
    node.meanwhile = lambda: node.prolog(SLURM_JOB_ID="8")
    assert "shm_left" in node.run()
    assert node.sweeps == 1


def test_root_and_services_are_never_touched(node: Node) -> None:
    node.processes = [process(2, 7)]
    line = node.run(min_uid=3000)
    assert (node.killed, node.sweeps) == ([], 0)
    assert "killed" not in line


def test_a_gpu_of_the_job_that_keeps_memory_drains_the_node_with_the_reason(node: Node) -> None:
    node.gpus = Ran(0, HELD, "")
    node.apps = Ran(0, "GPU-1, 4242, 30000\nGPU-2, 4243, 9999\n", "")
    node.processes = [process(4242, None)]
    line = node.run()
    assert node.killed == [4242]
    assert node.drains == [
        "scontrol update nodename=n1 state=drain "
        "reason=fed-epilog: after job 7 GPU 1 holds 30000 MiB (by process 4242)"
    ]
    assert line["gpu_memory_held"] == [{"gpu": 1, "memory_mib": 30000, "pids": [4242]}]


def test_by_default_the_node_stays_and_the_log_says_what_is_wrong(node: Node) -> None:
    del node.settings["gpu_memory"]
    node.gpus = Ran(0, HELD, "")
    assert "GPU 1 holds 30000 MiB (by no process)" in node.run()["troubles"][0]
    assert node.drains == []


def test_a_gpu_that_another_job_has_too_is_that_jobs_to_hold(node: Node) -> None:
    node.prolog(SLURM_JOB_ID="8", SLURM_JOB_UID="2002", SLURM_JOB_GPUS="1")
    node.gpus = Ran(0, HELD, "")
    assert "gpu_memory_held" not in node.run()
    assert node.drains == []


def test_another_jobs_process_on_the_gpu_is_not_killed(node: Node) -> None:
    node.gpus = Ran(0, HELD, "")
    node.apps = Ran(0, "GPU-1, 4242, 30000\nGPU-1, 4243, 30000\n", "")
    node.processes = [process(4242, 8), process(4243, None, uid=2002)]
    node.run()
    assert node.killed == []


@pytest.mark.parametrize("answer", [Ran(None, "", "", "no such file"), Ran(9, "", "failed")])
def test_a_driver_that_says_nothing_drains_nothing(answer: Ran, node: Node) -> None:
    node.gpus = answer
    assert node.run()["gpus_unknown"]
    assert node.drains == []


def test_record_and_mapping_files_go_even_where_the_epilog_is_switched_off(node: Node) -> None:
    node.prolog(SLURM_JOB_ID="8", SLURM_JOB_GPUS="1")
    node.processes = [process(2, 7)]
    node.run(enabled=False)
    assert node.killed == []
    assert [r.job for r in records.of_node("n1", str(node.folder))] == [8]
    assert (node.folder / "map-n1" / "1").read_text() == "8\n"
    assert not (node.folder / "map-n1" / "0").exists()


def test_each_part_is_done_though_another_fails(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("broken")

    for module, name in ((processes, "all_processes"), (shm, "sweep"), (dcgm, "remove")):
        monkeypatch.setattr(module, name, broken)
    line = node.run()
    assert {text.split(":")[0] for text in line["troubles"]} == {"orphans", "shm", "dcgm"}
    assert records.of_node("n1", str(node.folder)) == []


def test_the_jobs_line_says_how_it_used_its_gpus_by_the_watchs_looks(node: Node) -> None:
    tally = None
    for busy in (1.0, 0.5, None):
        tally = summary.added(tally, [Reading(1000.0, busy), None])
    state = {"boot": records.boot_id(), "jobs": {"7": {"tally": tally}}}
    records.replace_json(summary.watch_file(str(node.folder), "n1"), state)
    line = node.run()
    assert line["usage"] == {
        "looks": 3,
        "gpu_busy_mean_frac": 0.75,
        "gpu_busy_most_frac": 1.0,
        "memory_mean_mib": 1000,
        "memory_most_mib": 1000,
    }
    assert (line["job"], line["user"], line["gpus"], line["exit"]) == (7, "ada", [0, 1], "1:0")
    assert line["started_at_s"] == 1.0


def test_a_job_of_the_federation_reports_to_the_spool(node: Node, tmp_path: Path) -> None:
    spool = tmp_path / "usage"
    spool.mkdir()
    node.prolog(SLURM_JOB_COMMENT="fed:4294967296:1 words")
    tally = summary.added(None, [Reading(1000.0, 0.5)])
    state = {"boot": records.boot_id(), "jobs": {"7": {"tally": tally}}}
    records.replace_json(summary.watch_file(str(node.folder), "n1"), state)
    line = node.run(usage_dir=str(spool))
    assert "troubles" not in line
    (file,) = spool.iterdir()
    report = json.loads(file.read_text())
    assert (file.name, report["user"], report["gpus"]) == ("7.n1", "ada", 2)
    assert report["usage"] == line["usage"]


def test_a_spool_that_is_gone_is_trouble_alone(node: Node, tmp_path: Path) -> None:
    tally = summary.added(None, [Reading(1000.0, 0.5)])
    state = {"boot": records.boot_id(), "jobs": {"7": {"tally": tally}}}
    records.replace_json(summary.watch_file(str(node.folder), "n1"), state)
    node.prolog(SLURM_JOB_COMMENT="fed:4294967296:1")
    assert "usage" in node.run(usage_dir=str(tmp_path / "none"))


def test_a_job_without_a_record_has_a_line_without_a_start(node: Node) -> None:
    records.remove("n1", 7, str(node.folder))
    line = node.run()
    assert line["started_at_s"] is None
    assert "usage" not in line


def test_the_reason_fits_into_slurms_field() -> None:
    held = [HeldGpu(k, 80_000, (1_000_000 + k,)) for k in range(8)]
    assert len(drain_reason(held, 4_000_000_000)) == 120


@pytest.mark.parametrize(
    "environ", [{}, ENVIRON | {"SLURM_JOB_ID": "x"}, ENVIRON | {"SLURMD_NODENAME": "../x"}]
)
def test_an_epilog_without_a_jobs_environment_does_nothing_and_passes(
    environ: dict[str, str], tmp_path: Path
) -> None:
    assert epilog.main(environ, str(tmp_path / "node.json")) == 0


def test_the_hook_passes_and_logs_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.json"
    settings = {
        "state_dir": str(tmp_path),
        "log_dir": str(tmp_path / "log"),
        "nvidia_smi": str(tmp_path / "none"),
    }
    file.write_text(json.dumps(settings))
    environ = ENVIRON | {"SLURM_JOB_UID": str(2**31 - os.getpid())}
    assert epilog.main(environ, str(file)) == 0
    assert json.loads((tmp_path / "log" / "jobs.jsonl").read_text())["job"] == 7
