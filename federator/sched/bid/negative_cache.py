"""Remembers failed placements, and which other requests they rule out.

A request that asks for the same or more, of the same or narrower hardware, fails with the one that
failed before it, for as long as room only shrinks.

Source:
    MAST (OSDI'24) sec. 4.3, "negative cache": same or larger in every resource on the same type of
    hardware; about four of five requests are answered by it in production. Beyond the paper:
    narrower hardware and the right to evict count as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import le
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from federator.model.gres import Gres, covers
from federator.model.license import Licenses
from federator.model.reason import Reason, ReasonCode, Refusal
from federator.model.tenant import EVERYWHERE
from federator.model.workload import Job, SiteName

Answer = TypeVar("Answer")
OF_HARDWARE: Final = frozenset(
    {
        ReasonCode.RESOURCES,
        ReasonCode.NO_PARTITION,
        ReasonCode.NO_GPU_TYPE,
        ReasonCode.NO_FEATURE,
        ReasonCode.NO_NODE,
        ReasonCode.NODES_ASKED,
        ReasonCode.NODE_TOO_SMALL,
        ReasonCode.TOO_FEW_NODES,
        ReasonCode.SLOW_NODES,
        ReasonCode.LICENSES,
    }
)
"""Reasons that hold for whoever asks; others, such as an unknown user, say nothing of the next."""

KEPT = 512  # failures: each is held against every new question
ASKED_KEPT = 8_192  # questions whose answer is known


class _Wishes(NamedTuple):
    """What few jobs ask for."""

    licenses: Licenses
    within: frozenset[str]  # empty: any nodes
    reservation: tuple[str, ...]  # its nodes are not those of others
    switches: int  # 0: any number
    contiguous: bool

    def imply(self, other: _Wishes) -> bool:
        """As of ``_Profile``."""
        return (
            (not self.switches or self.switches >= other.switches > 0)
            and self.contiguous <= other.contiguous
            and (not self.within or self.within >= other.within > frozenset())
            and self.reservation == other.reservation
            and (not self.licenses or covers(dict(other.licenses), self.licenses))
        )


_NO_WISHES: Final = _Wishes((), frozenset(), (), 0, contiguous=False)


class _Profile(NamedTuple):
    """One job, as far as it decides whether one failure implies another."""

    partitions: frozenset[str]  # empty: any
    gpu_types: frozenset[str]  # empty: any
    features: frozenset[str]
    constraint: str
    avoid: frozenset[str]  # also what is excluded
    nodelist: frozenset[str]
    exclusive: bool
    exact_nodes: int  # over which totals spread, or of which some are asked for; else 0
    tensor_parallel: int
    cpus_together: int  # of a total they come in whole ones of so many; else 0
    least: tuple[float, ...]  # nodes; GPUs, CPUs, MiB on each; totals; MiB with these; GPUs; shape
    gres: Gres
    wishes: _Wishes  # of most jobs the same object

    def implies(self, other: _Profile) -> bool:
        """Tell whether ``other`` cannot be placed where this one could not."""
        return (
            all(map(le, self.least, other.least))
            and (not self.partitions or self.partitions >= other.partitions > frozenset())
            and (not self.gpu_types or self.gpu_types >= other.gpu_types > frozenset())
            and self.features <= other.features
            and (not self.constraint or self.constraint == other.constraint)
            and self.avoid <= other.avoid
            and self.nodelist <= other.nodelist
            and self.exclusive <= other.exclusive
            and (not self.exact_nodes or self.exact_nodes == other.exact_nodes)
            and other.tensor_parallel % self.tensor_parallel == 0
            and (not self.gres or covers(dict(other.gres), self.gres))
            and (self.wishes is other.wishes or self.wishes.imply(other.wishes))
            and (not self.cpus_together or other.least[2] % self.cpus_together == 0)
        )


def _wishes(job: Job) -> _Wishes:
    if not (job.licenses or job.within or job.reservation or job.switches or job.contiguous):
        return _NO_WISHES
    within = frozenset(job.within)
    return _Wishes(job.licenses, within, job.reservation, job.switches, job.contiguous)


@lru_cache(maxsize=ASKED_KEPT)  # the same jobs are asked about after each change at a site
def _profile(job: Job) -> _Profile:
    nodes = job.nodes or 0
    with_totals = bool(job.gpus or job.cpus)
    gpus_per_node = max(job.gpus_per_node, job.tensor_parallel if job.gpus else 0)
    cpus_per_node = max(1, job.cpus_per_node)
    return _Profile(
        partitions=frozenset(job.partitions),
        gpu_types=frozenset(job.gpu_types) if job.total_gpus else frozenset(),
        features=frozenset(job.features),
        constraint=job.constraint,
        avoid=frozenset(job.avoid + job.exclude),
        nodelist=frozenset(job.nodelist),
        exclusive=job.exclusive,
        exact_nodes=nodes if with_totals or job.is_picky else 0,
        tensor_parallel=job.tensor_parallel if job.gpus else 1,
        cpus_together=cpus_per_node if job.cpus else 0,
        least=(
            nodes,
            gpus_per_node,
            cpus_per_node,
            job.mem_mib_per_node,
            max(job.total_gpus, gpus_per_node * nodes),
            max(job.cpus, cpus_per_node * nodes),
            job.mem_mib_per_cpu if job.cpus else 0,
            job.mem_mib_per_gpu if job.gpus else 0,
            job.min_gpu_mem_gib if job.total_gpus else 0.0,
            job.nvlink if job.total_gpus else False,
            *job.shape,
        ),
        gres=job.gres,
        wishes=_wishes(job),
    )


class Known(NamedTuple, Generic[Answer]):
    """An answer, and the jobs that it was for."""

    jobs: tuple[Job, ...]
    answer: Answer


class Rights(NamedTuple):
    """The victims that a request may evict; the same for all that may evict nobody."""

    priority: int = 7  # 1 may evict most
    preempt_gpus: float = 0.0
    home: frozenset[SiteName] = EVERYWHERE  # where it may

    def at_most(self, other: Rights) -> bool:
        return (
            self.home == other.home
            and self.priority >= other.priority
            and self.preempt_gpus <= other.preempt_gpus
        )


NOBODY: Final = Rights()
"""May be evicted."""


class _Failure(NamedTuple, Generic[Answer]):
    jobs: tuple[_Profile, ...]
    rights: Rights
    known: Known[Answer]


class NegativeCache(Generic[Answer]):
    """Failures, each with the answer that was given; of no use once something comes free."""

    def __init__(self) -> None:
        self._exact: dict[tuple[tuple[Job, ...], Rights], Known[Answer]] = {}
        self._failures: list[_Failure[Answer]] = []
        self._profiles: dict[tuple[Job, ...], tuple[_Profile, ...]] = {}

    def find(self, jobs: tuple[Job, ...], rights: Rights) -> Known[Answer] | None:
        """The failure that implies this one; None when it may be worth a try."""
        known = self._exact.get((jobs, rights))
        if known is not None or not self._failures:
            return known
        asked = self._profile(jobs)
        for failure in self._failures:
            if rights.at_most(failure.rights) and _implies(failure.jobs, asked):
                self._remember(jobs, rights, failure.known)
                return failure.known
        return None

    def add(self, jobs: tuple[Job, ...], rights: Rights, answer: Answer) -> None:
        """Keep a failure, in place of those that it implies."""
        failed = self._profile(jobs)
        self._failures = [
            f for f in self._failures if not (f.rights.at_most(rights) and _implies(failed, f.jobs))
        ]
        if len(self._failures) < KEPT:
            self._failures.append(_Failure(failed, rights, Known(jobs, answer)))
        self._remember(jobs, rights, Known(jobs, answer))

    def _remember(self, jobs: tuple[Job, ...], rights: Rights, known: Known[Answer]) -> None:
        if len(self._exact) < ASKED_KEPT:
            self._exact[jobs, rights] = known

    def _profile(self, jobs: tuple[Job, ...]) -> tuple[_Profile, ...]:
        known = self._profiles.get(jobs)
        if known is None:
            known = tuple(map(_profile, jobs))
            if len(self._profiles) < ASKED_KEPT:
                self._profiles[jobs] = known
        return known


def _implies(failed: Sequence[_Profile], asked: Sequence[_Profile]) -> bool:
    """One job that fails alone fails in any company; several fail with the like of each."""
    if len(failed) == 1:
        return any(failed[0].implies(job) for job in asked)
    return len(failed) == len(asked) and all(
        f.implies(a) for f, a in zip(failed, asked, strict=True)
    )


def of_hardware(refusal: Refusal) -> bool:
    """Tell whether it is the hardware alone that stands against a request."""
    return all(reason.code in OF_HARDWARE for reason in refusal.reasons)


def as_for(jobs: Sequence[Job], known_jobs: Sequence[Job], refusal: Refusal) -> Refusal:
    """Put the refusal of another request in terms of these jobs: their needs, what is free.

    What was said of several jobs, or of something that has no number, stays as it was but for the
    names, which are those of another user's jobs: where the numbers of jobs differ there are none.
    When the other could start, or what it could have instead, is not said of these, unless
    they ask for the very same.
    """
    if jobs == known_jobs:
        return renamed(jobs, known_jobs, refusal)
    if len(jobs) != 1:
        other = Refusal(kind=refusal.kind, reasons=refusal.reasons)
        return (
            renamed(jobs, known_jobs, other) if len(jobs) == len(known_jobs) else _nameless(other)
        )
    reasons = tuple([_reason_for(jobs[0], reason) for reason in refusal.reasons])
    return Refusal(kind=refusal.kind, reasons=reasons)


def _nameless(refusal: Refusal) -> Refusal:
    return replace(refusal, reasons=tuple([replace(r, job="", apart=()) for r in refusal.reasons]))


def renamed(jobs: Sequence[Job], known_jobs: Sequence[Job], refusal: Refusal) -> Refusal:
    """The same, said of jobs that ask for the same under other names."""
    names = {known.name: job.name for job, known in zip(jobs, known_jobs, strict=True)}
    if all(name == known for known, name in names.items()):
        return refusal
    return replace(refusal, reasons=tuple([_described(names, r) for r in refusal.reasons]))


def reason_renamed(jobs: Sequence[Job], known_jobs: Sequence[Job], reason: Reason) -> Reason:
    """As ``renamed``, of one reason."""
    names = {known.name: job.name for job, known in zip(jobs, known_jobs, strict=True)}
    return _described(names, reason)


def _described(names: Mapping[str, str], reason: Reason) -> Reason:
    described = _of(reason, names.get(reason.job, reason.job), reason.needed)
    if not reason.apart:
        return described
    return replace(described, apart=tuple(names.get(name, name) for name in reason.apart))


def _reason_for(job: Job, reason: Reason) -> Reason:
    """Thousands are told at once, so nothing is computed in vain, and ``replace`` is too slow."""
    needs = _needs(job, reason.unit) if reason.code is ReasonCode.RESOURCES else None
    if needs is None:
        return reason
    return _of(reason, job.name, max(reason.needed, needs))


def _of(reason: Reason, job: str, needed: int) -> Reason:
    return Reason(
        code=reason.code,
        job=job,
        needed=needed,
        free=reason.free,
        unit=reason.unit,
        detail=reason.detail,
        free_nodes=reason.free_nodes,
        largest_rack=reason.largest_rack,
        more=reason.more,
        more_in_s=reason.more_in_s,
        from_s=reason.from_s,
        until_s=reason.until_s,
        apart=reason.apart,
    )


def _needs(job: Job, unit: str) -> int | None:
    """The amount that a job asks for of what a reason counts; None where that has no number."""
    match unit:
        case "nodes":
            return job.nodes or 1
        case "GPUs":
            return job.total_gpus
        case "CPUs":
            return max(job.cpus, max(1, job.cpus_per_node) * (job.nodes or 1))
        case "MiB":
            return job.mem_mib_per_node
        case _:
            return dict(job.gres).get(unit)
