"""Makes up the log of a large federation: months of it, in seconds.

Half of the workloads are tasks of arrays of 100, half were submitted singly, each with a script of
2 KB and an environment of 3 KB, as sbatch takes them along. Of every 100, two run at a site, 28
wait, and 70 have ended; one in ten ran twice, as a node failed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from federator.model.draft import Draft
from federator.model.event import Awarded, Changed, EpochBegan, LogRecord, Submitted
from federator.model.lifecycle import WorkloadEvent
from federator.model.plan import JobPlan
from federator.model.reason import Reason, ReasonCode
from federator.model.score import Score
from federator.model.site import NodeShare
from federator.model.submission import Submission, pack_submission
from federator.model.workload import FIRST_WORKLOAD_ID, AttemptId, WorkloadId
from tests.fakes.build import draft, gang

SITES = ("alpine", "boreal", "cedar")
TASKS = 100
_BEGAN_S = 1_760_000_000.0
_AT = AttemptId


def long_log(workloads: int, tenants: int = 20) -> Iterator[LogRecord]:
    """Every record of the log, oldest first."""
    yield EpochBegan(at_s=_BEGAN_S, epoch=int(_BEGAN_S))
    first, now_s = FIRST_WORKLOAD_ID, _BEGAN_S
    for number in range(workloads // (2 * TASKS)):
        for tasks in (TASKS, *[1] * TASKS):
            now_s += 2.0
            wanted = _draft(first, tasks, tenants)
            yield Submitted(at_s=now_s, draft=wanted, first_id=WorkloadId(first), key=f"k-{first}")
            for k in range(tasks):
                yield from _life(WorkloadId(first + k), now_s, (first + k) % 100, number)
            first = WorkloadId(first + tasks)


def _draft(first: int, tasks: int, tenants: int) -> Draft:
    typed = Submission(
        components=((),),
        script=f"#!/bin/bash\n# {first}\n" + "srun python train.py --epochs 3\n" * 64,
        environment={
            f"VARIABLE_{k}": f"/shared/software/{first}/{k}" + "x" * 10 for k in range(60)
        },
    )
    user = f"user{first % 97}"
    made = draft(gang(1 + first % 3, 8), user=user, tenant=f"tenant-{first % tenants}")
    indices = tuple(range(tasks)) if tasks > 1 else ()
    return replace(
        made, name=f"train-{first % 50}", submission=pack_submission(typed), array_indices=indices
    )


def _life(id_: WorkloadId, now_s: float, kind: int, number: int) -> Iterator[LogRecord]:
    """``kind``: 0 to 99."""
    if kind >= 72:
        return
    attempt = 1
    if kind % 10 == 5:
        yield from _start(id_, attempt, now_s, number)
        yield Changed(
            at_s=now_s + 2.0,
            workload=id_,
            happening=WorkloadEvent.NODE_FAILED,
            attempt=attempt,
            site_job_id=number + 7,
            ended_at_s=now_s + 2.0,
            failed_nodes=(f"n{number % 500}",),
            reason=Reason(code=ReasonCode.NODE_FAILED),
            site_state="NODE_FAIL",
        )
        attempt = 2
    yield from _start(id_, attempt, now_s, number)
    if kind >= 2:
        yield Changed(
            at_s=now_s + 2.0,
            workload=id_,
            happening=WorkloadEvent.COMPLETED,
            attempt=attempt,
            site_job_id=number + 7,
            ended_at_s=now_s + 2.0,
            site_state="COMPLETED",
        )


def _start(id_: WorkloadId, attempt: int, now_s: float, number: int) -> Iterator[LogRecord]:
    site = SITES[id_ % 3]
    nodes = {f"n{(number + k) % 500}": NodeShare(gpus=8, cpus=8, mem_mib=64_000) for k in range(2)}
    yield Awarded(
        at_s=now_s,
        attempt=_AT(workload=id_, attempt=attempt),
        site=site,
        priority=3,
        jobs=(JobPlan(name="train", partition="gpu", nodes=nodes, gpu_types={"a100": 16}),),
        within_quota=True,
        credit=0.5,
        offers=dict.fromkeys(SITES, Score(locality_cost=1.5)),
    )
    for happening, started_at_s in (
        (WorkloadEvent.ACCEPTED, 0.0),
        (WorkloadEvent.STARTED, now_s + 1.0),
    ):
        yield Changed(
            at_s=now_s + 1.0,
            workload=id_,
            happening=happening,
            attempt=attempt,
            site_job_id=number + 7,
            started_at_s=started_at_s,
            site_state="RUNNING",
        )
