"""PSI/J: a job that ends well, one that fails, one that is cancelled, by its own polling.

It reads a job's exit status from a file that the job names by ``SLURM_JOB_ID``, and looks for it by
the number that it was told, which is the federation's: so the jobs are to name it by that. It
quotes whatever it is given for the job's environment; what bash reads first is not its own.
"""

import os
from datetime import timedelta
from pathlib import Path

from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
from psij.executors.batch.slurm import SlurmExecutorConfig

first = Path.cwd() / "first.sh"
first.write_text('if [ "$FED_JOB_ID" ]; then export SLURM_JOB_ID=$FED_JOB_ID; fi\n')
os.environ["BASH_ENV"] = str(first)  # the jobs get the environment
config = SlurmExecutorConfig(
    queue_polling_interval=3,  # s; by itself it looks every 30
    work_directory=Path.cwd() / "psij",  # by itself ~/.psij/work, which sites do not share
)
executor = JobExecutor.get_instance("slurm", config=config)


def submitted(name, *argv):
    """A job of that name that runs a command."""
    job = Job(
        JobSpec(
            name=name,
            executable=argv[0],
            arguments=list(argv[1:]),
            stdout_path=Path.cwd() / f"psij-{name}.out",
            resources=ResourceSpecV1(node_count=1, process_count=1, cpu_cores_per_process=1),
            attributes=JobAttributes(
                duration=timedelta(minutes=10), custom_attributes={"slurm.gres": "gpu:1"}
            ),
            launcher="single",
        )
    )
    executor.submit(job)
    return job


good = submitted("good", "/bin/sh", "-c", "echo well at $FED_SITE")
bad = submitted("bad", "/bin/sh", "-c", "exit 3")
stopped = submitted("stopped", "/bin/sleep", "600")
stopped.cancel()
for job in (good, bad, stopped):
    status = job.wait(timedelta(seconds=480))
    print(job.spec.name, status.state.name if status else "no end", status and status.exit_code)
