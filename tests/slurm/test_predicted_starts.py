"""On real Slurm: without a time limit anywhere, a blocked gang is shown when it may start.

The daemon learns from eight jobs that end, and knows it still when it was killed and started again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, within

pytestmark = pytest.mark.slurm

RUNS = 8
RUN_S = 60
ONE_GPU = ("-N1", "--gres=gpu:h100:1")
GANG = (f"-N{layout.GPU_NODES.count}", f"--gres=gpu:h100:{layout.GPU_NODES.gpus}")
PREDICTED = "predicted to start in"


@pytest.fixture(scope="module")
def forecasting(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("forecasting")
    off = {"budget_frac": 0}
    yield from lasting(Running(folder, pass_interval_s=10.0, forecast_ends=True, preemption=off))


def test_a_blocked_gang_is_shown_a_predicted_start_also_after_a_crash(forecasting: Running) -> None:
    script = f"#!/bin/sh\nsleep {RUN_S}\n"
    learned = [forecasting.submit(script, *ONE_GPU, user="bio1") for _ in range(RUNS)]
    rows = forecasting.await_end(*learned, timeout_s=RUN_S + 120)
    assert {row["state"] for row in rows} == {"COMPLETED"}

    holder = forecasting.submit(script, *ONE_GPU, user="bio1")
    forecasting.await_state(holder, "RUNNING")
    gang = forecasting.submit(script, *GANG, user="vision1")
    within(30, lambda: PREDICTED in forecasting.run("fsqueue", "--why", str(gang)).stdout)

    forecasting.kill()
    forecasting.start()
    assert forecasting.row(gang)["state"] == "PENDING"
    within(20, lambda: PREDICTED in forecasting.run("fsqueue", "--why", str(gang)).stdout)
    forecasting.run("fscancel", str(holder))
    forecasting.await_state(gang, "RUNNING")
    forecasting.cancel_all()
