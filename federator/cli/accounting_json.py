"""Jobs in the shape of ``sacct --json`` of Slurm 24.11, for tools that read that.

As in ``slurm_json``, only fields for which the federation has a value are there, and
``federation``. An attempt is a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from federator.cli.accounting_columns import AccountingLine, exit_of, reason_code, state_text
from federator.cli.node_lists import expanded
from federator.cli.signal_names import signal_of
from federator.cli.slurm_json import meta, number
from federator.errors import InvalidRequest
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow

_NO_ATTEMPT: Final = AccountingAttempt(attempt=0)


def accounts_of(rows: Iterable[AccountingRow], now_s: float, federation: str) -> dict[str, object]:
    """An answer of ``sacct --json``; the rows must have all attempts, with their use."""
    ordered = sorted(rows, key=lambda row: row.id)
    return {
        "jobs": [_job(row, now_s, federation) for row in ordered],
        "meta": meta("fsacct"),
        "errors": [],
        "warnings": [],
    }


def _association(row: AccountingRow, cluster: str) -> dict[str, object]:
    return {"account": row.tenant, "cluster": cluster, "partition": "", "user": row.user}


def _job(row: AccountingRow, now_s: float, federation: str) -> dict[str, object]:
    last = row.last or _NO_ATTEMPT
    line = AccountingLine(row, last, now_s=now_s, federation=federation)
    made = (*row.earlier, *(() if row.last is None else (row.last,)))
    cluster = last.site or federation
    return {
        **_asked(row),
        "account": row.tenant,
        "allocation_nodes": last.nodes,
        "array": {
            "job_id": row.array_id,
            "task_id": number(row.array_index if row.array_id and not row.array_tasks else None),
            "task": row.array_tasks.strip("[]"),
        },
        "association": _association(row, cluster),
        "cluster": cluster,
        "exit_code": _exit_code(*exit_of(line)),
        "derived_exit_code": _exit_code(0, 0),
        "job_id": row.id,
        "kill_request_user": row.cancelled_by,
        "nodes": last.node_list or "None assigned",
        "partition": last.partition or row.asked_partition,
        "restart_cnt": max(0, last.attempt - 1),
        "state": {
            "current": [state_text(line).partition(" ")[0]],
            "reason": reason_code(row.reason),
        },
        "steps": [_step(row, each, now_s) for each in made],
        "time": _times(row, line),
        "tres": {"allocated": _allocated(last), "requested": _requested(row)},
        "federation": {
            "site": last.site,
            "site_job_id": last.site_job_id,
            "gpus": last.gpus or row.asked_gpus,
            "project": row.project,
        },
    }


def _asked(row: AccountingRow) -> dict[str, object]:
    """What a submission says."""
    on_node = row.asked_mem_mib // max(1, row.asked_nodes)
    return {
        "comment": {"administrator": "", "job": row.comment, "system": ""},
        "name": row.name,
        "priority": number(row.priority),
        "qos": row.qos,
        "required": {"CPUs": row.asked_cpus, "memory_per_node": number(on_node or None)},
        "user": row.user,
        "working_directory": row.work_dir,
    }


def _times(row: AccountingRow, line: AccountingLine) -> dict[str, object]:
    started_s = line.attempt.started_at_s
    planned_s = (started_s or row.over_at_s or line.now_s) - row.eligible_at_s
    limit_s = row.time_limit_s
    return {
        "elapsed": line.elapsed_s,
        "eligible": int(row.eligible_at_s),
        "end": int(line.attempt.ended_at_s or row.over_at_s),
        "limit": number(inf if limit_s == inf else limit_s / 60),
        "planned": number(max(0.0, planned_s) if row.eligible_at_s else None),
        "start": int(started_s),
        "submission": int(row.submitted_at_s),
        "suspended": 0,
        **_cpu_times(line.attempt),
    }


def _cpu_times(made: AccountingAttempt) -> dict[str, object]:
    use = made.use
    return {
        "system": _span(use.system_cpu_s if use is not None else None),
        "total": _span(use.cpu_s if use is not None else None),
        "user": _span(use.user_cpu_s if use is not None else None),
    }


def _span(seconds: float | None) -> dict[str, int]:
    """As Slurm writes it, 0 for a time that nobody measured."""
    whole, micro = divmod(round((seconds or 0.0) * 1e6), 1_000_000)
    return {"seconds": whole, "microseconds": micro}


def _step(row: AccountingRow, made: AccountingAttempt, now_s: float) -> dict[str, object]:
    line = AccountingLine(row, made, is_step=True, now_s=now_s)
    return {
        "time": {
            "elapsed": line.elapsed_s,
            "end": number(made.ended_at_s or None),
            "start": number(made.started_at_s or None),
            "suspended": 0,
            **_cpu_times(made),
        },
        "exit_code": _exit_code(made.exit_code, made.signal),
        "nodes": {
            "count": made.nodes,
            "range": made.node_list,
            "list": _node_names(made.node_list),
        },
        "state": [state_text(line).partition(" ")[0]],
        "step": {"id": f"{row.id}.{made.attempt}", "name": made.site},
        "tres": {
            "allocated": _allocated(made),
            "consumed": {"max": [], "min": [], "average": [], "total": _consumed(made)},
            "requested": {"max": [], "min": [], "average": [], "total": []},
        },
        "federation": {"site": made.site, "site_job_id": made.site_job_id, "gpus": made.gpus},
    }


def _node_names(text: str) -> list[str]:
    try:
        return sorted(expanded(text, "nodes")) if text else []
    except InvalidRequest:
        return []


def _exit_code(code: int, signal: int) -> dict[str, object]:
    status = "SIGNALED" if signal else "ERROR" if code else "SUCCESS"
    return {
        "status": [status],
        "return_code": number(code),
        "signal": {"id": number(signal or None), "name": signal_of(signal)},
    }


def _tres(kind: str, count: float, name: str = "") -> dict[str, object]:
    ids = {"cpu": 1, "mem": 2, "node": 4, "billing": 5, "gres": 1001}
    return {"type": kind, "name": name, "id": ids[kind], "count": int(count)}


def _allocated(made: AccountingAttempt) -> list[dict[str, object]]:
    if not made.nodes:
        return []
    types = (kind.partition("=") for kind in made.gpu_types.split(",") if kind)
    return [
        _tres("cpu", made.cpus),
        *([_tres("mem", made.mem_mib)] * bool(made.mem_mib)),
        _tres("node", made.nodes),
        *([_tres("gres", made.gpus, "gpu")] * bool(made.gpus)),
        *(_tres("gres", int(count), f"gpu:{name}") for name, _, count in types),
    ]


def _requested(row: AccountingRow) -> list[dict[str, object]]:
    return [
        _tres("cpu", row.asked_cpus),
        *([_tres("mem", row.asked_mem_mib)] * bool(row.asked_mem_mib)),
        _tres("node", row.asked_nodes or 1),
        *([_tres("gres", row.asked_gpus, "gpu")] * bool(row.asked_gpus)),
    ]


def _consumed(made: AccountingAttempt) -> list[dict[str, object]]:
    use = made.use
    if use is None:
        return []
    found = [_tres("cpu", use.cpu_s * 1000)] if use.cpu_s is not None else []
    return [*found, *([_tres("mem", use.mem_mib * 2**20)] if use.mem_mib is not None else [])]
