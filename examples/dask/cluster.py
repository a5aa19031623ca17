"""Dask workers as jobs of the federation: ``cluster.py WORKERS [OPTION=VALUE...]``.

OPTIONs are those of dask-jobqueue. It prints the address of a scheduler, for ``--dask ADDRESS`` of
``federator simulate``, ``whatif`` and ``experiment``, and keeps it up until it is interrupted. Run
it on a login node, with dask-jobqueue and federator[dask] installed where every site sees them.
Each worker is a job that ``fsbatch`` submits: the federation chooses its site, and nodes there must
reach this host.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from dask_jobqueue.slurm import SLURMCluster, SLURMJob


class FederationJob(SLURMJob):
    """A worker that the federation starts: its commands take sbatch's and scancel's words."""

    submit_command = "fsbatch"
    cancel_command = "fscancel"


class FederationCluster(SLURMCluster):
    """Workers wherever the federation finds room."""

    job_cls = FederationJob


def cluster(**options: Any) -> FederationCluster:
    """A cluster whose workers have a process, a core and 2 GB each, for a day."""
    sized = {"cores": 1, "processes": 1, "memory": "2GB", "walltime": "24:00:00"}
    return FederationCluster(**{**sized, **options})


def main() -> None:
    count, *options = sys.argv[1:]
    pairs = [option.partition("=") for option in options]
    typed = {name: int(value) if value.isdigit() else value for name, _, value in pairs}
    with cluster(**typed) as workers:
        workers.scale(jobs=int(count))
        print(workers.scheduler_address, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
