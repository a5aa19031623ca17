"""dask-jobqueue: a cluster of workers that are jobs, scaled up and down again."""

import os

from dask.distributed import Client
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    cluster = SLURMCluster(
        queue="fed",
        account="vision",
        cores=1,
        processes=1,
        memory="500MiB",
        walltime="00:10:00",
        interface="lo",
        python="python3",
        scheduler_options={"dashboard": False},
        worker_extra_args=["--no-dashboard"],
        job_script_prologue=[f"export PYTHONPATH={os.environ['PYTHONPATH']}"],
    )
    cluster.scale(jobs=2)
    with cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=480)
        print("total", client.submit(sum, client.map(abs, [-1, 2, -3])).result(timeout=240))
