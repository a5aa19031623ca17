"""An elastic job on a real cluster: it starts on what is free, and goes on with more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, within
from tests.slurm.guests import SAVER, folder_of, preemption, steps_of

pytestmark = pytest.mark.slurm

GPUS = "--gres=gpu:h100:8"  # only cedar has these
# It notes on how many nodes it is, in place of its site, and works until it is told to finish.
SCRIPT = SAVER.replace('"FED_SITE"', '"SLURM_NNODES"').replace(
    "step < int(sys.argv[1])", 'not os.path.exists(folder + "/finish")'
)


@pytest.fixture
def federation(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(Running(tmp_path, pass_interval_s=5.0, preemption=preemption()))


def test_it_starts_on_what_is_free_and_goes_on_with_more_when_that_is_idle(
    federation: Running,
) -> None:
    others = federation.submit(
        "#!/bin/sh\nsleep 600\n", f"-N{layout.GPU_NODES.count - 1}", GPUS, user="bio1"
    )
    federation.await_state(others, "RUNNING")
    id_ = federation.submit(SCRIPT, "-N2", GPUS, "--fed-elastic=1-2", "--time=60", user="bio1")
    federation.await_state(id_, "RUNNING")
    within(30, lambda: steps_of(id_))
    assert federation.row(id_)["gpus"] == 8
    assert federation.run("fscancel", str(others)).returncode == 0
    within(90, lambda: any(attempt == 2 for _, attempt, _ in steps_of(id_)))
    row = federation.await_state(id_, "RUNNING")  # its script may note a step before that is heard
    assert (row["attempt"], row["gpus"]) == (2, 16)
    shown = at(row["site"], "squeue", "--noheader", "--format=%D", f"--jobs={row['site_job_id']}")
    assert shown.strip() == "2"
    (folder_of(id_) / "finish").touch()
    assert federation.await_state(id_, "COMPLETED")["exit_code"] == 0
    seen = steps_of(id_)
    assert [step for _, _, step in seen] == list(range(1, len(seen) + 1))  # none lost, none twice
    assert {(nodes, attempt) for nodes, attempt, _ in seen} == {("1", 1), ("2", 2)}
