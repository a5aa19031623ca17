"""The nodes' shares of each running job of the federation, looked up once for each start.

squeue names a job's nodes, and scontrol alone the GPUs, CPUs and memory on each of them; a job that
runs holds the same to its end. So it is asked singly for a few starts, and by one dump of all jobs
for many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from federator.model.site import SiteJob
from federator.slurm.parse_base import Reading, problem
from federator.slurm.parse_jobs import Layout, is_federated, parse_layout, parse_layouts
from federator.slurm.runner import Completed

LOOKUPS_AT_ONCE: Final = 4  # more jobs than this are looked up by one dump of all


class Commands(Protocol):
    """Runs a command of Slurm's."""

    async def __call__(self, argv: Sequence[str], /, *, may_fail: bool) -> Completed:
        """Run it to its end.

        Raises:
            SiteUnavailable: Slurm does not answer; or it failed, and may not.
        """
        ...


class Shares:
    """The known shares of the jobs of one Slurm.

    Args:
        run: runs its commands.
    """

    def __init__(self, run: Commands) -> None:
        self._run = run
        self._held: dict[tuple[int, float], Layout | str] = {}  # by job and start; or why unknown

    async def filled_in(
        self, reading: Reading[SiteJob], launched: Collection[int]
    ) -> Reading[SiteJob]:
        """Return the jobs with the shares of the federation's running ones.

        Args:
            launched: (leaders') ids of jobs that are the federation's, whatever they are called.

        Raises:
            SiteUnavailable: Slurm does not answer.
        """
        running = {
            (job.job_id, job.started_at_s): job
            for job in reading.records
            if job.nodes
            and (
                is_federated(job)  # or was renamed since
                or job.leader_id in launched
                or (job.job_id, job.started_at_s) in self._held
            )
        }
        self._held = {key: held for key, held in self._held.items() if key in running}
        await self._look_up([job for key, job in running.items() if key not in self._held])
        jobs = tuple(self._filled(job) for job in reading.records)
        unknown = tuple(held for held in self._held.values() if isinstance(held, str))
        return replace(reading, records=jobs, problems=reading.problems + unknown)

    def _filled(self, job: SiteJob) -> SiteJob:
        held = self._held.get((job.job_id, job.started_at_s))
        if not job.nodes or not isinstance(held, dict):
            return job
        return replace(
            job, nodes={name: held.get(name, share) for name, share in job.nodes.items()}
        )

    async def _look_up(self, jobs: list[SiteJob]) -> None:
        """Remember what ``jobs`` hold. Those that a dump leaves unclear are asked for singly."""
        if len(jobs) > LOOKUPS_AT_ONCE:
            dump = await self._run(("scontrol", "-a", "-d", "-o", "show", "jobs"), may_fail=False)
            layouts, _ = parse_layouts(dump.stdout.decode("utf-8", "replace"))
            jobs = [job for job in jobs if not self._remember(job, layouts)]
        for start in range(0, len(jobs), LOOKUPS_AT_ONCE):
            batch = jobs[start : start + LOOKUPS_AT_ONCE]
            await asyncio.gather(*(self._look_up_one(job) for job in batch))

    async def _look_up_one(self, job: SiteJob) -> None:
        argv = ("scontrol", "-a", "-d", "-o", "show", "job", str(job.job_id))
        done = await self._run(argv, may_fail=True)
        if done.exit_status != 0:
            return  # it ended meanwhile; if not, the next sweep asks again
        try:
            layout = parse_layout(done.stdout.decode("utf-8", "replace"), job.job_id)
            if not self._remember(job, {job.job_id: layout}):
                raise ValueError("squeue and scontrol name different nodes")
        except ValueError as error:
            why = problem("what is held by job", str(job.job_id), error)
            self._held[job.job_id, job.started_at_s] = why

    def _remember(self, job: SiteJob, layouts: Mapping[int, Layout]) -> bool:
        """Keep a job's layout, if it speaks of the very nodes that squeue names."""
        layout = layouts.get(job.job_id)
        if layout is None or layout.keys() != job.nodes.keys():
            return False
        self._held[job.job_id, job.started_at_s] = layout
        return True
