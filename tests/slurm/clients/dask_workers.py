"""dask-jobqueue: a cluster of workers that are jobs, scaled up, adapted down, and closed."""

import os
import time

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
        interface="eth0",  # which the workers of both sites reach
        job_extra_directives=["--gres=gpu:8"],
        python="python3",
        scheduler_options={"dashboard": False},
        worker_extra_args=["--no-dashboard"],
        job_script_prologue=[f"export PYTHONPATH={os.environ['PYTHONPATH']}"],
    )
    cluster.scale(jobs=2)
    with cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=480)
        print("at", *sorted(client.run(os.getenv, "FED_SITE").values()))
        print("total", client.submit(sum, client.map(abs, [-1, 2, -3])).result(timeout=240))
        try:
            client.submit(divmod, 1, 0).result(timeout=240)
        except ZeroDivisionError as error:
            print("failed", type(error).__name__)
        cluster.adapt(minimum_jobs=1, maximum_jobs=1, interval="1s", wait_count=1)
        deadline = time.monotonic() + 240
        while len(client.scheduler_info()["workers"]) > 1 and time.monotonic() < deadline:
            time.sleep(0.5)
        print("workers", len(client.scheduler_info()["workers"]))
