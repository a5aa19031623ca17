"""Time limits chained on real clusters: what a user's job sees of ``--fed-continue``.

Slurm counts limits in whole minutes, so that one attempt lasts a minute less its grace: half of
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running
from tests.slurm.guests import preemption, saver, steps_of

pytestmark = pytest.mark.slurm

GRACE_S = 30.0
STEPS = 320  # of a tenth of a second at least: more than fit into one attempt


OPTIONS = ("-N1", "--gres=gpu:h100:1", "--time=1", "--fed-continue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chained:
    """Two workloads that outlast their limits beside each other, for that takes minutes."""

    running: Running
    saving: int
    idle: int


@pytest.fixture(scope="module")
def chained(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chained]:
    folder = tmp_path_factory.mktemp("chained")
    running = Running(folder, pass_interval_s=10.0, preemption=preemption(grace_s=GRACE_S))
    for started in lasting(running):
        saving = started.submit(saver(STEPS), *OPTIONS, user="bio1")
        idle = started.submit("#!/bin/sh\nsleep 300\n", *OPTIONS, user="bio1")
        yield Chained(running=started, saving=saving, idle=idle)


def test_a_job_longer_than_its_limit_finishes_over_several_attempts(chained: Chained) -> None:
    id_ = chained.saving
    chained.running.await_state(id_, "COMPLETED", timeout_s=280)
    seen = steps_of(id_)
    assert [step for _, _, step in seen] == list(
        range(1, STEPS + 1)
    )  # nothing twice, none left out
    attempts = {attempt for _, attempt, _ in seen}
    assert attempts == set(range(1, len(attempts) + 1))
    assert 2 <= len(attempts) <= 5  # three on an idle machine, where a step takes hardly longer
    assert chained.running.row(id_)["attempt"] == len(attempts)


def test_one_that_saves_nothing_in_three_attempts_is_stopped(chained: Chained) -> None:
    """It leaves when it is told, but with nothing done."""
    row = chained.running.await_state(chained.idle, "TIMEOUT", timeout_s=280)
    assert row["attempt"] == 3
    assert row["reason"]["code"] == "FedNoProgress"
