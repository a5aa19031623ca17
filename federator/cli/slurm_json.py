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
from federator.cli.node_lists import folded
from federator.cli.queue_columns import Shown, end_s, own_id, reason_word
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
    return {
        "batch_host": row.node_names[0] if row.node_names else "",
        "cluster": row.site,
        "cpus": number(details.cpus),
        "features": shown.option("constraint", ""),
        "memory_per_node": number(details.min_mem_mib or None),
        "node_count": number(row.nodes),
        "nodes": folded(row.node_names),
        "partition": ",".join(details.partitions),
        "requeue": details.requeue,
        "restart_cnt": details.restarts,
        "tasks": number(_tasks(shown)),
        "tres_per_node": shown.option("gres", ""),
    }


def _times(shown: Shown) -> dict[str, object]:
    row, end = shown.row, end_s(shown)
    return {
        "eligible_time": number(row.submitted_at_s),
        "end_time": number(0 if end == inf else end),
        "start_time": number(row.started_at_s),
        "submit_time": number(row.submitted_at_s),
        "time_limit": number(row.time_limit_s / 60),
    }


def _tasks(shown: Shown) -> int:
    tasks = shown.option("ntasks", "")
    return int(tasks) if tasks.isdecimal() else max(1, shown.row.nodes)


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
