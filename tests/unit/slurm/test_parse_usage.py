"""What jobs used, as sacct of three real Slurms tells it (tests/data/usage/record.sh).

No machine of the recordings measures memory or GPUs: lines with these are written as clusters that
do have published them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from federator.model.workload import AttemptId, WorkloadId
from federator.slurm.client import SlurmClient
from federator.slurm.parse_usage import USAGE_FIELDS, measured
from federator.slurm.runner import Completed
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob

RECORDED = Path(__file__).parents[2] / "data" / "usage"
RELEASES = sorted(path.name for path in RECORDED.iterdir() if path.is_dir())
MEASURED = """\
7|ann|1000||12:00.500|11:59.500|00:01.000||billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=16G,node=2||1900
7.batch||1000|1|02:00.250|01:59.750|00:00.500|327556K|cpu=8,gres/gpu=2,mem=16G,node=2|cpu=00:02:00,energy=0,fs/disk=81960071,gres/gpumem=0,gres/gpuutil=0,mem=327556K,pages=0,vmem=322932K|1900
7.extern||1000|1|00:00:00|00:00:00|00:00:00|1024K|cpu=8,mem=16G,node=2|cpu=00:00:00,energy=0,gres/gpumem=0,gres/gpuutil=0,mem=1024K|1900
7.0||1000|2|10:00.250|09:59.750|00:00.500|5G|cpu=8,gres/gpu=2,mem=16G,node=2|cpu=00:10:00,energy=0,gres/gpumem=38888M,gres/gpuutil=150,mem=8388608K,pages=1.50K,vmem=0|1900
"""


def job(id_: int, user: str, started_at_s: float) -> EndedJob:
    attempt = AttemptId(workload=WorkloadId(2**32 + id_), attempt=1)
    return EndedJob(attempt=attempt, user=user, site_job_id=id_, started_at_s=started_at_s)


def told(release: str, gather: str) -> str:
    return (RECORDED / release / f"{gather}.txt").read_text(encoding="ascii")


def jobs_of(output: str) -> dict[int, EndedJob]:
    """The recorded jobs as the federation knows them."""
    lines = [line.split("|") for line in output.splitlines()]
    return {
        int(id_.partition("+")[0]): job(int(id_.partition("+")[0]), user, float(start))
        for id_, user, start, *_, end in lines
        if user and start.isdecimal() and end.isdecimal()
    }


def test_all_three_generations_are_recorded() -> None:
    assert RELEASES == ["22.05", "24.11", "26.05"]


@pytest.mark.parametrize("release", RELEASES)
def test_real_records_tell_the_cpu_time(release: str) -> None:
    output = told(release, "linux")
    jobs = jobs_of(output)
    found = dict(zip(jobs, measured(output, list(jobs.values())), strict=True))
    busy, large, steps, nodes, het = (found[id_] for id_ in (1, 2, 3, 4, 5))
    assert busy is not None
    assert 0.1 < (busy.cpu_s or 0) < 5.0
    assert (busy.user_cpu_s or 0) + (busy.system_cpu_s or 0) == pytest.approx(busy.cpu_s, abs=0.01)
    assert (busy.alloc_cpus, busy.alloc_mem_mib) == (2.0, 300.0)
    assert large is not None
    assert (large.mem_mib, large.gpu_util_frac) == (None, None)  # nobody measured them
    assert steps is not None
    assert (steps.cpu_s or 0) > 0.3  # of all its steps
    assert nodes is not None
    assert nodes.alloc_mem_mib == 200.0
    assert het is not None
    assert het.alloc_cpus == 4.0  # of both components


@pytest.mark.parametrize("release", RELEASES)
def test_a_site_that_measures_nothing_says_nothing(release: str) -> None:
    output = told(release, "none")
    jobs = jobs_of(output)
    found = measured(output, list(jobs.values()))
    assert len(found) > 5
    for use in found:
        assert use is not None
        assert (use.cpu_s, use.user_cpu_s, use.mem_mib, use.gpu_util_frac) == (None,) * 4
        assert use.alloc_cpus


def test_memory_is_that_of_the_largest_step_and_gpus_are_averaged() -> None:
    assert measured(MEASURED, [job(7, "ann", 1000.0)]) == [
        MeasuredUse(
            cpu_s=720.5,
            user_cpu_s=719.5,
            system_cpu_s=1.0,
            mem_mib=8192.0,
            task_mem_mib=5120.0,
            alloc_cpus=8.0,
            alloc_mem_mib=16384.0,
            gpu_util_frac=0.75,
            gpu_mem_mib=38888.0,
            accounts_end_at_s=1900.0,
        )
    ]


def test_of_a_job_that_was_requeued_each_run_has_its_own_records() -> None:
    """As sacct -D shows them: the run that a dead node ended, then the one that was withdrawn."""
    again = MEASURED.replace("|1900\n", "|2500\n").replace("|1000|", "|2000|")
    put_back = "7|ann|Unknown||00:00:00|00:00:00|00:00:00||billing=8,cpu=8||2600\n"
    for shown in (MEASURED + again + put_back, put_back + again + MEASURED):
        first, second = measured(shown, [job(7, "ann", 1001.0), job(7, "ann", 2000.0)])
        assert first is not None
        assert second is not None
        assert (first.accounts_end_at_s, second.accounts_end_at_s) == (1900.0, 2500.0)
        assert (first.cpu_s, second.cpu_s) == (720.5, 720.5)
    assert measured(put_back, [job(7, "ann", 1000.0)]) == [None]
    whole = msgspec.structs.replace(job(7, "ann", 1000.0), ended_at_s=2501.0)  # one attempt of two
    (use,) = measured(MEASURED + again + put_back, [whole])
    assert use is not None
    assert use.accounts_end_at_s == 2500.0


@pytest.mark.parametrize(
    "other", [job(8, "ann", 1000.0), job(7, "bob", 1000.0), job(7, "ann", 5000.0)]
)
def test_the_record_of_another_job_counts_for_none(other: EndedJob) -> None:
    """A site that lost its state has given the number to another."""
    assert measured(MEASURED, [other, job(7, "ann", 1060.0)])[0] is None


def test_before_slurmdbd_has_the_end_nothing_is_known() -> None:
    """The last of its steps may be to come; a job that runs has an end that is ``Unknown``."""
    living = MEASURED.replace("node=2||1900", "node=2||Unknown")
    assert living != MEASURED
    assert measured(living, [job(7, "ann", 1000.0)]) == [None]


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_still_runs_has_no_end_in_real_records(release: str) -> None:
    output = told(release, "linux")
    running = [line.split("|") for line in output.splitlines() if line.endswith("|Unknown")]
    ((id_, user, start, *_),) = [
        record for record in running if record[1] and record[2].isdecimal()
    ]
    assert measured(output, [job(int(id_), user, float(start))]) == [None]


def test_lines_that_are_no_records_are_passed_over() -> None:
    assert measured("sacct: warning\n\n7|ann\n" + MEASURED, [job(7, "ann", 1000.0)])[0] is not None
    assert measured("", [job(7, "ann", 1000.0)]) == [None]


class Sacct:
    """A runner of sacct that counts what it is asked."""

    def __init__(self, output: bytes, status: int = 0, said: bytes = b"sacct: down") -> None:
        self.output, self.status, self.said = output, status, said
        self.asked: list[Sequence[str]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",  # noqa: ARG002
        timeout_s: float,  # noqa: ARG002
        env: Mapping[str, str],  # noqa: ARG002
    ) -> Completed:
        self.asked.append(argv)
        return Completed(exit_status=self.status, stdout=self.output, stderr=self.said)


def test_many_jobs_are_asked_about_together() -> None:
    sacct = Sacct(MEASURED.encode())
    jobs = [job(7 + k, "ann", 1000.0) for k in range(300)]
    found = asyncio.run(SlurmClient(sacct).accounts.use_of(jobs))
    assert len(found) == 300
    assert found[0] is not None
    assert not any(found[1:])
    assert [argv[argv.index("-j") + 1].count(",") for argv in sacct.asked] == [199, 99]
    assert sacct.asked[0][-1] == ",".join(USAGE_FIELDS)


def test_accounts_that_cannot_be_asked_know_nothing_yet() -> None:
    assert asyncio.run(SlurmClient(Sacct(b"", 1)).accounts.use_of([job(7, "ann", 1000.0)])) == [
        None
    ]


def test_of_a_site_that_keeps_no_accounts_all_is_known() -> None:
    """All three generations say so, and exit with 1; nobody is to wait for it."""
    sacct = Sacct(b"", 1, b"Slurm accounting storage is disabled\n")
    found = asyncio.run(SlurmClient(sacct).accounts.use_of([job(7, "ann", 1000.0)]))
    assert found == [MeasuredUse()]
