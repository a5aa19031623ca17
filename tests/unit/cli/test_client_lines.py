"""Command lines that workflow clients run, word for word, and how they read the answers.

From the sources of snakemake-executor-plugin-slurm, Nextflow, Parsl, PSI/J, Toil, Cromwell,
simple_slurm, Open OnDemand (ood_core), batchspawner, mlflow-slurm, Prefect, Airflow, Dagster and
nvidia-resiliency-ext, as of 2025 and 2026.
"""

from __future__ import annotations

import csv
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

import pytest

from federator.cli import client, fscancel, fsinfo, fsqueue, node_table
from federator.cli.text import my_name
from federator.errors import SiteUnavailable
from federator.model.reason import Reason, ReasonCode
from federator.wire.client_protocol import (
    Call,
    CancelCall,
    CancelReply,
    ErrorKind,
    ErrorReply,
    NodesReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SiteNodesRow,
)
from federator.wire.node_rows import NodeRow, PartitionRow, SiteNodes, packed_nodes
from federator.wire.queue_rows import JobDetails
from federator.wire.replies import Reply

ID, WAITING = 7387947728902, 7387947728903
OOD_ASKS = (
    "Account JobID BatchHost MinCpus NumCPUs MinTmpDisk NumNodes EndTime Dependency Feature "
    "ArrayJobID GroupName GroupID OverSubscribe Sockets JobArrayID Cores Name Threads Comment "
    "ArrayTaskID TimeLimit TimeLeft MinMemory TimeUsed ReqNodes NodeList Command Contiguous QOS "
    "Partition PriorityLong Reason StartTime StateCompact State UserName UserID Reservation "
    "SubmitTime WCKey Licenses ExcNodes CoreSpec Nice SchedNodes SCT WorkDir tres-alloc "
    "tres-per-node"
)
OOD_FIELDS = tuple(OOD_ASKS.split())
SEPARATOR = "\x1f"
ROWS = tuple(
    QueueRow(
        id=id_,
        name="train",
        user=my_name(),
        tenant="vision",
        priority=2,
        state=state,
        attempt=1,
        submitted_at_s=1000.0,
        started_at_s=0.0 if state == "PENDING" else 2000.0,
        time_limit_s=3600.0,
        nodes=2,
        gpus=16,
        site="alpine",
        node_names=() if state == "PENDING" else ("n1", "n2"),
        reason=Reason(code=ReasonCode.NOT_TRIED) if state == "PENDING" else None,
        details=JobDetails(partitions=("gpu",), cpus=16, options={"gres": "gpu:8"}),
        work_dir="/home/ada",
    )
    for id_, state in ((ID, "RUNNING"), (WAITING, "PENDING"))
)
LISTED = NodesReply(
    sites=tuple(
        SiteNodesRow(
            site=site,
            nodes=packed_nodes(
                SiteNodes(
                    at_s=0.0,
                    nodes=(
                        NodeRow(
                            name=f"{site}-g1",
                            state="idle",
                            partitions=("gpu",),
                            cpus=64,
                            mem_mib=512_000,
                            gpu_type="a100",
                            gpus=8,
                        ),
                    ),
                    partitions=(PartitionRow(name="gpu"),),
                )
            ),
        )
        for site in ("alpine", "cedar")
    )
)
Lines = Callable[[str], list[str]]


@pytest.fixture
def asked() -> list[Call]:
    """What the command asked for."""
    return []


@pytest.fixture
def lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list[Call]
) -> Lines:
    """Run a command line with the names of ours, and return the lines that it prints."""

    def call(message: Call) -> Reply:
        asked.append(message)
        if isinstance(message, QueueCall):
            return QueueReply(rows=ROWS, now_s=5600.0, selects=True)
        if isinstance(message, CancelCall):
            return CancelReply(ids=tuple(map(int, message.ids)))
        return LISTED

    for module in (client, fsqueue, node_table):
        monkeypatch.setattr(module, "call", call)
    programs: dict[str, Any] = {"squeue": fsqueue, "scancel": fscancel, "sinfo": fsinfo}

    def run(line: str) -> list[str]:
        words = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [f"f{words[0]}", *words[1:]])
        with pytest.raises(SystemExit) as ended:
            programs[words[0]].main()
        told = capsys.readouterr()
        assert (ended.value.code, told.err) == (0, "")
        printed: list[str] = told.out.split("\n")[:-1]
        return printed

    return run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # snakemake
        ("squeue --format='%i|%T' --states=all --noheader --name UUID", []),
        (
            "squeue --format='%i|%T' --states=all --noheader --name train",
            [f"{ID}|RUNNING", f"{WAITING}|PENDING"],
        ),
        # Nextflow
        ("squeue --noheader -o '%i %t' -t all -p gpu", [f"{ID} R", f"{WAITING} PD"]),
        ("squeue --noheader -o '%i %t' -t all --only-job-state", [f"{ID} R", f"{WAITING} PD"]),
        # Parsl
        (
            f"squeue --noheader --format='%i %t' --job '{ID},{WAITING}'",
            [f"{ID} R", f"{WAITING} PD"],
        ),
        # PSI/J
        ("squeue --me -o %i -h -r -t all", [str(ID), str(WAITING)]),
        # Toil
        ("squeue -h --format '%i %t %M'", [f"{ID} R 1:00:00", f"{WAITING} PD 0:00"]),
        # batchspawner
        (f"squeue -h -j {ID} -o '%T %B'", ["RUNNING n1", "PENDING n/a"]),
        # MLflow reads the second line
        (f"squeue --state=all --job={ID} -o%A,%t", ["JOBID,ST", f"{ID},R", f"{WAITING},PD"]),
        # Airflow
        (
            "squeue --states=all -h '--format=%i;%j;%t;%T;%r'",
            [f"{ID};train;R;RUNNING;None", f"{WAITING};train;PD;PENDING;FedNotTried"],
        ),
        # Dagster
        (f"squeue -h -j {ID} -o '%T'", ["RUNNING", "PENDING"]),
        # nvidia-resiliency-ext
        (
            "squeue -o '%i|%j|%u|%P|%T' --noheader",
            [f"{ID}|train|{my_name()}|gpu|RUNNING", f"{WAITING}|train|{my_name()}|gpu|PENDING"],
        ),
        ("sinfo --noheader -o %P", ["gpu"]),
        # Toil
        ("sinfo -a -h -o '%P %G %l %p %c %m'", ["gpu gpu:a100:8 infinite 1 64 512000"]),
        # Open OnDemand
        ("sinfo -aho %F/%C", ["0/2/0/2/0/128/0/128"]),
    ],
)
def test_clients_read_what_they_expect(lines: Lines, line: str, expected: list[str]) -> None:
    assert lines(line) == expected


