"""Does runs on a Dask cluster, whose workers may be anywhere; needs the extra ``dask``.

Scheduler and workers of Dask trust each other: who reaches one can run code there. Use TLS or a
network of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from federator.errors import InvalidRequest
from federator.sim.runs.base import Finished, RunFailure, SimRun, performed
from federator.sim.runs.kept import code_digest

_ANSWER_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class DaskCluster:
    """A scheduler of Dask, and whatever workers it has or gets.

    Attributes:
        address: of the scheduler, such as ``tcp://10.0.0.5:8786``.
    """

    address: str

    def perform(
        self, runs: Sequence[SimRun[Any]], progress: Callable[[int, float], None]
    ) -> Generator[Finished, None, None]:
        """As ``Executor.perform``; how far a run is, is not known before it has finished.

        Raises:
            InvalidRequest: the library is missing, or no scheduler answers.
        """
        del progress
        if not runs:
            return
        client = self._client()
        try:
            from distributed import as_completed  # noqa: PLC0415 - an extra, and slow to import

            numbers = {
                client.submit(perform_there, run, code_digest(), pure=False): number
                for number, run in enumerate(runs)
            }
            finished = as_completed(list(numbers), with_results=True, raise_errors=False)
            for future, result in finished:
                number = numbers.pop(future)
                yield number, _finished(runs[number], future.status, result)
        finally:
            client.close()  # what is still to do is forgotten there

    def _client(self) -> Any:
        try:
            from distributed import Client  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise InvalidRequest(
                f"--dask: needs {error.name}, which is not installed here; install federator[dask]"
            ) from error
        try:
            return Client(self.address, timeout=_ANSWER_WITHIN_S)
        except (OSError, ValueError, TypeError, TimeoutError) as error:
            said = " ".join(str(error).split())[:200]
            raise InvalidRequest(
                f"--dask: {self.address[:100]}: no scheduler answers: {said}"
            ) from error


def perform_there(run: SimRun[Any], code: str) -> bytes | RunFailure:
    """Do a run at a worker, which must have the same code as who asks."""
    if code_digest() != code:
        return RunFailure(
            name=run.name, reason="the worker has other code of Federator, or other libraries"
        )
    return performed(run, lambda _: None)


def _finished(run: SimRun[Any], status: str, result: Any) -> bytes | RunFailure:
    if status == "finished" and isinstance(result, bytes | RunFailure):
        return result
    error = result[1] if isinstance(result, tuple) else result  # its type, itself, where
    return RunFailure(name=run.name, reason=" ".join(str(error).split())[:500] or status)
