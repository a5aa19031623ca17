"""simple-slurm: an array, a job that depends on it, one that fails, one that is cancelled."""

import time

from simple_slurm import Slurm


def states(*ids):
    """By id, as the client's own view of the queue has them; those that have left it are absent."""
    view = Slurm().squeue
    view.update_squeue()
    return {id_: view.jobs[int(id_)]["ST"] for id_ in ids if int(id_) in view.jobs}


parts = Slurm(array=range(3), gres="gpu:1", job_name="parts", output="part-%a.out", time="10")
first = parts.sbatch("echo part $SLURM_ARRAY_TASK_ID at $FED_SITE")
whole = Slurm(dependency={"afterok": first}, job_name="whole", output="whole.out", time="10")
second = whole.sbatch("cat part-*.out; echo whole at $FED_SITE")
bad = Slurm(job_name="bad", output="bad.out", time="10").sbatch("exit 3")
after = Slurm(dependency={"afternotok": bad}, output="after.out", time="10").sbatch("echo after")
stopped = Slurm(job_name="stopped", output="stopped.out", time="10").sbatch("sleep 600; echo never")
Slurm().scancel.cancel_job(stopped)
deadline = time.monotonic() + 400
while states(second, after, stopped) and time.monotonic() < deadline:
    time.sleep(1)
print(*(int(id_) > 2**32 for id_ in (first, second, bad, after, stopped)))
