"""Validates a site's answers: a plan is charged to the tenant, so it must match the request.

A refusal is only told; but it decides where room is kept, and people read it, so it must be sane.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from math import isfinite
from typing import Final

from federator.model.gres import covers
from federator.model.node_names import needs_wishes
from federator.model.plan import Bid, JobPlan, shared_node
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site_message import SiteAnswer
from federator.model.sizes import jobs_at
from federator.model.window import SiteWindow
from federator.model.workload import MAX_AMOUNT, Job, WorkloadId

MOST_REASONS: Final = 256  # of a refusal; one for each het component is usual
MOST_ALTERNATIVES: Final = 8
SOUND_KEPT: Final = 4_096  # answers that were looked at
LAST_S: Final = 1e11  # Unix time; the year 5138
MOST_WINDOWS: Final = 10_000  # of a site
MAX_NAME: Final = 256  # characters of a partition or a GPU type
MOST_TEXT: Final = 200_000  # characters: a request's own names may be long


def _no_sizes(_id: WorkloadId) -> Container[int]:
    return ()


def sized(jobs: Sequence[Job], plans: Sequence[JobPlan], sizes: Container[int]) -> Sequence[Job]:
    """The jobs, on as many nodes as they are planned on if that is one of their sizes."""
    nodes = len(plans[0].nodes) if len(plans) == 1 else 0
    return jobs_at(tuple(jobs), nodes) if len(jobs) == 1 and nodes in sizes else jobs


class Validation:
    """Validates answers.

    Args:
        same_process: sites are asked in this process. They give the same object while nothing
            changes there, so one that was looked at is not looked at again. What comes by a wire
            is new each time, and is not kept: its size is the site's choice.
    """

    def __init__(self, *, same_process: bool = False) -> None:
        self._keeps = same_process
        self._sound: dict[int, tuple[Bid | Refusal, Sequence[Job] | None]] = {}  # by its id

    def validated(
        self,
        answers: Iterable[SiteAnswer],
        jobs_of: Callable[[WorkloadId], Sequence[Job]],
        sizes_of: Callable[[WorkloadId], Container[int]] = _no_sizes,
    ) -> list[SiteAnswer]:
        """The answers of a site; those that make no sense turned into refusals that say so.

        ``sizes_of``: on how many nodes one may be planned instead of on as many as its jobs say.
        """
        found = []
        for answer in answers:
            wrong = ""
            if answer.bid is not None:
                jobs = sized(jobs_of(answer.id), answer.bid.jobs, sizes_of(answer.id))
                if not self._is_known(answer.bid, jobs):
                    wrong = contradiction(jobs, answer.bid)
                    self._keep(answer.bid, jobs, wrong)
            elif answer.refusal is not None and not self._is_known(answer.refusal, None):
                wrong = "" if is_valid_refusal(answer.refusal) else "its refusal makes no sense"
                self._keep(answer.refusal, None, wrong)
            if wrong:
                reason = Reason(code=ReasonCode.BAD_BID, detail=wrong)
                refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
                found.append(SiteAnswer(id=answer.id, refusal=refusal))
            else:
                found.append(answer)
        return found

    def _is_known(self, said: Bid | Refusal, jobs: Sequence[Job] | None) -> bool:
        known = self._sound.get(id(said))
        return known is not None and known[1] is jobs

    def _keep(self, said: Bid | Refusal, jobs: Sequence[Job] | None, wrong: str) -> None:
        if self._keeps and not wrong:
            if len(self._sound) >= SOUND_KEPT:
                self._sound.clear()
            self._sound[id(said)] = (said, jobs)  # kept, so that nothing else has its id


def without_wishes(
    answers: Iterable[SiteAnswer], jobs_of: Callable[[WorkloadId], Sequence[Job]]
) -> list[SiteAnswer]:
    """The answers of an older agent: without bids that may ignore what it does not know."""
    return _without(answers, lambda id_: needs_wishes(jobs_of(id_)))


def without_contiguous(
    answers: Iterable[SiteAnswer], jobs_of: Callable[[WorkloadId], Sequence[Job]]
) -> list[SiteAnswer]:
    """As ``without_wishes``, of one that knows no nodes that have to follow each other."""
    return _without(answers, lambda id_: any(job.contiguous for job in jobs_of(id_)))


def without_data(
    answers: Iterable[SiteAnswer], uses_data: Callable[[WorkloadId], bool]
) -> list[SiteAnswer]:
    """As ``without_wishes``, of one that would give jobs no path of their data sets."""
    return _without(answers, uses_data)


def _without(
    answers: Iterable[SiteAnswer], lacks: Callable[[WorkloadId], bool]
) -> list[SiteAnswer]:
    reason = Reason(code=ReasonCode.OLD_RELEASE)
    refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
    return [
        SiteAnswer(id=answer.id, refusal=refusal)
        if answer.bid is not None and lacks(answer.id)
        else answer
        for answer in answers
    ]


def is_valid_refusal(refusal: Refusal) -> bool:
    """Tell whether a refusal's numbers are numbers, and there is not too much of it."""
    amounts = [s for s in (refusal.starts_in_s, refusal.sooner_in_s) if s is not None]
    texts: list[str] = []
    times: list[float] = []
    for r in refusal.reasons[:MOST_REASONS]:
        amounts += (r.needed, r.free, r.free_nodes, r.largest_rack, r.more, r.more_in_s)
        times += (r.from_s, r.until_s)
        texts += (r.job, r.unit, r.detail, *r.apart)
    for other in refusal.alternatives[:MOST_ALTERNATIVES]:
        amounts += (other.nodes, other.gpus, len(other.gpu_types))
        texts += other.gpu_types
    return (
        len(refusal.reasons) <= MOST_REASONS
        and len(refusal.alternatives) <= MOST_ALTERNATIVES
        and all(isfinite(amount) and 0 <= amount <= MAX_AMOUNT for amount in amounts)
        and all(0 <= time <= LAST_S for time in times)
        and sum(map(len, texts)) <= MOST_TEXT
    )


