"""Parses and checks queue.json; every error names the file and the place in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from federator.cli.json_file import SHOWN, brief, read_json
from federator.errors import InvalidRequest
from federator.model.submission import Submission, pack_submission
from federator.model.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY, Tenancy
from federator.model.workload import MAX_AMOUNT, Job, TenantName, Workload, WorkloadId

_LISTED: Final = 10  # names that a message lists

_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
_Number = Annotated[float, Meta(ge=0, le=MAX_AMOUNT)]  # bounded, so that no sum overflows
_Nice = Annotated[int, Meta(ge=0, le=2**31)]
_Priority = Annotated[int, Meta(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY)]


class JobFields(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One of ``jobs``. Name, memory, features and partition are of no effect on the ranking."""

    name: str = ""
    nodes: Annotated[int, Meta(ge=1, le=MAX_AMOUNT)] | None = None
    gpus_per_node: _Count = 0
    gpus: _Count = 0  # total
    cpus_per_node: _Count = 1
    gpu_types: tuple[str, ...] = ()
    mem_mib_per_node: _Count = 0
    min_gpu_mem_gib: _Number = 0
    features: tuple[str, ...] = ()
    partition: str | None = None


_Jobs = Annotated[tuple[JobFields, ...], Meta(min_length=1)]


class RunningFields(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One of ``running_jobs``."""

    id: _Id
    tenant: str
    jobs: _Jobs


class PendingFields(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One of ``pending``."""

    id: _Id
    tenant: str
    submitted_at_s: _Number
    jobs: _Jobs
    nice: _Nice = 0
    preemptible: bool = True
    priority: _Priority = HIGHEST_PRIORITY  # never ranked above this level


class QueueFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    now_s: _Number
    pending: list[PendingFields]
    running: list[RunningFields] = []
    usage: dict[str, Raw] = {}


_FIELDS: Final[Mapping[str, type[Struct]]] = {
    "": QueueFields,
    "running": RunningFields,
    "pending": PendingFields,
    "running.jobs": JobFields,
    "pending.jobs": JobFields,
}
"""What is expected at a place, by its path without indices."""

_SUBMISSION: Final = pack_submission(Submission(components=(), script=""))  # nobody typed one


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineQueue:
    """A queue.json; all its tenants are known, and no id is there twice."""

    now_s: float
    usage: Mapping[TenantName, float]  # mean GPUs in use; tenants that are not named used nothing
    running: Sequence[Workload]
    pending: Sequence[Workload]  # in order of submission, then of id


def read_queue(path: Path, tenancy: Tenancy) -> OfflineQueue:
    """Read a queue.json.

    Raises:
        InvalidRequest: one line with the file, the place in it, and what was expected there.
    """
    return _Reader(path, tenancy).queue(read_json(path, QueueFields, _FIELDS))


class _Reader:
    """Turns the fields of one file into workloads, which share what is equal."""

    def __init__(self, path: Path, tenancy: Tenancy) -> None:
        self._path = path
        self._tenancy = tenancy
        self._ids: set[int] = set()
        self._jobs: dict[tuple[JobFields, ...], tuple[Job, ...]] = {}

    def queue(self, fields: QueueFields) -> OfflineQueue:
        usage = {
            self._tenant(f"usage.{brief(name)}", name): raw for name, raw in fields.usage.items()
        }
        averages = {name: self._average(name, raw) for name, raw in usage.items()}
        running = [
            self._workload(f"running[{k}]", PendingFields(e.id, e.tenant, 0.0, e.jobs), fields)
            for k, e in enumerate(fields.running)
        ]
        pending = [
            self._workload(f"pending[{k}]", entry, fields) for k, entry in enumerate(fields.pending)
        ]
        pending.sort(key=attrgetter("id"))
        pending.sort(key=attrgetter("submitted_at_s"))
        return OfflineQueue(now_s=fields.now_s, usage=averages, running=running, pending=pending)

    def _workload(self, where: str, entry: PendingFields, fields: QueueFields) -> Workload:
        if entry.id in self._ids:
            first = _first_with(entry.id, fields)
            raise self._refusal(f"{where}.id", f"{entry.id} is the id of {first}, too")
        self._ids.add(entry.id)
        if entry.submitted_at_s > fields.now_s:
            raise self._refusal(
                f"{where}.submitted_at_s",
                f"expected a time not after now_s, {fields.now_s:.15g}; "
                f"found {entry.submitted_at_s:.15g}",
            )
        tenant = self._tenant(f"{where}.tenant", entry.tenant)
        return Workload(
            id=WorkloadId(entry.id),
            name="",
            user="",
            tenant=tenant,
            priority=LOWEST_PRIORITY,
            jobs=self._jobs.get(entry.jobs) or self._new_jobs(where, entry.jobs),
            submission=_SUBMISSION,
            submitted_at_s=entry.submitted_at_s,
            asked_priority=entry.priority,
            nice=entry.nice,
            no_preempt=not entry.preemptible,
        )

    def _new_jobs(self, where: str, jobs: tuple[JobFields, ...]) -> tuple[Job, ...]:
        made = self._jobs[jobs] = tuple(
            self._job(f"{where}.jobs[{k}]", job) for k, job in enumerate(jobs)
        )
        return made

    def _job(self, where: str, job: JobFields) -> Job:
        if job.nodes is None and not job.gpus:
            raise self._refusal(where, "expected 'nodes', or 'gpus' in all; found neither")
        try:
            return Job(
                name="",
                nodes=job.nodes,
                gpus_per_node=job.gpus_per_node,
                gpus=job.gpus,
                cpus_per_node=job.cpus_per_node,
                mem_mib_per_node=job.mem_mib_per_node,
                gpu_types=job.gpu_types,
                features=job.features,
            )
        except InvalidRequest as error:
            message = str(error).removeprefix("job '': ")
            raise self._refusal(where, message) from error

    def _tenant(self, where: str, name: str) -> TenantName:
        tenant = TenantName(name)
        if tenant not in self._tenancy:
            known = [brief(t.name) for t in self._tenancy.tenants]
            more = f", … ({len(known)} in all)" if len(known) > _LISTED else ""
            listed = ", ".join(known[:_LISTED]) or "none"
            raise self._refusal(
                where, f"unknown tenant '{brief(name)}'; the configuration has {listed}{more}"
            )
        return tenant

    def _average(self, tenant: TenantName, raw: Raw) -> float:
        try:
            return msgspec.json.decode(raw, type=_Number)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            most = f"expected a number of GPUs from 0 to {MAX_AMOUNT}"
            found = brief(bytes(raw)[: 4 * SHOWN + 4].decode(errors="replace"))
            raise self._refusal(f"usage.{brief(tenant)}", f"{most}, found {found}") from error

    def _refusal(self, where: str, message: str) -> InvalidRequest:
        return InvalidRequest(f"{self._path}: {where}: {message}")


def _first_with(id_: int, fields: QueueFields) -> str:
    running = (f"running[{k}]" for k, entry in enumerate(fields.running) if entry.id == id_)
    pending = (f"pending[{k}]" for k, entry in enumerate(fields.pending) if entry.id == id_)
    return next(chain(running, pending))
