"""A job's record beside what real scontrols printed (``tests/data/scontrol_job``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from federator.cli.job_record import job_record
from federator.cli.queue_columns import Shown
from federator.model.reason import Reason, ReasonCode
from federator.wire.client_protocol import QueueRow
from federator.wire.queue_rows import JobDetails

RECORDED = Path("tests/data/scontrol_job")
GENERATIONS = ("22.05", "24.11", "26.05")
_NAME = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z_/:]*)=")
OWN = {"Site", "SiteJobId", "GPUs", "Project"}
UNKNOWN = {  # to the federation, or to some of the generations alone
    "AllocNode:Sid",
    "Exclusive",
    "LastSchedEval",
    "LicensesAlloc",
    "MailType",
    "MailUser",
    "Power",
    "PreemptEligibleTime",
    "PreemptTime",
    "Scheduler",
    "SecsPreSuspend",
    "SubmitLine",
    "SuspendTime",
    "TRES",
}
OPTIONS = {
    "comment": "a b",
    "contiguous": "",
    "cpus-per-task": "2",
    "exclude": "boreal-g3",
    "gpus-per-node": "1",
    "qos": "normal",
    "switches": "1@5:00",
    "time-min": "10",
    "tmp": "10",
}
OPTS = QueueRow(
    id=27,
    name="opts",
    user="vision1",
    tenant="vision",
    priority=0,
    state="INELIGIBLE",
    attempt=0,
    submitted_at_s=1.0,
    time_limit_s=1_200.0,
    nodes=2,
    gpus=2,
    reason=Reason(code=ReasonCode.USER_HOLD),
    details=JobDetails(
        partitions=("local",),
        cpus=8,
        mem_mib=4_096,
        tasks=4,
        min_cpus=4,
        min_mem_mib=2_048,
        exclusive=True,
        requeue=False,
        nice=7,
        options=OPTIONS,
    ),
    work_dir="/home/vision1/work",
    command="/home/vision1/work/ok.sh",
    stdin="/home/vision1/work/in.txt",
    stdout="/home/vision1/work/o-27.out",
    stderr="/home/vision1/work/e-27.err",
)
"""The job that the generations call ``opts``."""
RARE = {
    "cpus-per-gpu": "2",
    "gpus": "4",
    "gpus-per-task": "1",
    "mem-per-gpu": "1G",
    "tres-bind": "gres/gpu:per_task:1",
}


def names(lines: list[str]) -> list[str]:
    shown = (line.partition("SubmitLine=")[0] or "SubmitLine=" for line in lines)
    return [name for line in shown for name in _NAME.findall(line)]


def printed(row: QueueRow) -> list[str]:
    return [" ".join(f"{k}={v}" for k, v in line) for line in job_record(Shown(row, 9.0))]


def recorded(generation: str) -> Iterator[list[str]]:
    for record in (RECORDED / f"{generation}.txt").read_text().split("\n\n"):
        yield [line.strip() for line in record.splitlines()]


def rows() -> Iterator[QueueRow]:
    """Together they have every field."""
    details = OPTS.details
    assert details is not None
    yield OPTS
    yield structs.replace(OPTS, array_id=20, array_tasks="[1-9%2]")
    yield structs.replace(OPTS, site="alpine", node_names=("n1", "n2"), state="RUNNING", jobs=2)
    for memory in ("cpu", "gpu"):
        options = OPTIONS | RARE | {"wckey": "w", "reservation": "r"}
        own = structs.replace(details, min_mem_of=memory, options=options)
        yield structs.replace(OPTS, details=own)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_fields_have_scontrols_names_and_order(generation: str) -> None:
    records = list(recorded(generation))
    assert len(records) >= 7
    for ours in map(names, map(printed, rows())):
        for theirs in map(names, records):
            assert [name for name in ours if name in theirs] == [
                name for name in theirs if name in ours
            ]


def test_nothing_else_is_missing() -> None:
    theirs = {n for g in GENERATIONS for record in recorded(g) for n in names(record)}
    ours = {name for row in rows() for name in names(printed(row))}
    assert theirs - ours == UNKNOWN
    assert ours - theirs == OWN | {"WCKey", "Reservation", "TresPerJob"}


def test_a_job_with_many_options_reads_as_at_slurm() -> None:
    (theirs,) = (record for record in recorded("24.11") if "JobName=opts" in record[0])
    differ = ("JobId=", "UserId=", "SubmitTime=", "StartTime=", "SuspendTime=", "MailUser=")
    theirs = [line for line in theirs if not line.startswith((*differ, "TresPerTask"))]
    shown = [line for line in printed(OPTS) if not line.startswith((*differ, "Site="))]
    theirs = [line.partition(" AllocNode:Sid=")[0] for line in theirs]
    assert shown == [line.replace("NumNodes=2-2", "NumNodes=2") for line in theirs]


def test_what_waits_for_its_time_starts_then() -> None:
    details = structs.replace(OPTS.details or JobDetails(), begin_at_s=3_600.0, deadline_at_s=9e4)
    waits = structs.replace(OPTS, state="INELIGIBLE", details=details)
    text = "\n".join(printed(waits))
    begin = re.search("EligibleTime=(.*)", text)
    assert begin is not None
    assert "1970-01-01" in begin[1]
    assert f"StartTime={begin[1]} EndTime=1970" in text
    assert "AccrueTime=Unknown" in text
    assert "Deadline=N/A" not in text


def test_values_of_a_later_release_are_shown_as_they_are() -> None:
    options = {"tmp": "1Q", "switches": "some", "time-min": "soon"}
    details = structs.replace(OPTS.details or JobDetails(), options=options)
    text = "\n".join(printed(structs.replace(OPTS, details=details)))
    assert "MinTmpDiskNode=1Q" in text
    assert "Switches=some" in text
    assert "TimeMin=soon" in text


def test_a_script_of_wrap_has_no_path() -> None:
    assert "Command=(null)" in printed(structs.replace(OPTS, command=""))
