"""Time limits chained on real clusters: what a user's job sees of ``--fed-continue``.

Slurm counts limits in whole minutes, so that one attempt lasts a minute less its grace.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running
from tests.slurm.test_preemption import preemption, saver, steps_of

pytestmark = pytest.mark.slurm

GRACE_S = 15.0
STEPS = 900  # of a tenth of a second: two minutes at most with what a step costs


@pytest.fixture
def patient(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(Running(tmp_path, pass_interval_s=10.0,
                               preemption=preemption(grace_s=GRACE_S)))  # fmt: skip


def test_a_job_longer_than_its_limit_finishes_over_several_attempts(patient: Running) -> None:
    options = ("-N1", "--gres=gpu:h100:1", "--time=1", "--fed-continue")
    id_ = patient.submit(saver(STEPS), *options, user="bio1")
    patient.await_state(id_, "RUNNING")
    patient.await_state(id_, "COMPLETED", timeout_s=240)
    seen = steps_of(id_)
    assert [step for _, _, step in seen] == list(
        range(1, STEPS + 1)
    )  # nothing twice, none left out
    attempts = {attempt for _, attempt, _ in seen}
    assert attempts == set(range(1, len(attempts) + 1))
    assert 2 <= len(attempts) <= 3
    assert patient.row(id_)["attempt"] == len(attempts)


def test_one_that_saves_nothing_in_three_attempts_is_stopped(patient: Running) -> None:
    """It leaves when it is told, but with nothing done."""
    script = "#!/bin/sh\nsleep 300\n"
    options = ("-N1", "--gres=gpu:h100:1", "--time=1", "--fed-continue")
    id_ = patient.submit(script, *options, user="bio1")
    row = patient.await_state(id_, "TIMEOUT", timeout_s=280)
    assert row["attempt"] == 3
    assert row["reason"]["code"] == "FedNoProgress"
