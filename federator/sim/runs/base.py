"""Independent runs as values, and their results in the order of the runs.

A run that fails names itself, and the others go on. Results cross processes, and files, as
MessagePack; they do so even where one process does all the work, so that a result is the same
wherever it was made.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from federator.errors import FederatorError
from federator.sim.runs.kept import KeptRuns, digest_of

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Progress = Callable[[float], None]
"""Called now and then with the fraction that is done, from 0 to 1."""


class Task(Protocol[R_co]):
    """The work of a run: a frozen dataclass of a module, with all that its result depends on.

    Its fields, and its result, are what msgspec can encode.
    """

    def __call__(self, progress: Progress, /) -> R_co:
        """Do it; the same fields give the same result, unless it measures the machine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRun(Generic[R_co]):
    """One piece of work that waits for no other.

    Attributes:
        name: by which a person tells it from the others of the command.
        task: the work.
        returns: the type of its result.
    """

    name: str
    task: Task[R_co]
    returns: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """A run without a result, and why: one line for a person."""

    name: str
    reason: str


class RunsFailed(FederatorError):
    """Some runs of a command have no result; its text names them."""


Finished = tuple[int, bytes | RunFailure]
"""The number of a run, and its encoded result."""


class Executor(Protocol):
    """Does runs somewhere, in an order of its own."""

    def perform(
        self, runs: Sequence[SimRun[Any]], progress: Callable[[int, float], None]
    ) -> Generator[Finished, None, None]:
        """Do all of them. When the generator is closed, the work ends.

        Args:
            runs: the work.
            progress: called now and then with the number of a run and the fraction of it that is
                done; where that is not known it is not called.

        Returns:
            Each run once, as it finishes.
        """
        ...


def performed(run: SimRun[Any], progress: Progress) -> bytes | RunFailure:
    """Do one run here; every error is a value."""
    try:
        return msgspec.msgpack.encode(run.task(progress))
    except FederatorError as error:
        return RunFailure(name=run.name, reason=_one_line(error))
    except Exception as error:  # a mistake in one run is not that of the others
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        said = f"{type(error).__name__}: {_one_line(error)} ({where})"
        return RunFailure(name=run.name, reason=said)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


class _Share:
    """All that is done of some runs, as one fraction."""

    def __init__(self, runs: int, progress: Progress) -> None:
        self._fracs = [0.0] * runs
        self._progress = progress

    def reached(self, number: int, frac: float) -> None:
        """So much of a run is done; it never becomes less."""
        self._fracs[number] = max(self._fracs[number], min(frac, 1.0))
        self._progress(sum(self._fracs) / len(self._fracs))


def outcomes(
    runs: Sequence[SimRun[R]],
    executor: Executor,
    *,
    kept: KeptRuns | None = None,
    progress: Progress = lambda _: None,
) -> Generator[R | RunFailure, None, None]:
    """Do runs, but for those whose results are kept.

    Args:
        runs: the work; those whose tasks are equal may be done once each.
        executor: where it is done.
        kept: results of earlier calls, and where those of this one go as they finish.
        progress: of all runs together.

    Returns:
        A result or a failure for each run, in their order, as soon as all before it are known.

    Raises:
        InvalidRequest: a result cannot be kept.
    """
    share = _Share(len(runs), progress)
    digests = [digest_of(run.task) if kept is not None else "" for run in runs]
    found: dict[int, bytes | RunFailure] = {}
    if kept is not None:
        for number, run in enumerate(runs):
            if (old := kept.find(digests[number], run.returns)) is not None:
                found[number] = old
                share.reached(number, 1.0)
    left = [number for number in range(len(runs)) if number not in found]
    todo = [runs[number] for number in left]
    with closing(executor.perform(todo, lambda k, frac: share.reached(left[k], frac))) as finished:
        for number, run in enumerate(runs):
            while number not in found:
                k, result = next(finished)
                found[left[k]] = result
                share.reached(left[k], 1.0)
                if kept is not None and isinstance(result, bytes):
                    kept.keep(digests[left[k]], todo[k].name, result)
            yield _decoded(run, found.pop(number))


def _decoded(run: SimRun[Any], result: bytes | RunFailure) -> Any:
    if isinstance(result, RunFailure):
        return result
    return msgspec.msgpack.decode(result, type=run.returns)


def results(found: Sequence[R | RunFailure]) -> list[R]:
    """The results of runs that all have one.

    Raises:
        RunsFailed: some have none.
    """
    failed = [one for one in found if isinstance(one, RunFailure)]
    if failed:
        first = f"{failed[0].name}: {failed[0].reason}"
        others = ", ".join(one.name for one in failed[1:6])
        more = f"; also {others}" if others else ""
        more += f" and {len(failed) - 6} more" if len(failed) > 6 else ""
        raise RunsFailed(f"{len(failed)} of {len(found)} runs failed: {first}{more}")
    return [one for one in found if not isinstance(one, RunFailure)]
