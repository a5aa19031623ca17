"""Reads the jobs of all partitions that hold nodes: what will come free at a site, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final

from federator.model.site import LocalJob, Node
from federator.slurm.parse_base import Reading
from federator.slurm.parse_jobs import OTHERS_FORMAT, parse_others
from federator.slurm.runner import Completed

OTHERS_FRESH_S: Final = 30.0  # where nodes did not change


class OtherJobs:
    """The jobs as they were last read.

    Args:
        run: runs a command at the site.
        clock: Unix time there.
    """

    def __init__(
        self, run: Callable[[Sequence[str]], Awaitable[Completed]], clock: Callable[[], float]
    ) -> None:
        self._run = run
        self._clock = clock
        self._read: Reading[LocalJob] | None = None
        self._on: tuple[Node, ...] = ()  # the nodes when they were read
        self._until_s = 0.0

    async def on(self, nodes: tuple[Node, ...]) -> Reading[LocalJob]:
        """Return the jobs.

        With nodes that are as they were the last time, what was read then, if that is not long ago
        and nothing of it should have ended.
        """
        if self._read is None or nodes != self._on or self._clock() >= self._until_s:
            argv = ("squeue", "--local", "-h", "-a", "-t", "R,CF,CG,S", "-O", OTHERS_FORMAT)
            self._read = parse_others((await self._run(argv)).stdout)
            self._on, now_s = nodes, self._clock()
            ends = (job.ends_by_s for job in self._read.records if job.ends_by_s > now_s)
            self._until_s = min(now_s + OTHERS_FRESH_S, min(ends, default=inf))
        return self._read
