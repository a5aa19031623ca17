"""What must be known of a job from its start on? Its record, and DCGM's mapping files.

The first thing that fed-prolog does, for every job and whatever the gate then says of it; the
epilog takes both away.
"""

import time
from typing import Dict, List

from fednode import config, dcgm, records
from fednode.epilog import SCHEMA


def note(environ: "Dict[str, str]", file: str = config.PATH) -> "List[str]":
    """Write down the job whose prolog runs with ``environ``; return what went wrong. Never raises.

    A few milliseconds; asks neither Slurm nor the driver.
    """
    troubles = []  # type: List[str]
    try:
        shared, own, _ = config.load("epilog", SCHEMA, file)
        job = records.from_environment(environ, time.time())
    except (OSError, ValueError) as error:
        return [f"the job is not written down: {error}"]
    try:
        records.write(job, shared["state_dir"])
    except OSError as error:
        troubles.append(f"the job's record: {error}")
    setting = own["dcgm_mapping_dir"]
    if setting is not None and job.gpus:
        try:
            dcgm.write(dcgm.directory(setting, job.node), job.gpus, job.job)
        except OSError as error:
            troubles.append(f"the job's mapping files: {error}")
    return troubles
