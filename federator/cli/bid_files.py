"""Parses and checks snapshot.json and request.json; every error names its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from federator.cli.json_file import brief, read_json
from federator.errors import InvalidRequest
from federator.model.gres import gres_of
from federator.model.license import SiteLicense
from federator.model.node_shape import NodeShape
from federator.model.plan import BidRequest
from federator.model.site import (
    START_UP_S,
    LocalJob,
    Node,
    NodeShare,
    NodeState,
    RunningJob,
    Snapshot,
)
from federator.model.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from federator.model.window import SiteWindow
from federator.model.workload import MAX_AMOUNT, Job, SiteName, WorkloadId

_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
_Number = Annotated[float, Meta(ge=0, le=MAX_AMOUNT)]
_Gres = tuple[
    tuple[Annotated[str, Meta(min_length=1)], Annotated[int, Meta(ge=1, le=MAX_AMOUNT)]], ...
]
_Priority = Annotated[int, Meta(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY)]


class NodeFields(Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``nodes``."""

    name: Annotated[str, Meta(min_length=1)]
    partitions: tuple[str, ...]
    cpus: Annotated[int, Meta(ge=1, le=MAX_AMOUNT)]
    switch: str = ""
    state: NodeState = NodeState.IDLE
    cpus_alloc: _Count = 0
    mem_mib: _Count = 0
    mem_mib_alloc: _Count = 0
    gpu_type: str = ""
    gpus: _Count = 0
    gpus_alloc: _Count = 0
    features: tuple[str, ...] = ()
    closed_partitions: tuple[str, ...] = ()
    gpu_mem_gib: _Number = 0.0
    nvlink: bool = False
    gpu_weight: _Number = 1.0
    drain_reason: str = ""
    drained_by: str = ""
    drained_at_s: _Number = 0.0
    gres: _Gres = ()
    gres_alloc: _Gres = ()
    gres_shared: tuple[str, ...] = ()
    reserved: bool = False
    maintenance: bool = False
    shape: NodeShape | None = None
    weight: _Count | None = None