def valid_windows(windows: Sequence[SiteWindow]) -> tuple[SiteWindow, ...]:
    """Those whose times are times; not more of them than a site has any use for."""
    return tuple(
        window
        for window in windows[:MOST_WINDOWS]
        if 0 <= window.starts_at_s <= window.ends_at_s <= LAST_S and 0 <= window.again_s <= LAST_S
    )


def contradiction(jobs: Sequence[Job], bid: Bid) -> str:
    """The part of a bid that is not as it was asked for; "" when all is."""
    if not all(map(isfinite, bid.score)):
        return "its score is no number"
    if not 0 <= bid.waits_s <= LAST_S or any(len(m.node) > MAX_NAME for m in bid.moves):
        return "its moves make no sense"
    return plan_contradiction(jobs, bid.jobs)


def plan_contradiction(jobs: Sequence[Job], plans: Sequence[JobPlan]) -> str:
    """The part of a plan that is not as it was asked for; "" when all is."""
    if [plan.name for plan in plans] != [job.name for job in jobs]:
        return "it plans other jobs"
    for job, plan in zip(jobs, plans, strict=True):
        wrong = _of_job(job, plan)
        if wrong:
            return f"{job.name}: {wrong}"
    shared = shared_node(plans)
    return f"it plans two jobs on node {shared}" if shared else ""


def _of_job(job: Job, plan: JobPlan) -> str:
    shares = plan.nodes.values()
    gpus, cpus = sum(s.gpus for s in shares), sum(s.cpus for s in shares)
    typed = plan.gpu_types.values()
    if not shares or (job.nodes is not None and len(shares) != job.nodes):
        return f"it plans {len(shares)} nodes"
    whole_mib = plan.whole_mem_mib
    least = min(min(s.gpus, s.cpus, s.mem_mib, *(a for _, a in s.gres)) for s in shares)
    mem_mib = sum(s.mem_mib for s in shares)
    most = max(gpus, cpus, mem_mib, whole_mib, *(a for s in shares for _, a in s.gres))
    longest = max(map(len, (plan.partition, *plan.gpu_types)))
    checks = (
        (min(least, whole_mib) >= 0 and most <= MAX_AMOUNT, "it plans impossible amounts"),
        (longest <= MAX_NAME, "it plans on a partition or GPU type of an impossible name"),
        (
            min(s.gpus for s in shares) >= job.gpus_per_node and gpus >= job.total_gpus,
            f"it plans {gpus} GPUs",
        ),
        (
            min(s.cpus for s in shares) >= job.cpus_per_node and cpus >= job.cpus,
            f"it plans {cpus} CPUs",
        ),
        (
            not job.gres or all(covers(dict(s.gres), job.gres) for s in shares),
            f"it plans less than {', '.join(name for name, _ in job.gres)} on a node",
        ),
        (plan.reservation in (job.reservation or ("",)), "it plans outside of the reservation"),
        (plan.licenses == job.licenses, "it plans other licences"),
        (
            min(typed, default=0) >= 0 and sum(typed) <= gpus,
            "it plans more GPUs of a type than GPUs",
        ),
        (
            not (job.gpu_types and job.total_gpus) or set(plan.gpu_types) <= set(job.gpu_types),
            "it plans another GPU type",
        ),
    )
    return next((wrong for good, wrong in checks if not good), "") or _of_names(job, plan)


def _of_names(job: Job, plan: JobPlan) -> str:
    if not plan.nodes.keys().isdisjoint(job.avoid):
        return "it plans a node that the workload avoids"
    if not plan.nodes.keys().isdisjoint(job.exclude):
        return "it plans a node that is excluded"
    return (
        "it plans without a node that was asked for"
        if job.nodelist and not (plan.nodes.keys() >= set(job.nodelist))
        else ""
    )
