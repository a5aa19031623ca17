"""Jobs and nodes in the shape of Slurm's data_parser v0.0.42, for tools that read that.

``squeue --json`` and ``sinfo --json`` of Slurm 24.11 write it. A number that may be missing is
``{"set", "infinite", "number"}``. Only fields for which the federation has a value are there, and
``federation``, which Slurm does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from federator import __version__
from federator.cli.job_states import state_name
from federator.cli.node_columns import (
    Group,
    gres_text,
    gres_used_text,
    idle_cpus,
    node_counts,
    state_words,
)
from federator.cli.node_lists import folded
from federator.cli.queue_columns import Shown, eligible_s, end_s, own_id, reason_word
from federator.wire.client_protocol import QueueRow

DATA_PARSER = "data_parser/v0.0.42"


def number(value: float | None) -> dict[str, object]:
    """A number as data_parser writes it; None: not set; inf: no limit."""
    known = value is not None and value != inf
    return {
        "set": known,
        "infinite": value == inf,
        "number": int(value) if known and value is not None else 0,
    }


def meta(command: str) -> dict[str, object]:
    """What data_parser says of the program that wrote an answer."""
    return {
        "plugin": {"type": "", "name": "", "data_parser": DATA_PARSER, "accounting_storage": ""},
        "client": {"source": "", "user": "", "group": ""},
        "command": [command],
        "slurm": {
            "version": {"major": "24", "micro": "0", "minor": "11"},
            "release": f"federator {__version__}",
            "cluster": "",
        },
    }


def jobs_of(rows: Sequence[QueueRow], now_s: float) -> dict[str, object]:
    """An answer of ``squeue --json``; the rows must have details and files."""
    return {
        "jobs": [_job(Shown(row, now_s)) for row in rows],
        "last_backfill": number(0),
        "last_update": number(now_s),
        "meta": meta("fsqueue"),
        "errors": [],
        "warnings": [],
    }


def _job(shown: Shown) -> dict[str, object]:
    row = shown.row
    return {
        "account": row.tenant,
        "array_job_id": number(row.array_id),
        "array_task_id": number(row.array_index if row.array_id else None),
        "array_task_string": row.array_tasks.strip("[]"),
        "batch_flag": True,
        "command": row.command,
        "comment": shown.option("comment", ""),
        "current_working_directory": row.work_dir,
        "exit_code": _exit_code(row),
        "het_job_id": number(row.id if row.jobs > 1 else 0),
        "het_job_offset": number(0),
        "job_id": own_id(row),
        "job_state": [state_name(row)],
        "name": row.name,
        "priority": number(row.priority),
        "qos": shown.option("qos", ""),
        "standard_error": row.stderr or row.stdout,
        "standard_input": row.stdin,
        "standard_output": row.stdout,
        "state_description": row.reason.detail if row.reason is not None else "",
        "state_reason": reason_word(shown),
        "user_name": row.user,
        "wckey": shown.option("wckey", ""),
        "federation": {"site": row.site, "site_job_id": row.site_job_id, "gpus": row.gpus},
        **_placement(shown),
        **_times(shown),
    }


def _placement(shown: Shown) -> dict[str, object]:
    row, details = shown.row, shown.details
    memory = details.min_mem_mib or None
    return {
        "batch_host": row.node_names[0] if row.node_names else "",
        "cluster": row.site,
        "cpus": number(details.cpus),
        "features": shown.option("constraint", ""),
        "memory_per_cpu": number(memory if details.min_mem_of == "cpu" else None),
        "memory_per_node": number(None if details.min_mem_of else memory),
        "node_count": number(row.nodes or 1),
        "nodes": folded(row.node_names),
        "partition": ",".join(details.partitions),
        "requeue": details.requeue,
        "restart_cnt": details.restarts,
        "tasks": number(details.tasks_on(row.nodes)),
        "tres_per_node": shown.option("gres", ""),
    }


def _times(shown: Shown) -> dict[str, object]:
    row, end = shown.row, end_s(shown)
    return {
        "eligible_time": number(eligible_s(shown)),
        "end_time": number(0 if end == inf else end),
        "start_time": number(row.started_at_s),
        "submit_time": number(row.submitted_at_s),
        "time_limit": number(row.time_limit_s / 60),
    }


def _exit_code(row: QueueRow) -> dict[str, object]:
    if row.exit_code is None:
        status = "PENDING"
    elif row.signal:
        status = "SIGNALED"
    else:
        status = "SUCCESS" if row.exit_code == 0 else "ERROR"
    return {
        "status": [status],
        "return_code": number(row.exit_code or 0),
        "signal": {"id": number(row.signal or None), "name": ""},
    }


def nodes_of(groups: Sequence[Group]) -> dict[str, object]:
    """An answer of ``sinfo --json``."""
    return {
        "sinfo": [_group(group) for group in groups],
        "meta": meta("fsinfo"),
        "errors": [],
        "warnings": [],
    }


def _group(group: Group) -> dict[str, object]:
    first = group.nodes[0] if group.nodes else None
    features = ",".join(first.features) if first is not None else ""
    return {
        "cluster": group.site.name,
        "cpus": _cpus(group),
        "features": {"total": features, "active": features},
        "gres": {
            "total": gres_text(first) if first is not None else "",
            "used": gres_used_text(first) if first is not None else "",
        },
        "memory": {
            "minimum": min((node.mem_mib for node in group.nodes), default=0),
            "maximum": max((node.mem_mib for node in group.nodes), default=0),
            "allocated": sum(node.mem_mib_alloc for node in group.nodes),
        },
        "node": {"state": _node_states(group)},
        "nodes": _nodes(group),
        "partition": _partition(group),
        "reason": {
            "description": first.reason if first is not None else "",
            "time": 0,  # a plain number in data_parser v0.0.42, unlike other times
            "user": "",
        },
        "federation": {"site": group.site.name, "region": group.site.region},
    }


def _node_states(group: Group) -> list[str]:
    if not group.nodes:
        return []
    return [word.upper() for word in state_words(group.nodes[0])]


def _cpus(group: Group) -> dict[str, object]:
    cpus = [node.cpus for node in group.nodes]
    alloc, total = sum(node.cpus_alloc for node in group.nodes), sum(cpus)
    idle = idle_cpus(group.nodes)
    return {
        "minimum": min(cpus, default=0),
        "maximum": max(cpus, default=0),
        "allocated": alloc,
        "idle": idle,
        "other": total - alloc - idle,
        "total": total,
    }


def _nodes(group: Group) -> dict[str, object]:
    allocated, idle, other, total = node_counts(group.nodes)
    names = [node.name for node in group.nodes]
    return {
        "allocated": allocated,
        "idle": idle,
        "other": other,
        "total": total,
        "hostnames": names,
        "nodes": names,
    }


def _partition(group: Group) -> dict[str, object]:
    part = group.partition
    default_s = part.default_time_s
    return {
        "name": part.name,
        "defaults": {"time": number(None if default_s is None else default_s / 60)},
        "maximums": {
            "time": number(part.max_time_s / 60),
            "nodes": number(inf if part.max_nodes is None else part.max_nodes),
        },
        "minimums": {"nodes": part.min_nodes},
        "partition": {"state": ["UP" if part.up else "DOWN"]},
        "priority": {"tier": part.priority_tier},
    }
