"""What nodes leave in the spool about the use of GPUs comes home, if it may be believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from fednode import records, use_report

from federator.agent import node_usage
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob

USAGE: dict[str, object] = {"looks": 3, "gpu_busy_mean_frac": 0.5, "memory_most_mib": 30_000}
NOW_S = 2000.0


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "usage").mkdir()
    return tmp_path


def record(node: str, gpus: int = 8, job: int = 7, comment: str = "fed:4294967296:1", het: int = 0):  # type: ignore[no-untyped-def]
    return records.JobRecord(
        job=job,
        node=node,
        user="ada",
        uid=2001,
        gpus=tuple(range(gpus)),
        comment=comment,
        partition="fed",
        nodes="g[1-2]",
        het_job=het,
        started_at_s=1000.0,
        boot="x",
    )


def ended(
    id_: int = 7, user: str = "ada", started_at_s: float = 1000.0, ended_at_s: float = 0.0
) -> EndedJob:
    attempt = AttemptId(workload=WorkloadId(2**32 + id_), attempt=1)
    return EndedJob(
        attempt=attempt,
        user=user,
        site_job_id=id_,
        started_at_s=started_at_s,
        ended_at_s=ended_at_s,
    )


def report(spool: Path, node: str, usage: dict[str, object] = USAGE, **more: object) -> None:
    use_report.report(str(spool / "usage"), record(node, **more), usage, NOW_S)  # type: ignore[arg-type]


def test_the_reports_of_all_nodes_are_averaged_by_their_gpus(spool: Path) -> None:
    report(spool, "g1", gpus=6)
    report(spool, "g2", USAGE | {"gpu_busy_mean_frac": 0.9, "memory_most_mib": 40_000}, gpus=2)
    report(spool, "c1", {"gpu_busy_mean_frac": None, "memory_most_mib": None}, gpus=0)
    assert node_usage.read(spool, [ended(), ended(8)]) == {
        ended().attempt: MeasuredUse(gpu_util_frac=pytest.approx(0.6), gpu_mem_mib=40_000.0)  # type: ignore[arg-type]
    }


def test_swings_of_nodes_are_joined_and_those_of_an_older_hook_lack_them(spool: Path) -> None:
    busy: dict[str, object] = {
        "gpu_busy_mean_frac": 0.5,
        "gpu_power_mean_frac": 0.4,
        "memory_total_mib": 81_559,
    }
    swings: dict[str, object] = {
        "swing_looks": 90,
        "gpu_busy_spread_frac": 0.4,
        "gpu_low_frac": 0.5,
    }
    more: dict[str, object] = {"gpu_high_frac": 0.4, "gpu_falls": 20, "gpu_low_longest_frac": 0.1}
    report(spool, "g1", busy | swings | more, gpus=4)
    report(spool, "g2", busy | swings | more | {"gpu_falls": 30, "gpu_low_frac": 0.3}, gpus=4)
    report(spool, "g3", USAGE, gpus=8)
    assert node_usage.read(spool, [ended()])[ended().attempt] == MeasuredUse(
        gpu_util_frac=0.5,
        gpu_mem_mib=30_000.0,
        gpu_total_mib=81_559.0,
        gpu_power_frac=0.4,
        gpu_looks=90.0,
        gpu_spread_frac=0.4,
        gpu_low_frac=0.4,
        gpu_high_frac=0.4,
        gpu_falls=30.0,
        gpu_longest_low_frac=0.1,
    )


@pytest.mark.parametrize("figure", [-0.1, 1e300])
def test_a_report_with_figures_that_make_no_sense_does_not_count(
    spool: Path, figure: float
) -> None:
    report(spool, "g1", USAGE | {"gpu_falls": figure})
    assert node_usage.read(spool, [ended()]) == {ended().attempt: MeasuredUse()}


@pytest.mark.parametrize("gpus", [-1, node_usage.MOST_GPUS + 1, 10**400, 10**18])
def test_a_report_of_gpus_that_no_node_has_does_not_count(spool: Path, gpus: int) -> None:
    report(spool, "g1")
    text = json.dumps({"user": "ada", "gpus": gpus, "at_s": NOW_S, "usage": {}})
    (spool / "usage" / "7.g2").write_text(text.replace("{}", '{"gpu_busy_mean_frac": 1.0}'))
    ((_, use),) = node_usage.read(spool, [ended()]).items()
    assert use.gpu_util_frac == 0.5


def test_components_of_a_het_job_report_under_their_leader(spool: Path) -> None:
    report(spool, "g1", job=8, het=7)
    assert set(node_usage.read(spool, [ended(7)])) == {ended(7).attempt}


def test_a_job_that_is_not_the_federations_reports_nothing(spool: Path) -> None:
    report(spool, "g1", comment="mine")
    assert list((spool / "usage").iterdir()) == []


@pytest.mark.parametrize(
    "job",
    [
        ended(user="bob"),
        ended(started_at_s=9000.0),
        ended(
            started_at_s=-9000.0, ended_at_s=-8000.0
        ),  # an older one, which was not asked in time
    ],
)
def test_a_report_of_another_job_of_that_number_does_not_count(spool: Path, job: EndedJob) -> None:
    report(spool, "g1")
    assert node_usage.read(spool, [job]) == {}


def test_of_two_jobs_of_one_number_the_report_is_the_later_ones_alone(spool: Path) -> None:
    """Its slurmctld was restored from a backup, and gave the id to the same user again."""
    report(spool, "g1")  # at 2,000 s
    first = msgspec.structs.replace(ended(started_at_s=100.0), ended_at_s=900.0)
    again = msgspec.structs.replace(ended(started_at_s=1500.0), ended_at_s=1990.0)
    assert node_usage.read(spool, [first]) == {}
    assert set(node_usage.read(spool, [again])) == {again.attempt}


@pytest.mark.parametrize("text", ["", "{}", "nonsense", "[1]", '{"user": 1}', "x" * 9000])
def test_what_is_no_report_is_passed_over(spool: Path, text: str) -> None:
    (spool / "usage" / "7.g1").write_text(text)
    os.mkfifo(spool / "usage" / "7.g2")
    (spool / "usage" / "7.g3").symlink_to("/etc/passwd")
    (spool / "usage" / "7.g4").mkdir()
    assert node_usage.read(spool, [ended()]) == {}


def test_a_users_own_file_does_not_count(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report(spool, "g1")
    os.chown(spool / "usage" / "7.g1", 2001, 2001)
    assert node_usage.read(spool, [ended()]) == {}


def test_what_was_told_and_what_is_old_is_removed(spool: Path) -> None:
    for id_ in (7, 8, 9):
        report(spool, "g1", job=id_)
    (spool / "usage" / ".9.g2.77").write_text(json.dumps({}))
    for name in ("9.g1", ".9.g2.77"):
        os.utime(spool / "usage" / name, (NOW_S, NOW_S))
    node_usage.remove(spool, [ended()], NOW_S + node_usage.KEPT_S + 1)
    assert [path.name for path in (spool / "usage").iterdir()] == ["8.g1"]


def test_the_report_of_another_job_of_that_number_stays(spool: Path) -> None:
    report(spool, "g1")  # at 2,000 s
    earlier = ended(started_at_s=100.0, ended_at_s=900.0)
    node_usage.remove(spool, [earlier], NOW_S)
    assert [path.name for path in (spool / "usage").iterdir()] == ["7.g1"]


def test_a_report_in_the_time_of_two_is_that_of_the_one_that_ended_next_to_it(
    spool: Path,
) -> None:
    report(spool, "g1")  # at 2,000 s
    attempt = AttemptId(workload=WorkloadId(2**33), attempt=1)
    first = ended(started_at_s=100.0, ended_at_s=1600.0)
    later = msgspec.structs.replace(ended(started_at_s=1700.0, ended_at_s=1990.0), attempt=attempt)
    for jobs in ([first, later], [later, first]):
        assert set(node_usage.read(spool, jobs)) == {attempt}
