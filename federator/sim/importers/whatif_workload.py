"""Turns an admin's history into workloads, each with what happened to it in fact.

A het job is one workload of several jobs. Jobs whose cluster, size or times tell nothing are left
out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from federator.errors import InvalidRequest
from federator.model.workload import Job, SiteName
from federator.sim.importers.history import PastJob, past_jobs, without_repeats
from federator.sim.importers.sacct import SacctRecord
from federator.sim.trace import LeftOut, LeftOutReason, TracePool

NO_ACCOUNT = "unknown"  # the tenant of jobs of which the dump says none


@dataclass(frozen=True, slots=True, kw_only=True)
class PastWorkload:
    """A workload of the history. Times are in seconds since 1970.

    Attributes:
        job_id: as sacct shows it; of a het job, its leader's.
        site: where it was submitted and ran.
        line: of its record in the dump, from 1; 0: it has no lines.
        submitted_s: when it was first submitted.
        came_s: when it could first have run: its submission, or when it became eligible.
        start_s: of its first attempt.
        duration_s: of its last attempt, at least 1.
        limit_s: its time limit; ``inf``: none, or not known.
        preemptions: that the dump tells of.
        held: start, end and GPUs of each of its stays on nodes.
        jobs: those with GPUs.
    """

    job_id: str
    line: int
    site: SiteName
    account: str
    user: str
    submitted_s: int
    came_s: int
    start_s: int
    duration_s: int
    limit_s: float
    preemptions: int
    held: tuple[tuple[int, int, int], ...]
    jobs: tuple[Job, ...]

    @property
    def gpus(self) -> int:
        return sum(job.total_gpus for job in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """``workloads`` by the time at which they came; ties by site and job id."""

    workloads: tuple[PastWorkload, ...]
    left_out: tuple[LeftOut, ...]


def history_of(
    records: Iterable[SacctRecord],
    pools: Mapping[SiteName, Sequence[TracePool]],
    any_gpu: bool = False,
) -> History:
    """Make workloads of the records of all clusters.

    Args:
        records: their cluster is the name of a site. Dumps of one cluster may overlap,
            in any order: of a stay that several tell of, the latest record counts.
        pools: of each site; one named ``site/partition`` is for that partition, one named as the
            site for all others.
        any_gpu: forget which type of GPU a job asked for.
    """
    components: dict[tuple[str, str, int], list[PastJob]] = {}
    for count, job in enumerate(past_jobs(without_repeats(records))):
        leader, plus, _ = job.last.job_id.partition("+")
        key = (job.last.cluster, leader, job.first.submit_s or 0 if plus else -1 - count)
        components.setdefault(key, []).append(job)
    found: list[PastWorkload] = []
    left_out: list[LeftOut] = []
    known_types = {pool.gpu_type for own in pools.values() for pool in own} - {""}
    known_types = set() if any_gpu else known_types
    for parts in components.values():
        parts.sort(key=lambda part: (len(part.last.job_id), part.last.job_id))  # leader first
        workload = _workload(parts, pools, known_types)
        if isinstance(workload, PastWorkload):
            found.append(workload)
        else:
            left_out += [_left_out(part, workload) for part in parts]
    found.sort(key=lambda past: (past.came_s, past.site, len(past.job_id), past.job_id))
    return History(workloads=tuple(found), left_out=tuple(left_out))


def _workload(
    parts: Sequence[PastJob],
    pools: Mapping[SiteName, Sequence[TracePool]],
    known_types: set[str],
) -> PastWorkload | LeftOutReason:
    leader = parts[0]
    site = SiteName(leader.last.cluster)
    with_gpus = [part for part in parts if part.left_out is None]
    reason = _why_not(parts, with_gpus, pools.get(site, ()))
    if reason is not None:
        return reason
    came_s, start_s = leader.came_s, with_gpus[0].start_s
    durations_s = [part.duration_s for part in with_gpus]
    if came_s is None:
        return LeftOutReason.NO_SUBMISSION
    if start_s is None or None in durations_s:
        return LeftOutReason.NO_START if start_s is None else LeftOutReason.NO_DURATION
    jobs = _jobs(with_gpus, known_types)
    if jobs is None or not any(_holds(own, jobs) for own in pools.values()):
        return LeftOutReason.NO_SITE
    return PastWorkload(
        job_id=leader.last.job_id.partition("+")[0],
        line=leader.last.line,
        site=site,
        account=leader.last.account or NO_ACCOUNT,
        user=leader.last.user or NO_ACCOUNT,
        submitted_s=min(leader.first.submit_s or came_s, start_s),
        came_s=min(came_s, start_s),  # a clock that was set back, or a begin time changed later
        start_s=start_s,
        duration_s=max(1, *(duration_s or 0 for duration_s in durations_s)),
        limit_s=max(part.shape.limit_s for part in with_gpus),
        preemptions=max(part.preemptions for part in parts),
        held=tuple(stay for part in with_gpus for stay in part.held),
        jobs=jobs,
    )


def _why_not(
    parts: Sequence[PastJob], with_gpus: Sequence[PastJob], own: Sequence[TracePool]
) -> LeftOutReason | None:
    """Why a workload is left out, by its components; None if it is not."""
    if not own:
        return LeftOutReason.OTHER_SITE
    reasons = {part.left_out for part in parts}
    if LeftOutReason.NEVER_RAN in reasons:
        return LeftOutReason.NEVER_RAN
    if not with_gpus:
        return LeftOutReason.NO_GPU
    names = {pool.name for pool in own}
    for part in with_gpus:
        site, partition = part.last.cluster, part.last.partition
        if site not in names and f"{site}/{partition}" not in names:
            return LeftOutReason.OTHER_POOL
    return None


def _jobs(parts: Sequence[PastJob], known_types: set[str]) -> tuple[Job, ...] | None:
    """What each component asks for; None if that is more than any job may."""
    try:
        return tuple(asked_by(part.shape, known_types) for part in parts)
    except InvalidRequest:
        return None


def asked_by(shape: SacctRecord, known_types: set[str]) -> Job:
    """As many GPUs on each of as many nodes; where they were uneven, as few nodes as hold them.

    A type of GPU counts only where the sizes of the sites tell of types.
    """
    types = (shape.gpu_type,) if shape.gpu_type and known_types else ()
    nodes = shape.nodes or 0
    if nodes and shape.gpus % nodes == 0:
        each = shape.gpus // nodes
        return Job(name="job", nodes=nodes, gpus_per_node=each, gpu_types=types)
    return Job(name="job", gpus=shape.gpus, gpu_types=types)


def _holds(own: Sequence[TracePool], jobs: Sequence[Job]) -> bool:
    """Whether a site could ever run them, as far as one pool for each of them says."""
    enough = sum(job.total_gpus for job in jobs) <= sum(pool.gpus for pool in own)
    return enough and all(any(_fits(pool, job) for pool in own) for job in jobs)


def _fits(pool: TracePool, job: Job) -> bool:
    if job.gpu_types and pool.gpu_type not in job.gpu_types:
        return False
    if job.nodes is None:
        return job.gpus <= pool.gpus
    return job.nodes <= pool.nodes and job.gpus_per_node <= pool.gpus_per_node


def _left_out(part: PastJob, reason: LeftOutReason) -> LeftOut:
    last = part.last
    return LeftOut(
        job_id=last.job_id,
        line=last.line,
        pool=f"{last.cluster}/{last.partition}",
        gpus=part.shape.gpus,
        reason=part.left_out or reason,
    )
