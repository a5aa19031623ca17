"""``fsacct --json=slurm`` has the shape that real ``sacct --json`` has since data_parser."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest

from federator.cli import fsacct
from federator.cli.accounting_json import accounts_of
from federator.sim.importers.sacct import SacctDump
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow, MeasuredUse
from federator.wire.client_protocol import AccountingCall, AccountingReply, Call
from federator.wire.replies import Reply
from tests.fakes.json_shape import differences, recorded

ID = 2**32 + 7
USE = MeasuredUse(cpu_s=61.25, user_cpu_s=60.0, system_cpu_s=1.25, mem_mib=2.0)
FIRST = AccountingAttempt(attempt=1, site="boreal", state="PREEMPTED", started_at_s=5.0)
LAST = AccountingAttempt(
    attempt=2,
    site="alpine",
    site_job_id=9,
    partition="gpu",
    node_list="g[1-2]",
    nodes=2,
    cpus=16,
    gpus=8,
    gpu_types="a100=8",
    mem_mib=64_000,
    started_at_s=1000.0,
    ended_at_s=4600.0,
    exit_code=0,
    signal=9,
    use=USE,
)
ROW = AccountingRow(
    id=ID,
    name="train",
    user="ada",
    tenant="vision",
    submitted_at_s=100.0,
    eligible_at_s=100.0,
    over_at_s=4601.0,
    state="CANCELLED",
    cancelled_by="eve",
    priority=3,
    time_limit_s=7200.0,
    asked_nodes=2,
    asked_cpus=16,
    asked_gpus=8,
    asked_mem_mib=64_000,
    comment="mine",
    work_dir="/home/ada",
    last=LAST,
    earlier=(FIRST,),
)
WAITS = AccountingRow(
    id=ID + 1,
    name="sweep",
    user="ada",
    tenant="vision",
    submitted_at_s=100.0,
    array_id=ID + 1,
    array_tasks="[5-99%4]",
)


def answer() -> dict[str, Any]:
    told = accounts_of([WAITS, ROW], 5000.0, "demo")
    found: dict[str, Any] = json.loads(msgspec.json.encode(told))
    return found


@pytest.mark.parametrize("release", ["24.11", "26.05"])
def test_every_field_is_one_of_sacct_s_and_of_its_type(release: str) -> None:
    real = recorded("sacct", release)
    with_steps = next(job for job in real["jobs"] if job["name"] == "steps")
    ours = answer()
    assert differences(ours, real | {"jobs": [with_steps, with_steps]}) == []


def test_sacct_of_the_oldest_generation_has_no_data_parser() -> None:
    """Its ``--json`` has another shape, which nobody is offered."""
    assert "data_parser" not in recorded("sacct", "22.05")["meta"]["plugin"]


def test_a_job_is_told_with_its_attempts_as_steps() -> None:
    job, waits = answer()["jobs"]
    assert (job["job_id"], job["state"]["current"], job["kill_request_user"]) == (
        ID,
        ["CANCELLED"],
        "eve",
    )
    assert (job["cluster"], job["nodes"], job["restart_cnt"]) == ("alpine", "g[1-2]", 1)
    assert (job["time"]["elapsed"], job["time"]["limit"]["number"]) == (3600, 120)
    assert job["time"]["total"] == {"seconds": 61, "microseconds": 250_000}
    assert job["exit_code"]["status"] == ["SUCCESS"], "as of all that sacct calls CANCELLED"
    assert job["required"]["memory_per_node"]["number"] == 32_000
    first, second = job["steps"]
    assert (first["step"], first["state"]) == (
        {"id": f"{ID}.1", "name": "boreal"},
        ["PREEMPTED"],
    )
    assert second["exit_code"]["signal"] == {
        "id": {"set": True, "infinite": False, "number": 9},
        "name": "KILL",
    }
    assert second["nodes"]["list"] == ["g1", "g2"]
    assert [each["count"] for each in second["tres"]["consumed"]["total"]] == [61_250, 2**21]
    assert (waits["array"]["task"], waits["array"]["job_id"]) == ("5-99%4", ID + 1)
    assert (waits["nodes"], waits["steps"], waits["cluster"]) == ("None assigned", [], "demo")
    assert waits["time"]["limit"]["infinite"]


def test_a_program_that_reads_sacct_reads_it() -> None:
    dump = msgspec.convert(answer(), SacctDump)
    assert [job.job_id for job in dump.jobs] == [ID, ID + 1]
    assert {tres.name: tres.count for tres in dump.jobs[0].tres.allocated if tres.name} == {
        "gpu": 8,
        "gpu:a100": 8,
    }


@pytest.mark.parametrize("form", ["slurm", "v0.0.42"])
def test_fsacct_prints_it(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Call] = []

    def call(message: Call) -> Reply:
        asked.append(message)
        return AccountingReply(rows=(ROW,), now_s=5000.0, federation="demo")

    monkeypatch.setattr(fsacct, "call", call)
    monkeypatch.setattr(sys, "argv", ["fsacct", f"--json={form}"])
    with pytest.raises(SystemExit):
        fsacct.main()
    assert json.loads(capsys.readouterr().out)["jobs"][0]["job_id"] == ID
    (question,) = asked
    assert isinstance(question, AccountingCall)
    assert question.attempts
    assert question.use


def test_another_form_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fsacct", "--json=xml"])
    with pytest.raises(SystemExit):
        fsacct.main()
    assert capsys.readouterr().err == "fsacct: error: --json=xml: give no value, or slurm\n"
