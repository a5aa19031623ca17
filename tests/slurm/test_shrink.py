"""Shrink before kill on real clusters: optional components and array tasks go first.

``bio`` has no quota here, so whatever it runs may be evicted for ``vision``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, at, within

pytestmark = pytest.mark.slurm

GRACE_S = 20.0
TENANTS = {"bio": {"quota": {"gpus": 0}}}
SLEEPER = "#!/bin/sh\nsleep 600\n"
# The first component lives until it is told to finish; the second has work of its own.
LEADER = """#!/bin/sh
srun --het-group=1 sleep 600 &
while [ ! -e "$FED_CHECKPOINT_DIR/finish" ]; do
    date +%s >"$FED_CHECKPOINT_DIR/alive"
    sleep 0.5
done
exit 0
"""


@pytest.fixture
def shrinking(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    preemption = {"grace_s": GRACE_S, "cooldown_s": 1.0, "budget_frac": 1.0}
    yield from lasting(
        Running(tmp_path, tenants=TENANTS, pass_interval_s=10.0, preemption=preemption)
    )


def folder_of(id_: int, site: str) -> Path:
    region = layout.site(site).region
    return StateDir.default().shared(region) / "bio1" / "checkpoints" / str(id_)


def submitted(running: Running, number: int, *options: str, user: str) -> list[int]:
    ids = [running.submit(SLEEPER, *options, user=user) for _ in range(number)]
    for id_ in ids:
        running.await_state(id_, "RUNNING")
    return ids


def component_of(row: Row, number: int) -> str:
    """The state of a component of a het job, as its site's Slurm tells it."""
    text = at(row["site"], "scontrol", "-o", "show", "job", f"{row['site_job_id']}+{number}")
    return next(word.partition("=")[2] for word in text.split() if word.startswith("JobState="))


@pytest.mark.parametrize("site", ["cedar", "alpine", "boreal"])
def test_an_optional_component_makes_room_for_a_gang_and_its_job_runs_on_to_its_end(
    shrinking: Running, site: str
) -> None:
    gpus = f"--gres=gpu:{layout.site(site).gpu_type}:8"
    for other in layout.SITES:
        if other.name != site and other.gpu_type == layout.site(site).gpu_type:
            shrinking.fill(other.name)
    guest = shrinking.submit(LEADER, "-N1", ":", "-N1", gpus, "--fed-optional", user="bio1")
    row = shrinking.await_state(guest, "RUNNING")
    assert row["site"] == site
    alive = folder_of(guest, site) / "alive"
    within(60, alive.exists)
    others = submitted(shrinking, layout.GPU_NODES.count - 1, "-N1", gpus, user="vision1")
    gang = shrinking.submit(SLEEPER, "-N1", gpus, user="vision1")
    shrinking.await_state(gang, "RUNNING", timeout_s=GRACE_S + 40)
    assert component_of(row, 1) == "CANCELLED"

    def shrunk() -> bool:
        now = shrinking.row(guest)
        assert (now["state"], now["attempt"]) == ("RUNNING", 1)
        return (now["gpus"], (now["reason"] or {}).get("code")) == (0, "FedShrunk")

    within(60, shrunk)
    assert [shrinking.row(id_)["attempt"] for id_ in others] == [1] * len(others)
    seen = alive.read_text()
    within(30, lambda: alive.read_text() not in ("", seen))  # its script goes on
    (folder_of(guest, site) / "finish").touch()
    ended = shrinking.await_state(guest, "COMPLETED")
    assert (ended["exit_code"], ended["attempt"]) == (0, 1)


def test_optional_tasks_of_an_array_are_evicted_before_the_others(shrinking: Running) -> None:
    node = ("-N1", "--gres=gpu:h100:8")  # only cedar has these
    first = shrinking.submit(SLEEPER, *node, "--array=0-7", "--fed-optional=5,6", user="bio1")
    within(90, lambda: all(row["state"] == "RUNNING" for row in shrinking.rows(first)))
    gang = shrinking.submit(SLEEPER, "-N2", "--gres=gpu:h100:8", user="vision1")
    shrinking.await_state(gang, "RUNNING", timeout_s=GRACE_S + 40)
    rows = shrinking.rows(first)  # of all its tasks, in order
    assert [row["array_index"] for row in rows if row["state"] != "RUNNING"] == [5, 6]
