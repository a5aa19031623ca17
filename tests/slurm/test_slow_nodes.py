"""A gang that a slow node holds up moves to others on real Slurm when that pays, and else stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, at, within
from tests.slurm.guests import folder_of, preemption

pytestmark = pytest.mark.slurm

USER = "vision1"
GANG = ("-N2", "-Jtrain", "--ntasks-per-node=1", "--gres=gpu:h100:8", "--fed-progress=0:12")
RESTART_S = 120.0
# Two ranks that agree after each step, over a socket. A step takes three times as long on a node
# that the file "slow" beside the folders of all jobs names.
RANKS = """#!/bin/bash
export PYTHONPATH=/opt/federator/user
exec srun python3 -c '
import math, os, socket, time
from federator.checkpoint import Checkpointer

rank, port = int(os.environ["SLURM_PROCID"]), 20000 + int(os.environ["SLURM_JOB_ID"]) % 10000
slow = os.path.join(os.path.dirname(os.environ["FED_CHECKPOINT_DIR"]), "slow")
if rank == 0:
    other = socket.create_server(("", port)).accept()[0]
while rank == 1:
    try:
        other = socket.create_connection((os.uname().nodename, port))
        break
    except OSError:
        time.sleep(0.2)

def agree(number):
    other.sendall(bytes([number + 100]))
    return max(number, other.recv(1)[0] - 100)

def is_slow():
    try:
        return os.environ["SLURMD_NODENAME"] in open(slow).read().split()
    except OSError:
        return False

with Checkpointer(agree=agree, rank=rank, interval_s=math.inf) as ckpt:
    found = ckpt.latest()
    for step in range(found.step + 1 if found else 0, 100000):
        time.sleep(0.75 if is_slow() else 0.25)
        ckpt.step(step, dict)
'
"""


@pytest.fixture
def federation(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    slow_nodes = {"budget_frac": 0.5, "quarantine_s": 3600.0, "restart_s": RESTART_S}
    told = preemption(grace_s=20.0)
    running = Running(tmp_path, pass_interval_s=5.0, preemption=told, slow_nodes=slow_nodes)
    yield from lasting(running)


def windows_of(id_: int) -> int:
    """So many windows of steps its present attempt has told of."""
    notes = (folder_of(id_, user=USER) / ".fed").glob("progress.*.steps")
    return max((int(note.read_text().split()[0]) for note in notes), default=0)


def test_a_gang_on_a_slow_node_moves_exactly_when_that_pays(federation: Running) -> None:
    (folder_of(1, user=USER).parent / "slow").unlink(missing_ok=True)  # of a run before
    others = [federation.submit(RANKS, *GANG, user=USER) for _ in range(4)]
    for id_ in others:
        federation.await_state(id_, "RUNNING")
    within(150, lambda: all(windows_of(id_) >= 7 for id_ in others))
    within(60, lambda: any(federation.row(id_)["pace"] for id_ in others))  # told by all, too
    federation.run("fscancel", *map(str, others))
    federation.await_end(*others)

    moves = federation.submit(RANKS, *GANG, "--fed-migrate", "-t60", user=USER)
    stays = federation.submit(RANKS, *GANG, "--fed-migrate", "-t3", user=USER)
    before = {id_: federation.await_state(id_, "RUNNING") for id_ in (moves, stays)}
    slow = [str(row["node_names"][1]) for row in before.values()]
    (folder_of(moves, user=USER).parent / "slow").write_text("\n".join(slow))

    def asked() -> Row | None:
        row = federation.row(moves)
        return row if (row["reason"] or {}).get("code") == "FedSlowNodes" else None

    row = within(150, asked)
    assert row is not None
    assert "runs of its kind on other nodes" in row["reason"]["detail"]

    def again() -> Row | None:
        row = federation.row(moves)
        return row if (row["state"], row["attempt"]) == ("RUNNING", 2) else None

    after = within(150, again)
    assert after is not None
    assert not set(before[moves]["node_names"]) & set(after["node_names"])
    assert not set(slow) & set(after["node_names"])

    def weighed() -> Row | None:
        row = federation.row(stays)
        return row if (row["pace"] or {}).get("speed") == "slow" else None

    kept = within(90, weighed)
    assert kept is not None
    assert (kept["state"], kept["attempt"]) == ("RUNNING", 1)
    assert kept["pace"]["gain_s"] <= kept["pace"]["cost_s"]
    story = federation.run("federator", "explain", str(stays)).stdout
    assert "so it stays" in story
    shown = federation.run("fsinfo").stdout
    assert "jobs of several nodes do not start there" in shown
    nodes = at("cedar", "sinfo", "-hN", "-o%N %T").splitlines()
    assert all(f"{name} drained" not in nodes for name in slow)  # for others they are as ever
    done = federation.run("federator", "resume", f"cedar:{','.join(slow)}")
    assert done.returncode == 0, done.stderr
