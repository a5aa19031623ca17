"""The options that commands of several runs share: ``--jobs``, ``--dask`` and ``--resume``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from federator.cli.progress import progress_bar, since_last
from federator.errors import InvalidRequest
from federator.sim.runs.base import Executor, RunFailure, SimRun, outcomes
from federator.sim.runs.dask_cluster import DaskCluster
from federator.sim.runs.executors import InProcess, ProcessPool
from federator.sim.runs.kept import KeptRuns

_MOST_JOBS: Final = 1024

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


def run_options(command: F) -> F:
    """Add the options; the command gets ``jobs``, ``dask`` and ``resume``."""
    for option in (
        click.option(
            "--resume",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Keep the result of each run in DIR, and take from there what was done before.",
        ),
        click.option(
            "--dask",
            metavar="ADDRESS",
            help="Do the runs on the Dask cluster of this scheduler (needs federator[dask]).",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(1, _MOST_JOBS),
            default=1,
            show_default=True,
            metavar="N",
            help="So many runs at a time, a process each; the result is the same.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What was asked for.

    Attributes:
        command: its name, for messages.
        jobs: runs at a time.
        dask: address of a scheduler; None: runs are done on this machine.
        resume: the folder of kept results; None: nothing is kept.
    """

    command: str
    jobs: int
    dask: str | None
    resume: Path | None

    @property
    def default(self) -> bool:
        """Whether none of the options was given."""
        return self.jobs == 1 and self.dask is None and self.resume is None

    def outcomes(
        self, runs: Sequence[SimRun[R]], title: str
    ) -> Generator[R | RunFailure, None, None]:
        """Do the runs under a progress bar; results come in their order.

        Args:
            runs: the work.
            title: of the progress bar.

        Raises:
            InvalidRequest: the options exclude each other, a result cannot be kept, or Dask is
                missing or does not answer.
        """
        executor = self._executor()
        kept = KeptRuns.at(self.resume) if self.resume is not None else None
        with progress_bar(f"{title} ({len(runs)} runs)", 1.0) as advance:
            found = outcomes(runs, executor, kept=kept, progress=since_last(advance))
            with closing(found):
                yield from found
        for path in kept.unusable if kept is not None else ():
            click.echo(
                f"federator {self.command}: {path}: not the whole result of this run; done again",
                err=True,
            )

    def _executor(self) -> Executor:
        if self.dask is None:
            return InProcess() if self.jobs == 1 else ProcessPool(self.jobs)
        if self.jobs != 1:
            raise InvalidRequest("--jobs and --dask exclude each other; Dask's workers do the runs")
        return DaskCluster(self.dask)
