"""A rank that hangs in a gang of two nodes is found on real Slurm, and the gang starts again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, output_of, within
from tests.slurm.guests import folder_of, preemption

pytestmark = pytest.mark.slurm

USER = "bio1"
# Two ranks that agree after each step, over a socket; on its first attempt rank 1 hangs after some.
RANKS = """#!/bin/bash
export PYTHONPATH=/opt/federator/user
exec srun python3 -c '
import math, os, socket, threading, time
from federator.checkpoint import Checkpointer

rank, port = int(os.environ["SLURM_PROCID"]), 20000 + int(os.environ["SLURM_JOB_ID"]) % 10000
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

def hang():
    threading.Event().wait()

with Checkpointer(agree=agree, rank=rank, interval_s=math.inf) as ckpt:
    for step in range(8):
        if (os.environ["FED_ATTEMPT"], rank, step) == ("1", 1, 6):
            hang()
        time.sleep(0.2)
        ckpt.step(step, dict)
if rank == 0:
    print("went through on", os.environ["SLURM_JOB_NODELIST"], flush=True)
'
"""


@pytest.fixture
def federation(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    grace = preemption(grace_s=8.0)  # which a hung rank does not use
    yield from lasting(Running(tmp_path, pass_interval_s=5.0, preemption=grace))


def test_a_gang_whose_rank_hangs_tells_where_and_goes_through_on_other_nodes(
    federation: Running,
) -> None:
    gang = ("-N2", "--ntasks-per-node=1", "--gres=gpu:h100:8", "--fed-progress=0:16")
    id_ = federation.submit(RANKS, *gang, user=USER)
    before = federation.await_state(id_, "RUNNING")

    def stalled() -> Row | None:
        row = federation.row(id_)
        return row if (row["reason"] or {}).get("code") == "FedStalled" else None

    row = within(90, stalled)
    assert row is not None
    said = row["reason"]["detail"]
    assert "rank 0 of 2 on cedar-g" in said
    assert "no step since 5" in said
    assert "in agree (<string>" in said
    assert "rank 1 of 2 on cedar-g" in said
    assert "hang (<string>" in said

    after = federation.await_state(id_, "COMPLETED", timeout_s=120)
    assert after["attempt"] == 2
    assert not set(before["node_names"]) & set(after["node_names"])
    assert "went through on cedar-g" in output_of(after, USER)
    assert not (folder_of(id_) / ".fed" / "progress.2.stalled.1").exists()
