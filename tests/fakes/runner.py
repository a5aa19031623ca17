"""A ``Runner`` that answers Slurm's commands by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from federator.slurm.client import ENVIRONMENT
from federator.slurm.runner import Completed

Answer = Callable[[Sequence[str]], Completed]


def printed(stdout: bytes | str, exit_status: int = 0, stderr: bytes = b"") -> Completed:
    data = stdout if isinstance(stdout, bytes) else stdout.encode()
    return Completed(exit_status=exit_status, stdout=data, stderr=stderr)


@dataclass
class FakeRunner:
    """Answers by function, and keeps what it was asked."""

    answer: Answer

    def __post_init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.told: list[bytes] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float,
        env: Mapping[str, str],
    ) -> Completed:
        assert timeout_s > 0
        assert env == ENVIRONMENT
        self.asked.append(tuple(argv))
        self.told.append(stdin)
        return self.answer(argv)
