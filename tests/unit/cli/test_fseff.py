"""fseff prints seff's lines, says what was not measured, and what to ask for next time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest

from federator.cli import fseff
from federator.cli.efficiency import advice, efficiency_of
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow, MeasuredUse
from federator.wire.client_protocol import AccountingCall, AccountingReply, Call, ErrorReply
from federator.wire.replies import Reply

ID = 4294967297
USE = MeasuredUse(
    cpu_s=7200.0,
    mem_mib=8192.0,
    task_mem_mib=5000.0,
    alloc_cpus=16.0,
    alloc_mem_mib=65536.0,
    gpu_util_frac=0.25,
    gpu_mem_mib=30000.0,
)


def attempt(use: MeasuredUse | None = USE, number: int = 1, ran_s: int = 3600) -> AccountingAttempt:
    return AccountingAttempt(
        attempt=number,
        site="alpine",
        site_job_id=7,
        nodes=2,
        cpus=16,
        gpus=8,
        mem_mib=65536,
        started_at_s=1000.0,
        ended_at_s=1000.0 + ran_s,
        use=use,
    )


def row(
    last: AccountingAttempt | None,
    *,
    state: str = "COMPLETED",
    earlier: tuple[AccountingAttempt, ...] = (),
    limit_s: float = 86_400.0,
) -> AccountingRow:
    return AccountingRow(
        id=ID,
        name="train",
        user="ada",
        tenant="vision",
        submitted_at_s=900.0,
        state=state,
        time_limit_s=limit_s,
        last=last,
        earlier=earlier,
    )


class Done(NamedTuple):
    """How a command ended, what it printed, and what it asked for."""

    status: int
    out: str
    err: str
    asked: list[Call]


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run fseff against a daemon that answers so."""

    def command(reply: Reply | tuple[AccountingRow, ...], *words: str) -> Done:
        asked: list[Call] = []
        if isinstance(reply, tuple):
            reply = AccountingReply(rows=reply, now_s=9999.0, federation="demo")
        told = reply

        def call(message: Call) -> Reply:
            asked.append(message)
            return told

        monkeypatch.setattr(fseff, "call", call)
        monkeypatch.setattr(sys, "argv", ["fseff", *words])
        with pytest.raises(SystemExit) as ended:
            fseff.main()
        shown = capsys.readouterr()
        return Done(int(ended.value.code or 0), shown.out, shown.err, asked)

    return command


def test_the_lines_are_seffs_and_the_federations(run: Run) -> None:
    done = run((row(attempt()),), str(ID))
    assert done.status == 0
    assert done.out.splitlines() == [
        f"Job ID: {ID}",
        "Cluster: alpine",
        "User/Group: ada/vision",
        "State: COMPLETED (exit code 0)",
        "Nodes: 2",
        "Cores per node: 8",
        "CPU Utilized: 02:00:00",
        "CPU Efficiency: 12.50% of 16:00:00 core-walltime",
        "Job Wall-clock time: 01:00:00",
        "Memory Utilized: 8.00 GB",
        "Memory Efficiency: 12.50% of 64.00 GB (32.00 GB/node)",
        "GPUs: 8",
        "GPU Efficiency: 25.00%",
        "GPU Memory Utilized: 29.30 GB (the most on one GPU)",
        "Next time ask for:",
        "  --time=01:15:00: a shorter job starts sooner",
        "  2 CPUs on a node instead of 8 (-n, -c)",
        "  --mem=5G instead of 32G on a node",
        "  the GPUs were busy 25% of the time: fewer GPUs (--gpus-per-node), or faster input",
    ]
    assert done.asked == [AccountingCall(ids=(str(ID),), attempts=True, use=True)]


def waits(due_at_s: float, use: MeasuredUse | None = None) -> AccountingAttempt:
    return msgspec.structs.replace(attempt(use), use_due_at_s=due_at_s)


def test_it_is_said_why_a_figure_never_comes(run: Run) -> None:
    out = run((row(attempt(MeasuredUse(alloc_cpus=16.0))),), str(ID)).out
    measures_none = "not measured by the Slurm of alpine, or the job was too short\n"
    no_report = "not measured: no node of alpine reported it (node hooks), nor did its Slurm\n"
    assert f"CPU Utilized: {measures_none}" in out
    assert f"Memory Utilized: {measures_none}" in out
    assert f"GPU Efficiency: {no_report}" in out
    assert "CPU Efficiency" not in out
    out = run((row(attempt(MeasuredUse(gpu_util_frac=0.5))),), str(ID)).out
    none = "not measured: alpine has no accounts of this job (sacct)\n"
    assert f"CPU Utilized: {none}" in out
    assert f"Memory Utilized: {none}" in out
    assert "GPU Efficiency: 50.00%\n" in out
    out = run((row(attempt(None)),), str(ID)).out
    assert out.count("not known: alpine has not said\n") == 3


