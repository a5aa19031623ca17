"""Does runs in this process, or in several processes of this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from federator.sim.runs.base import Finished, RunFailure, SimRun, performed

_TELL_EVERY_S: Final = 0.2  # how often a process says how far it is
_END_WITHIN_S: Final = 5.0
# New interpreters: a fork of a process with threads, such as a progress bar's, could hang.
_PROCESSES: Final = get_context("spawn")


class InProcess:
    """One run after the other, here."""

    def perform(
        self, runs: Sequence[SimRun[Any]], progress: Callable[[int, float], None]
    ) -> Generator[Finished, None, None]:
        """As ``Executor.perform``."""
        for number, run in enumerate(runs):
            yield number, performed(run, partial(progress, number))


@dataclass(frozen=True, slots=True)
class ProcessPool:
    """Some processes, each with one run at a time; one that dies has lost its run alone.

    Attributes:
        processes: at most so many at a time, at least 1.
    """

    processes: int

    def perform(
        self, runs: Sequence[SimRun[Any]], progress: Callable[[int, float], None]
    ) -> Generator[Finished, None, None]:
        """As ``Executor.perform``."""
        waiting = iter(enumerate(runs))
        workers: list[_Worker] = []
        try:
            for _ in range(min(self.processes, len(runs))):  # all of them start side by side
                workers.append(_Worker())
            for worker in workers:
                worker.give(next(waiting, None))
            while busy := {worker.pipe: worker for worker in workers if worker.run is not None}:
                for pipe in wait(list(busy)):
                    worker = busy[pipe]  # type: ignore[index]  # wait returns what it was given
                    finished = worker.heard(progress)
                    if finished is None:
                        continue
                    if not worker.lives:
                        workers.remove(worker)
                        workers.append(worker := _Worker())
                    worker.give(next(waiting, None))
                    yield finished
        finally:
            for worker in workers:
                worker.end()


class _Worker:
    """A process that does what it is given, and the pipe to it."""

    def __init__(self) -> None:
        self.run: tuple[int, SimRun[Any]] | None = None  # that it does now
        self.lives = True
        self.pipe, theirs = _PROCESSES.Pipe()
        self._process: BaseProcess = _PROCESSES.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()  # so that its death is the end of the pipe

    def give(self, run: tuple[int, SimRun[Any]] | None) -> None:
        self.run = run
        if run is not None:
            with suppress(OSError):  # it is dead, as will be heard
                self.pipe.send(run[1])

    def heard(self, progress: Callable[[int, float], None]) -> Finished | None:
        """Read a message; None: its run goes on."""
        assert self.run is not None
        number, run = self.run
        try:
            message: float | bytes | RunFailure = self.pipe.recv()
        except (EOFError, OSError):
            self.lives = False
            self._process.join(_END_WITHIN_S)
            return number, RunFailure(name=run.name, reason=_ending(self._process.exitcode))
        if isinstance(message, float):
            progress(number, message)
            return None
        return number, message

    def end(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join(_END_WITHIN_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"


def _serve(pipe: Connection) -> None:
    """Do one run after the other, until nobody is there to give another."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it
    try:
        while True:
            run: SimRun[Any] = pipe.recv()
            pipe.send(performed(run, _seldom(pipe)))
    except (EOFError, OSError):
        return


def _seldom(pipe: Connection) -> Callable[[float], None]:
    """Say how far a run is, but not more often than anybody could look."""
    sent_s = time.monotonic()

    def tell(frac: float) -> None:
        nonlocal sent_s
        now_s = time.monotonic()
        if now_s >= sent_s + _TELL_EVERY_S:
            sent_s = now_s
            pipe.send(frac)

    return tell
