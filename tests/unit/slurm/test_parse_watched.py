"""A watched queue is read from the same command with more fields, as safely as without."""

from __future__ import annotations

from math import inf

import pytest

from federator.agent.base import KnownJobs, Launched
from federator.model.local_record import UNKNOWN_GPUS, LocalRecord
from federator.model.site import Node, SiteJob
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm.local_records import ArrayStay, local_records
from federator.slurm.parse_jobs import parse_jobs
from federator.slurm.parse_watched import watch_format
from tests.unit.slurm.texts import squeue_record

CPUS = "cpu=2,node=2,billing=2"


def watched(
    *behind: str,
    eligible: str = "1795210722",
    limit: str = "1:00:00",
    nodes: str = "2",
    tasks: str = "4",
    held: str = CPUS,
    **fields: str,
) -> bytes:
    """A record by WATCHED_FORMAT, as Slurm pads and cuts it."""
    before = "".join(f"{value}|" for value in (eligible, limit, nodes, tasks, held))
    asked = (*behind, *("N/A",) * (4 - len(behind)))
    tail = b"".join(text.encode()[:64].ljust(64) for text in asked)
    return before.encode() + squeue_record(**fields)[:-1] + tail + b"\n"


def record_of(output: bytes) -> LocalRecord:
    (job,) = parse_jobs(output, watched=True).records
    assert job.local is not None
    return job.local


def test_the_ordinary_fields_are_as_without_watching() -> None:
    (plain,) = parse_jobs(squeue_record()).records
    (job,) = parse_jobs(watched(), watched=True).records
    assert (job.job_id, job.nodes, job.state) == (plain.job_id, plain.nodes, plain.state)
    assert plain.local is None
    assert watch_format("A:|,B:9").startswith("EligibleTime:|,TimeLimit:|,NumNodes:|")


@pytest.mark.parametrize(
    ("state", "reason", "word"),
    [
        ("PENDING", "Priority", "Priority"),
        ("PENDING", "ReqNodeNotAvail,_UnavailableNodes:a1,b2", "ReqNodeNotAvail"),
        ("PENDING", "Nodes_required_for_job_are_DOWN,_DRAINED", "Nodes"),
        ("PENDING", "None", ""),
        ("PENDING", "\x1b[2J|", ""),
        ("PENDING", "x" * 80, "x" * 40),
        ("RUNNING", "Priority", ""),  # of what runs Slurm may still print it
    ],
)
def test_why_a_job_waits_is_the_first_word_of_slurms_reason(
    state: str, reason: str, word: str
) -> None:
    assert record_of(watched(State=state, Reason=reason)).held_by == word


@pytest.mark.parametrize(
    ("behind", "held", "gpus", "kind"),
    [
        ((), CPUS, 0, ""),
        (("N/A", "gres:gpu:2"), CPUS, 4, ""),  # 22.05
        (("N/A", "gres/gpu:a100:8"), CPUS, 16, "a100"),  # 24.11 and 26.05
        (("gres/gpu:3",), CPUS, 3, ""),
        (("N/A", "N/A", "gres/gpu=1"), CPUS, 4, ""),
        (("N/A", "N/A", "N/A", "gres/gpu:1"), CPUS, UNKNOWN_GPUS, ""),
        (("N/A", "gres/gpu:8"), f"{CPUS},gres/gpu=10", 10, ""),  # what Slurm counts is right
        (("N/A", "gres/gpu"), f"{CPUS},gres/gpu:a100=2,gres/gpu:v100=1", 3, ""),
        (("N/A", "gres/nic:2,gres/gpu:v100:1"), CPUS, 2, "v100"),
        (("N/A", "gres/nic:2"), CPUS, 0, ""),
    ],
)
def test_gpus_are_those_that_slurm_counts_or_else_those_asked_for(
    behind: tuple[str, ...], held: str, gpus: int, kind: str
) -> None:
    record = record_of(watched(*behind, held=held))
    assert (record.gpus, record.gpu_type, record.nodes) == (gpus, kind, 2)


@pytest.mark.parametrize(
    ("limit", "limit_s"),
    [
        ("10:00", 600.0),
        ("0:30", 30.0),
        ("1-00:00:00", 86_400.0),
        ("UNLIMITED", inf),
        ("NOT_SET", inf),
    ],
)
def test_time_limits(limit: str, limit_s: float) -> None:
    assert record_of(watched(limit=limit)).limit_s == limit_s


def test_times_and_whose_it_is() -> None:
    ended = record_of(
        watched(State="COMPLETED", EndTime="1795210800", eligible="1795210720", RestartCnt="1")
    )
    assert (ended.submitted_at_s, ended.eligible_at_s) == (1795210722.0, 1795210720.0)
    assert (ended.started_at_s, ended.ended_at_s) == (1795210723.0, 1795210800.0)
    assert (ended.user, ended.account, ended.partition) == ("vision1", "nlp", "fed")
    assert (ended.key, ended.is_open) == ((7, 1795210722.0, 1), False)
    assert record_of(watched(eligible="N/A")).eligible_at_s == 0.0


def test_users_text_cannot_make_a_record() -> None:
    forged = watched(JobID="8").decode()
    output = watched(f"gres/gpu:1\n{forged}", Name=f"x\n{forged}") + watched(JobID="9")
    assert [job.job_id for job in parse_jobs(output, watched=True).records] == [7, 9]


def test_output_of_the_other_format_is_refused() -> None:
    with pytest.raises(ValueError, match="no record of squeue starts"):
        parse_jobs(squeue_record(), watched=True)


def jobs(*outputs: bytes) -> list[SiteJob]:
    return list(parse_jobs(b"".join(outputs), watched=True).records)


