"""Records a job at its start: its record, and DCGM's mapping files.

The first thing that fed-prolog does, for every job and whatever the gate then says of it; the
epilog takes both away. A disk that hangs must not keep the lease and the checks from their turn.
"""

import threading
import time
from typing import Dict, List

from fednode import config, dcgm, records
from fednode.epilog_keys import SCHEMA

_LIMIT_S = 1.0


def note(environ: "Dict[str, str]", file: str = config.PATH) -> "List[str]":
    """Write down the job whose prolog runs with ``environ``; return what went wrong. Never raises.

    A few milliseconds, and never more than a second; asks neither Slurm nor the driver.
    """
    troubles = []  # type: List[str]
    thread = threading.Thread(target=_note, args=(environ, file, troubles), daemon=True)
    thread.start()
    thread.join(_LIMIT_S)
    late = [f"the job is not written down within {_LIMIT_S:g} s"] if thread.is_alive() else []
    return [*troubles, *late]


def _note(environ: "Dict[str, str]", file: str, troubles: "List[str]") -> None:
    try:
        shared, own, _ = config.load("epilog", SCHEMA, file)
        job = records.from_environment(environ, time.time())
        shared = config.of_node(shared, job.node)
    except (OSError, ValueError) as error:
        troubles.append(f"the job is not written down: {error}")
        return
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
