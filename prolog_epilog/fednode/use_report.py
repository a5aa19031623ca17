"""Reports how a job of the federation used its GPUs on this node, by a file in its site's spool.

The agent reads ``<spool>/usage/JOB.NODE``, JOB being the leader's id of a het job, and removes it.
"""

import json
import os
from typing import Any, Dict

from fednode import lease, records


def report(folder: str, job: records.JobRecord, usage: "Dict[str, Any]", now_s: float) -> None:
    """Write the file in one step; nothing for jobs that are not the federation's.

    Raises:
        OSError: it cannot be written.
    """
    if lease.attempt_of(job.comment) is None:
        return
    name = f"{job.het_job or job.job}.{job.node}"
    text = json.dumps(
        {"user": job.user, "gpus": len(job.gpus), "at_s": round(now_s, 3), "usage": usage}
    )
    fresh = os.path.join(folder, f".{name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(fresh, flags, 0o644)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)
    os.rename(fresh, os.path.join(folder, name))