def test_records_are_of_the_sites_own_jobs_with_the_gpus_they_ran_on() -> None:
    nodes = [
        Node(name=name, partitions=("fed",), cpus=8, mem_mib=1, gpu_type=kind, gpus=8)
        for name, kind in (("n1", "a100"), ("n2", "a100"), ("n3", "v100"))
    ]
    found = local_records(
        jobs(
            watched(NodeList="n[1-2]"),
            watched(JobID="8", NodeList="n[1-3]"),
            watched(JobID="9"),  # the federation's
            watched(JobID="10", State="PENDING", NodeList="", StartTime="N/A"),
            watched(JobID="11", ArrayJobID="11", ArrayTaskID="1-7%2", State="PENDING"),
            watched(JobID="12", ArrayJobID="11", ArrayTaskID="3"),
            watched(JobID="15", HetJobID="14", HetJobOffset="1"),
            watched(JobID="16", SubmitTime="N/A"),
        ),
        nodes,
        KnownJobs(
            launched={
                9: Launched(
                    attempt=AttemptId(workload=WorkloadId(2**32), attempt=1),
                    user="vision1",
                    at_s=2e9,
                )
            }
        ),
    )
    assert [r.shown for r in found if r.federated] == ["9"]
    assert [(r.shown, r.ran_on) for r in found if not r.federated] == [
        ("7", "a100"),
        ("8", ""),
        ("10", ""),
        ("11_3", "a100"),
        ("14+1", "a100"),
    ]


def test_a_task_that_starts_has_the_word_for_which_its_array_waited_at_the_look_before() -> None:
    """Once it runs, those behind it have another word; and behind the last one there are none."""
    waited: dict[ArrayStay, str] = {}
    asked = {"NodeList": "", "StartTime": "N/A", "State": "PENDING", "ArrayJobID": "11"}

    def look(*outputs: bytes) -> list[tuple[str, str]]:
        found = local_records(jobs(*outputs), [], KnownJobs(), waited)
        return [(record.shown, record.held_by) for record in found]

    first = watched(JobID="12", ArrayJobID="11", ArrayTaskID="1")
    assert look(watched(JobID="11", ArrayTaskID="1-2%1", Reason="Priority", **asked)) == []
    assert look(watched(JobID="11", ArrayTaskID="1-2%1", Reason="None", **asked)) == []
    limited = watched(JobID="11", ArrayTaskID="2%1", Reason="JobArrayTaskLimit", **asked)
    assert look(first, limited) == [("11_1", "Priority")]
    last = watched(JobID="11", ArrayJobID="11", ArrayTaskID="2")
    assert look(last, watched()) == [("11_2", "JobArrayTaskLimit"), ("7", "")]
    assert waited == {}


def test_a_task_that_was_put_back_has_the_word_of_its_array_by_its_id_alone() -> None:
    """Its time of submission was renewed."""
    waited: dict[ArrayStay, str] = {}
    array = watched(
        JobID="11", ArrayJobID="11", ArrayTaskID="2-7", State="PENDING", Reason="Resources",
        NodeList="", StartTime="N/A", SubmitTime="1795200000",
    )  # fmt: skip
    runs = watched(
        JobID="12", ArrayJobID="11", ArrayTaskID="1", RestartCnt="1", SubmitTime="1795210722"
    )
    for look in (array + runs, runs):
        (found,) = local_records(jobs(look), [], KnownJobs(), waited)
        assert (found.shown, found.restarts, found.held_by) == ("11_1", 1, "Resources")


def test_where_job_ids_begin_anew_an_older_arrays_word_is_not_taken() -> None:
    waited: dict[ArrayStay, str] = {}
    old = watched(
        JobID="11", ArrayJobID="11", ArrayTaskID="1-2", State="PENDING", Reason="Licenses",
        NodeList="", StartTime="N/A", SubmitTime="1790000000",
    )  # fmt: skip
    assert local_records(jobs(old), [], KnownJobs(), waited) == ()
    new = watched(JobID="12", ArrayJobID="11", ArrayTaskID="1")
    (found,) = local_records(jobs(new), [], KnownJobs(), waited)
    assert (found.shown, found.held_by) == ("11_1", "")


def test_where_job_ids_begin_anew_anothers_job_is_not_the_federations() -> None:
    attempt = AttemptId(workload=WorkloadId(2**32), attempt=1)
    for user, at_s in (("vision1", 1_790_000_000.0), ("mallory", 2e9)):
        own = KnownJobs(launched={7: Launched(attempt=attempt, user=user, at_s=at_s)})
        (found,) = local_records(jobs(watched()), [], own)
        assert not found.federated


def test_a_task_of_an_array_has_the_word_for_which_the_others_wait() -> None:
    throttled = {"ArrayJobID": "11", "ArrayTaskID": "4-7%2", "State": "PENDING"}
    asked = {"Reason": "JobArrayTaskLimit", "NodeList": "", "StartTime": "N/A"}
    found = local_records(
        jobs(
            watched(JobID="12", ArrayJobID="11", ArrayTaskID="3"),
            watched(JobID="11", **throttled, **asked),
            watched(JobID="14", ArrayJobID="11", ArrayTaskID="2", State="PENDING", Reason="Nodes"),
            watched(JobID="22", ArrayJobID="21", ArrayTaskID="1"),  # none of its others waits
            watched(),
        ),
        [],
        KnownJobs(),
    )
    assert [(record.shown, record.held_by) for record in found] == [
        ("11_3", "JobArrayTaskLimit"),
        ("11_2", "Nodes"),
        ("21_1", ""),
        ("7", ""),
    ]
