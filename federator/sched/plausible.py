"""Can a site's bid be believed? Its plan is charged to the tenant, so it must match the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite

from federator.model.message import SiteAnswer
from federator.model.plan import Bid, JobPlan
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import MAX_AMOUNT, Job, WorkloadId


def believed(
    answers: Iterable[SiteAnswer], jobs_of: Callable[[WorkloadId], Sequence[Job]]
) -> list[SiteAnswer]:
    """The answers of a site, with bids that contradict their request turned into refusals."""
    found = []
    for answer in answers:
        wrong = contradiction(jobs_of(answer.id), answer.bid) if answer.bid is not None else ""
        if wrong:
            reason = Reason(code=ReasonCode.BAD_BID, detail=wrong)
            refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
            found.append(SiteAnswer(id=answer.id, refusal=refusal))
        else:
            found.append(answer)
    return found


def contradiction(jobs: Sequence[Job], bid: Bid) -> str:
    """What about a bid is not as it was asked for; "" when all is."""
    if [plan.name for plan in bid.jobs] != [job.name for job in jobs]:
        return "it plans other jobs"
    if not all(map(isfinite, bid.score)):
        return "its score is no number"
    for job, plan in zip(jobs, bid.jobs, strict=True):
        wrong = _of_job(job, plan)
        if wrong:
            return f"{job.name}: {wrong}"
    return ""


def _of_job(job: Job, plan: JobPlan) -> str:
    shares = plan.nodes.values()
    gpus, cpus = sum(s.gpus for s in shares), sum(s.cpus for s in shares)
    typed = plan.gpu_types.values()
    if not shares or (job.nodes is not None and len(shares) != job.nodes):
        return f"it plans {len(shares)} nodes"
    least = min(min(s.gpus, s.cpus, s.mem_mib) for s in shares)
    checks = (
        (least >= 0 and max(gpus, cpus) <= MAX_AMOUNT, "it plans impossible amounts"),
        (min(s.gpus for s in shares) >= job.gpus_per_node and gpus >= job.total_gpus,
         f"it plans {gpus} GPUs"),
        (min(s.cpus for s in shares) >= job.cpus_per_node and cpus >= job.cpus,
         f"it plans {cpus} CPUs"),
        (min(typed, default=0) >= 0 and sum(typed) <= gpus,
         "it plans more GPUs of a type than GPUs"),
        (not job.gpu_types or set(plan.gpu_types) <= set(job.gpu_types),
         "it plans another GPU type"),
    )  # fmt: skip
    return next((wrong for good, wrong in checks if not good), "")
