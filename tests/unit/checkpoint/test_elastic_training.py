"""A data-parallel training that goes on with other numbers of ranks keeps its loss curve.

Its ranks are threads, each with a part of the same global batch; their gradients are summed.
"""

from __future__ import annotations

import math
import threading
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest

from federator.checkpoint import Checkpointer, FederatedJob
from federator.checkpoint import checkpointer as module

BATCH: Final = 8  # samples of all ranks together, whatever their number
STEPS: Final = 24
TOLD_AFTER: Final = 6  # steps of each attempt
_draw = Random(7)
DATA: Final = [(x, 3.0 * x - 1.0 + _draw.gauss(0.0, 0.1)) for x in (k / 64 for k in range(64))]
Losses = dict[int, float]


class Clock:
    """Stands for the time module: at each look there is news to be expected."""

    def __init__(self) -> None:
        self._ticks = count(1000, 2)

    def monotonic(self) -> float:
        return float(next(self._ticks))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", Clock())


class Ring:
    """The ranks of one attempt: what each says, all know."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._said: list[float] = [0.0] * size
        self._barrier = threading.Barrier(size)

    def all(self, rank: int, number: float) -> list[float]:
        self._said[rank] = number
        self._barrier.wait(30.0)
        found = list(self._said)
        self._barrier.wait(30.0)  # nobody says the next before all have read
        return found


def train(folder: Path, attempt: int, size: int, *, leaves: bool) -> Losses:
    """One attempt on so many ranks: its losses by step, from its last checkpoint on."""
    losses: Losses = {}
    job = FederatedJob(folder, attempt, folder / ".fed" / f"deadline.{attempt}")
    ring, ends = Ring(size), []

    def rank(me: int) -> None:
        try:
            _train_rank(job, ring, me, losses, leaves=leaves)
        except SystemExit as end:
            ends.append(end.code)

    threads = [threading.Thread(target=rank, args=(me,)) for me in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert ends == ([module.EXIT_STATUS] * size if leaves else [])
    return losses


def _train_rank(job: FederatedJob, ring: Ring, me: int, losses: Losses, *, leaves: bool) -> None:
    def agree(number: int) -> int:
        return int(max(ring.all(me, number)))

    with Checkpointer(agree=agree, rank=me, job=job, interval_s=math.inf) as ckpt:
        found = ckpt.latest()
        slope, offset = found.state if found is not None else (0.0, 0.0)
        first = found.step + 1 if found is not None else 0
        for step in range(first, STEPS):
            batch = [DATA[(step * BATCH + k) % len(DATA)] for k in range(BATCH)][me :: ring.size]
            wrong = [(slope * x + offset - y, x) for x, y in batch]
            loss = sum(ring.all(me, sum(w * w for w, _ in wrong))) / BATCH
            d_slope = sum(ring.all(me, sum(2 * w * x for w, x in wrong))) / BATCH
            d_offset = sum(ring.all(me, sum(2 * w for w, _ in wrong))) / BATCH
            slope, offset = slope - 0.3 * d_slope, offset - 0.3 * d_offset
            if me == 0:
                losses[step] = loss
                if leaves and step == first + TOLD_AFTER - 1 and job.deadline_file is not None:
                    job.deadline_file.write_text("1795000000.0\n")
            ckpt.step(step, lambda now=(slope, offset): now)  # type: ignore[misc]


def test_from_two_ranks_to_four_to_one_to_two_it_keeps_its_loss_curve(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("whole", "elastic")]
    for folder in folders:
        (folder / ".fed").mkdir(parents=True)
    whole = train(folders[0], 1, 2, leaves=False)
    attempts = [
        train(folders[1], number, size, leaves=number < 4)
        for number, size in enumerate((2, 4, 1, 2), 1)
    ]
    steps = [step for losses in attempts for step in losses]
    assert steps == list(range(STEPS))  # none lost, none twice
    assert all(attempts)
    curve = {step: loss for losses in attempts for step, loss in losses.items()}
    assert curve == pytest.approx(whole, rel=1e-9)
    assert whole[STEPS - 1] < whole[0] / 10
