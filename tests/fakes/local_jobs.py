"""Makes histories of sites' own jobs, as agents would have told of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from federator.history.local_jobs import KeptRecord, LocalHistory, WatchedTime
from federator.model.local_record import LocalRecord
from federator.model.site import Capacity, Node
from federator.model.workload import SiteName

T0_S = 1_795_046_400.0  # a midnight, UTC


def stay(job_id: int, state: str = "COMPLETED", **fields: Any) -> LocalRecord:
    """A job of one node with 8 GPUs; times in ``fields`` are from ``T0_S`` on."""
    values: dict[str, Any] = {
        "user": "ada",
        "account": "bio",
        "partition": "gpu",
        "submitted_at_s": 0.0,
        "gpus": 8,
        "ran_on": "a100",
        "nodes": 1,
    } | fields
    for name in ("submitted_at_s", "eligible_at_s", "started_at_s", "ended_at_s"):
        if name in fields or name == "submitted_at_s":
            values[name] += T0_S
    return LocalRecord(job_id=job_id, shown=str(job_id), state=state, **values)


def capacity(site: str, nodes: int, gpu_type: str = "a100") -> Capacity:
    return Capacity(
        nodes=tuple(
            Node(
                name=f"{site}{k}",
                partitions=("gpu",),
                switch="r1",
                cpus=8,
                mem_mib=1000,
                gpu_type=gpu_type,
                gpus=8,
            )
            for k in range(nodes)
        )
    )


def local_history(
    records: Iterable[tuple[str, LocalRecord]],
    sites: dict[str, Capacity],
    begin_s: float = 0.0,
    end_s: float = 86_400.0,
) -> LocalHistory:
    """Sites that were watched all the time, from ``T0_S`` on."""
    return LocalHistory(
        kept=[KeptRecord(SiteName(site), record, 0.0) for site, record in records],
        spans=[WatchedTime(SiteName(name), T0_S + begin_s, T0_S + end_s) for name in sites],
        capacities={SiteName(name): has for name, has in sites.items()},
    )