@pytest.mark.parametrize("use", [None, MeasuredUse(alloc_cpus=16.0)])
def test_it_is_said_when_a_site_is_asked_for_what_is_missing(
    run: Run, use: MeasuredUse | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%s")
    for due_at_s, words in ((10_004.0, "at 10004"), (9_990.0, "now"), (9_900.0, "since 9900")):
        out = run((row(waits(due_at_s, use)),), str(ID)).out
        assert out.count(f": not known yet: alpine is asked {words}\n") == 3, due_at_s
        (job,) = json.loads(run((row(waits(due_at_s, use)),), "--json", str(ID)).out)["jobs"]
        assert job["asked_at_s"] == due_at_s


def test_the_last_attempt_that_ran_counts(run: Run) -> None:
    waits = AccountingAttempt(attempt=3, site="boreal")
    job = row(waits, earlier=(attempt(number=1), attempt(number=2, ran_s=60)), state="CANCELLED")
    out = run((job,), str(ID)).out
    assert f"Attempt: 2; fsacct -j {ID} shows the others" in out
    assert "Job Wall-clock time: 00:01:00" in out


@pytest.mark.parametrize("state", ["PENDING", "CANCELLED"])
def test_a_job_that_never_ran_has_none(run: Run, state: str) -> None:
    done = run((row(None, state=state),), str(ID))
    assert f"Efficiency not available for jobs in the {state} state." in done.out


def test_a_running_job_is_judged_at_its_end(run: Run) -> None:
    runs = msgspec.structs.replace(attempt(None), ended_at_s=0.0)
    out = run((row(runs, state="RUNNING"),), str(ID)).out
    assert out.count("not known before its end\n") == 3
    assert "WARNING: Efficiency statistics can only be obtained after the job has ended." in out
    assert "Next time" not in out


def test_an_unknown_job_is_not_found(run: Run) -> None:
    done = run((), str(ID))
    assert (done.status, done.out, done.err) == (2, "", "Job not found.\n")


def test_without_an_id_or_a_daemon_it_says_so(run: Run) -> None:
    assert "give the id of a job" in run(()).err
    done = run(ErrorReply(message="no such job"), "7")
    assert (done.status, done.err) == (1, "fseff: error: no such job\n")


def test_json_has_the_figures_and_the_advice(run: Run) -> None:
    answer = json.loads(run((row(attempt()), row(None)), "--json", f"{ID};demo").out)
    first, second = answer["jobs"]
    assert first["efficiency"]["cpu_frac"] == 0.125
    assert first["efficiency"]["gpu_frac"] == 0.25
    assert len(first["next_time"]) == 4
    assert (second["efficiency"], second["attempt"]) == (None, 0)


@pytest.mark.parametrize(
    ("use", "state", "limit_s", "hints"),
    [
        (MeasuredUse(cpu_s=50_000.0, mem_mib=40_000.0), "COMPLETED", 4000.0, []),
        (MeasuredUse(), "TIMEOUT", 3600.0, ["--time above 01:00:00: it was ended by its limit"]),
        (MeasuredUse(), "OUT_OF_MEMORY", 3600.0, ["--mem=64G: its memory was not enough"]),
        (
            MeasuredUse(mem_mib=65_000.0),
            "FAILED",
            3600.0,
            ["--mem=40G: hardly any memory was left"],
        ),
        (MeasuredUse(), "COMPLETED", float("inf"), []),
    ],
)
def test_advice(use: MeasuredUse, state: str, limit_s: float, hints: list[str]) -> None:
    made = attempt(use)
    job = row(made, state=state, limit_s=limit_s)
    assert list(advice(job, efficiency_of(made, 0.0))) == hints


def test_a_job_of_no_time_has_an_efficiency_of_nothing() -> None:
    found = efficiency_of(attempt(MeasuredUse(cpu_s=0.0), ran_s=0), 0.0)
    assert (found.elapsed_s, found.cpu_frac) == (0, 0.0)


@pytest.mark.parametrize(
    ("mib", "text"),
    [(0.0, "0.00 MB"), (0.25, "256.00 KB"), (1.0, "1.00 MB"), (1536.0, "1.50 GB")],
)
def test_sizes_are_written_as_seff_does(mib: float, text: str) -> None:
    assert fseff.size_text(mib) == text
