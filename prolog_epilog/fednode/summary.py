"""Sums up how well a job used its GPUs on this node: the watch keeps it, the epilog logs it.

A tally is what the watch has seen of a job so far; ``<state_dir>/<node>/watch.json`` holds those of
all jobs. Jobs shorter than the watch's interval may have none.
"""

import os
from typing import Any, Dict, Mapping, Optional, Sequence

from fednode import records, swings
from fednode.watching import Reading

FILE = "watch.json"


def watch_file(state_dir: str, node: str) -> str:
    """Return where the watch of ``node`` keeps what it knows."""
    return os.path.join(state_dir, node, FILE)


def added(
    tally: "Optional[Dict[str, Any]]",
    readings: "Sequence[Optional[Reading]]",
    looks: "Sequence[Optional[float]]" = (),
) -> "Dict[str, Any]":
    """Return the tally with one more run of the watch; what is not known adds nothing.

    Args:
        readings: the most that its looks saw of each GPU.
        looks: how busy all the job's GPUs were at each of them, in their order.
    """
    tally = dict(tally or {})
    tally["looks"] = tally.get("looks", 0) + 1
    known = [reading for reading in readings if reading is not None]
    for name, values in (
        ("busy", [r.use_frac for r in known if r.use_frac is not None]),
        ("engine", [r.engine_frac for r in known if r.engine_frac is not None]),
        ("memory", [r.memory_mib for r in known if r.memory_mib is not None]),
        ("total", [r.total_mib for r in known if r.total_mib is not None]),
        ("power", [r.power_frac for r in known if r.power_frac is not None]),
    ):
        tally[name + "_n"] = tally.get(name + "_n", 0) + len(values)
        tally[name + "_sum"] = tally.get(name + "_sum", 0.0) + sum(values)
        tally[name + "_most"] = max([tally.get(name + "_most", 0.0), *values])
    tally["swings"] = swings.counted(tally.get("swings"), looks)
    return tally


def as_record(tally: "Mapping[str, Any]") -> "Dict[str, Any]":
    """Return a tally in the words of the log; what is not known is null."""
    busy_n, memory_n = tally["busy_n"], tally["memory_n"]
    power_n, total_n = tally.get("power_n", 0), tally.get("total_n", 0)  # older ones lack both
    line = {
        "looks": tally["looks"],
        "gpu_busy_mean_frac": round(tally["busy_sum"] / busy_n, 4) if busy_n else None,
        "gpu_busy_most_frac": round(tally["busy_most"], 4) if busy_n else None,
        "memory_mean_mib": round(tally["memory_sum"] / memory_n) if memory_n else None,
        "memory_most_mib": round(tally["memory_most"]) if memory_n else None,
    }  # type: Dict[str, Any]
    if total_n:
        line["memory_total_mib"] = round(tally["total_most"])
    if tally.get("engine_n"):
        line["gpu_busy_dcgm_frac"] = round(tally["engine_n"] / busy_n, 4)
    if power_n:
        line["gpu_power_mean_frac"] = round(tally["power_sum"] / power_n, 4)
    line.update(swings.as_record(tally.get("swings", {})))
    return line


def usage(job: records.JobRecord, state_dir: str) -> "Optional[Dict[str, Any]]":
    """Return how the job used its GPUs by the watch; None where it has not seen it."""
    try:
        state = records.read_json(watch_file(state_dir, job.node))
        seen = state["jobs"][str(job.job)]
        return as_record(seen["tally"]) if state["boot"] == job.boot else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def of_job(
    job: records.JobRecord, environ: "Dict[str, str]", now_s: float, known: bool
) -> "Dict[str, Any]":
    """Return the head of the job's line: who, where, when, how it ended.

    Args:
        known: whether the job's prolog left a record; without one its start is not known.
    """
    line = {
        "at_s": round(now_s, 3),
        "job": job.job,
        "node": job.node,
        "user": job.user,
        "uid": job.uid,
        "partition": job.partition,
        "gpus": list(job.gpus),
        "comment": job.comment[:256],
        "started_at_s": round(job.started_at_s, 3) if known else None,
    }  # type: Dict[str, Any]
    if environ.get("SLURM_JOB_EXIT_CODE2"):
        line["exit"] = environ["SLURM_JOB_EXIT_CODE2"][:16]
    return line