def test_psij_reads_three_words_of_each_line(lines: Lines) -> None:
    header, *rows = lines("squeue -O JobArrayID,StateCompact,Reason -t all --me")
    assert header.split() == ["JOBID", "ST", "REASON"]
    assert [row.split() for row in rows] == [
        [str(ID), "R", "None"],
        [str(WAITING), "PD", "FedNotTried"],
    ]


def test_prefect_reads_the_state_first(lines: Lines) -> None:
    first = lines(f"squeue --job={ID} --noheader --state=all --Format=State,exit_code")[0]
    assert first.split() == ["RUNNING", "0:0"]


def test_simple_slurm_reads_the_table_as_csv(lines: Lines) -> None:
    form = '"%i","%j","%t","%M","%L","%D","%C","%m","%b","%R"'
    header, *rows = csv.reader(lines(f"squeue --me -o '{form}'"))
    assert header == [
        "JOBID",
        "NAME",
        "ST",
        "TIME",
        "TIME_LEFT",
        "NODES",
        "CPUS",
        "MIN_MEMORY",
        "TRES_PER_NODE",
        "NODELIST(REASON)",
    ]
    assert rows[0][0:3] + rows[0][-2:] == [str(ID), "train", "R", "gres/gpu:8", "n[1-2]"]
    assert all(len(row) == len(header) for row in rows)


def test_open_ondemand_reads_fifty_fields(lines: Lines) -> None:
    form = ",".join(f"{name}:{SEPARATOR}" for name in OOD_FIELDS) + ","
    printed = lines(f"squeue --all --states=all --noconvert -O '{form}'")
    text = "\n".join(printed) + "\n"
    _, _, rest = text.partition(f"{SEPARATOR}\n")  # as it skips the header
    records = [record.split(SEPARATOR) for record in rest.split(f"{SEPARATOR}\n") if record]
    assert [len(record) for record in records] == [len(OOD_FIELDS)] * 2
    job = dict(zip(OOD_FIELDS, records[0], strict=True))
    assert (job["JobID"], job["StateCompact"], job["NodeList"]) == (str(ID), "R", "n[1-2]")
    assert job["WorkDir"] == "/home/ada"


def test_open_ondemand_reads_nodes(lines: Lines) -> None:
    (first, _) = lines("sinfo -ahNO nodehost:100,gres:512,gresused:512,statelong")
    assert first[:100].rstrip() == "alpine-g1"
    assert first[100:612].rstrip() == "gpu:a100:8"
    assert first[612:1124].rstrip() == "gpu:a100:0"
    assert first[1124:].rstrip() == "idle"
    assert lines("sinfo -ho '\x1e%c\x1f%n\x1f%f'")[0] == "\x1e64\x1falpine-g1\x1f(null)"


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        (f"scancel {ID} {WAITING}", (str(ID), str(WAITING))),  # Nextflow, snakemake
        (f"scancel {ID} --clusters=all", (str(ID), str(WAITING))),  # snakemake: as answered
        (f"scancel -Q {ID}", (str(ID),)),  # PSI/J
        (f"scancel {ID} --signal=SIGKILL", (str(ID),)),  # Prefect
        (f"scancel --signal=KILL {ID}", (str(ID),)),  # simple_slurm
        ("scancel --state=PENDING --name=train", (str(WAITING),)),  # nvidia-resiliency-ext
    ],
)
def test_clients_cancel_what_they_mean(
    lines: Lines, asked: list[Call], line: str, ids: tuple[str, ...]
) -> None:
    lines(line)
    cancels = [call for call in asked if isinstance(call, CancelCall)]
    assert [call.ids for call in cancels] == [ids]


@pytest.mark.parametrize("how", ["away", "standby"])
def test_clients_try_again_while_the_daemon_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """As batchspawner reads it: any other text means that the job is gone."""

    def call(_: Call) -> Reply:
        if how == "away":
            raise SiteUnavailable("the agent is away")
        return ErrorReply(message="this daemon is a standby", kind=ErrorKind.UNAVAILABLE)

    monkeypatch.setattr(fsqueue, "call", call)
    monkeypatch.setattr(sys, "argv", ["fsqueue", "-h", "-j", str(ID), "-o", "%T %B"])
    with pytest.raises(SystemExit) as ended:
        fsqueue.main()
    said = capsys.readouterr().err
    assert ended.value.code == 1
    again = "(Socket timed out on send/recv|Unable to contact slurm controller)"
    assert re.match(f"slurm_load_jobs error: {again}", said)
    assert said.count("\n") == 1
    assert "away" in said or "standby" in said
