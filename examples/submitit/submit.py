"""Submit with submitit to the federation: ``submit.py FOLDER count|double NUMBER...|cancel``.

On a login node, with ``bin`` of this folder first on PATH and submitit on PYTHONPATH, both where
every site of the region sees them. It prints the job's id, then what came of it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import counting
import submitit

LONGEST_S = 900
FUNCTIONS = "/opt/federator/user/federator/checkpoint/fed-checkpoint.sh"


def executor(folder: Path) -> submitit.AutoExecutor:
    jobs = folder / "jobs"
    made = submitit.AutoExecutor(jobs, cluster="slurm", slurm_python="python3")
    made.update_parameters(
        timeout_min=60,
        slurm_gres="gpu:a100:8",
        slurm_setup=[f". {FUNCTIONS}", "fed_submitit"],
    )
    return made


def show(job: submitit.Job[object]) -> None:
    ends_s = time.monotonic() + LONGEST_S
    while not job.done():
        if time.monotonic() > ends_s:
            print("failed not at its end yet")
            return
        time.sleep(0.5)
    try:
        print("result", job.result())
    except submitit.core.utils.UncompletedJobError as error:
        print("failed", str(error).strip().replace("\n", " "))


def main(folder: str, what: str, *numbers: str) -> None:
    # Sites of a region may know you by different UIDs: then each must read and write here.
    os.umask(0o022)
    (Path(folder) / "jobs").mkdir(exist_ok=True)
    (Path(folder) / "jobs").chmod(0o777)
    made = executor(Path(folder))
    if what == "double":
        jobs = made.map_array(counting.double, map(int, numbers))
    else:
        jobs = [made.submit(counting.Counting(), folder)]
    print(*(job.job_id for job in jobs), flush=True)
    if what == "cancel":
        jobs[0].cancel()
    for job in jobs:
        job.watcher._delay_s = 5  # the example's runs are short
        show(job)


if __name__ == "__main__":
    main(*sys.argv[1:])