class LocalFields(Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``local``."""

    id: _Id
    nodes: tuple[str, ...]
    ends_by_s: _Number | None = None


class ShareFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of one node that a running workload holds."""

    gpus: _Count = 0
    cpus: _Count = 0
    mem_mib: _Count = 0
    gres: _Gres = ()


class OccupantFields(Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``running_jobs``."""

    id: _Id
    priority: _Priority
    started_at_s: _Number
    nodes: Annotated[dict[str, ShareFields], Meta(min_length=1)]
    tenant: str = ""
    preemptible: bool = True
    cooldown_until_s: _Number = 0.0
    saves_in_time: bool = True
    saved_at_s: _Number = 0.0
    save_s: _Number = 0.0
    restart_s: _Number = START_UP_S
    ends_by_s: _Number | None = None
    optional: bool = False
    optional_jobs: list[Annotated[int, Meta(ge=1, le=MAX_AMOUNT)]] = []
    components: dict[_Count, dict[str, ShareFields]] = {}
    movable: bool = False


class WindowFields(Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``windows``."""

    name: str
    starts_at_s: _Number
    ends_at_s: _Number
    nodes: tuple[str, ...]
    cpus: dict[str, _Count] = {}
    maintenance: bool = False
    again_s: _Number = 0.0
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


class LicenseFields(Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``licenses``."""

    name: str
    total: _Count
    free: _Count


class SnapshotFields(Struct, frozen=True, forbid_unknown_fields=True):
    """All of snapshot.json."""

    site: str
    now_s: _Number
    nodes: Annotated[list[NodeFields], Meta(min_length=1)]
    running: list[OccupantFields] = []
    local: list[LocalFields] = []
    switches: dict[str, str] = {}
    windows: list[WindowFields] = []
    licenses: list[LicenseFields] = []


class WantedFields(Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``jobs``."""

    name: str = ""
    nodes: Annotated[int, Meta(ge=1, le=MAX_AMOUNT)] | None = None
    gpus_per_node: _Count = 0
    gpus: _Count = 0  # total
    gpu_types: tuple[str, ...] = ()
    min_gpu_mem_gib: _Number = 0
    nvlink: bool = False
    tensor_parallel: Annotated[int, Meta(ge=1, le=MAX_AMOUNT)] = 1
    pipeline_stages: Annotated[int, Meta(ge=1, le=MAX_AMOUNT)] = 1
    exclusive: bool = False
    features: tuple[str, ...] = ()
    cpus_per_node: _Count = 1
    mem_mib_per_node: _Count = 0
    gres: _Gres = ()
    licenses: _Gres = ()
    switches: _Count = 0
    partition: str | None = None


class RequestFields(Struct, frozen=True, forbid_unknown_fields=True):
    """All of request.json."""

    id: _Id
    jobs: Annotated[tuple[WantedFields, ...], Meta(min_length=1)]
    tenant: str = ""
    priority: _Priority = LOWEST_PRIORITY
    time_limit_s: _Number | None = None
    preempt_gpus: _Number | None = None  # that victims may hold; null: as many as it takes


_SNAPSHOT: Final[Mapping[str, type[Struct]]] = {
    "": SnapshotFields,
    "nodes": NodeFields,
    "running": OccupantFields,
    "running.nodes": ShareFields,
    "local": LocalFields,
}
_REQUEST: Final[Mapping[str, type[Struct]]] = {"": RequestFields, "jobs": WantedFields}


@dataclass(frozen=True, slots=True)
class _File:
    """Where mistakes of value are reported."""

    path: Path

    def refusal(self, where: str, message: str) -> InvalidRequest:
        return InvalidRequest(f"{self.path}: {where}: {message}")


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot.json.

    Raises:
        InvalidRequest: one line with the file, the place in it, and what was expected there.
    """
    fields = read_json(path, SnapshotFields, _SNAPSHOT)
    file = _File(path)
    names: set[str] = set()
    for k, node in enumerate(fields.nodes):
        if node.name in names:
            raise file.refusal(f"nodes[{k}].name", f"'{brief(node.name)}' is there twice")
        names.add(node.name)
    ids: set[int] = set()
    for k, job in enumerate(fields.running):
        if job.id in ids:
            raise file.refusal(f"running[{k}].id", f"{job.id} is there twice")
        ids.add(job.id)
        for name in job.nodes.keys() - names:
            raise file.refusal(f"running[{k}].nodes", f"unknown node '{brief(name)}'")
        for name in {name for held in job.components.values() for name in held} - job.nodes.keys():
            raise file.refusal(f"running[{k}].components", f"'{brief(name)}' is not in nodes")
    named = [(f"local[{k}]", local.nodes) for k, local in enumerate(fields.local)]
    named += [(f"windows[{k}]", window.nodes) for k, window in enumerate(fields.windows)]
    for place, nodes in named:
        for name in set(nodes) - names:
            raise file.refusal(f"{place}.nodes", f"unknown node '{brief(name)}'")
    return Snapshot(
        site=SiteName(fields.site),
        now_s=fields.now_s,
        nodes=tuple(_node(node) for node in fields.nodes),
        running=tuple(_running(job) for job in fields.running),
        local=tuple(
            LocalJob(id=j.id, nodes=j.nodes, ends_by_s=inf if j.ends_by_s is None else j.ends_by_s)
            for j in fields.local
        ),
        switches=fields.switches,
        windows=tuple(
            SiteWindow(**_values(window))
            for window in sorted(fields.windows, key=lambda window: window.starts_at_s)
        ),
        licenses=tuple(SiteLicense(**_values(each)) for each in fields.licenses),
    )


def _values(fields: Struct) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in fields.__struct_fields__}


def _node(fields: NodeFields) -> Node:
    values = _values(fields)
    return Node(**values | {name: gres_of(values[name]) for name in ("gres", "gres_alloc")})


def _running(job: OccupantFields) -> RunningJob:
    return RunningJob(
        id=job.id,
        tenant=job.tenant,
        priority=job.priority,
        preemptible=job.preemptible,
        started_at_s=job.started_at_s,
        cooldown_until_s=job.cooldown_until_s,
        ends_by_s=inf if job.ends_by_s is None else job.ends_by_s,
        saves_in_time=job.saves_in_time,
        saved_at_s=job.saved_at_s,
        save_s=job.save_s,
        restart_s=job.restart_s,
        optional=job.optional,
        optional_jobs=tuple(job.optional_jobs),
        nodes=_shares(job.nodes),
        components={number: _shares(held) for number, held in job.components.items()},
        movable=job.movable,
    )


def _shares(held: Mapping[str, ShareFields]) -> dict[str, NodeShare]:
    return {
        name: NodeShare(gpus=s.gpus, cpus=s.cpus, mem_mib=s.mem_mib, gres=gres_of(s.gres))
        for name, s in held.items()
    }


def read_request(path: Path, *, knows_memory: bool = True) -> BidRequest:
    """Read a request.json.

    Args:
        path: of the file.
        knows_memory: whether the snapshot tells the memory of its GPUs; where it does not, the
            names of GPU types stand for it.

    Raises:
        InvalidRequest: one line with the file, the place in it, and what was expected there.
    """
    fields = read_json(path, RequestFields, _REQUEST)
    file = _File(path)
    names = [job.name or f"job{k}" for k, job in enumerate(fields.jobs, start=1)]
    for k, name in enumerate(names):
        if name in names[:k]:
            raise file.refusal(f"jobs[{k}].name", f"'{brief(name)}' is there twice")
    jobs = (_job(file, k, names[k], job, knows_memory) for k, job in enumerate(fields.jobs))
    return BidRequest(
        id=WorkloadId(fields.id),
        tenant="",
        user="",
        priority=fields.priority,
        jobs=tuple(jobs),
        time_limit_s=inf if fields.time_limit_s is None else fields.time_limit_s,
        preempt_gpus=inf if fields.preempt_gpus is None else fields.preempt_gpus,
    )


def _job(file: _File, k: int, name: str, job: WantedFields, knows_memory: bool) -> Job:
    where = f"jobs[{k}]"
    if job.min_gpu_mem_gib and not job.gpu_types and not knows_memory:
        raise file.refusal(
            f"{where}.min_gpu_mem_gib",
            "the snapshot does not say what memory its GPUs have (nodes[].gpu_mem_gib); "
            "name acceptable 'gpu_types' too",
        )
    if job.nodes is None and not job.gpus:
        raise file.refusal(where, "expected 'nodes', or 'gpus' in all; found neither")
    try:
        return Job(
            name=name,
            nodes=job.nodes,
            gpus_per_node=job.gpus_per_node,
            gpus=job.gpus,
            cpus_per_node=job.cpus_per_node,
            mem_mib_per_node=job.mem_mib_per_node,
            gres=gres_of(job.gres),
            licenses=tuple(sorted(job.licenses)),
            switches=job.switches,
            gpu_types=job.gpu_types,
            features=job.features,
            exclusive=job.exclusive,
            min_gpu_mem_gib=job.min_gpu_mem_gib if knows_memory else 0.0,
            nvlink=job.nvlink,
            tensor_parallel=job.tensor_parallel,
            pipeline_stages=job.pipeline_stages,
            partitions=() if job.partition is None else (job.partition,),
        )
    except InvalidRequest as error:
        raise file.refusal(where, str(error)) from error
