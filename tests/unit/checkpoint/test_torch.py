"""With PyTorch at hand: ranks of a real process group decide together without being told how.

Needs torch with gloo. Where the tests' Python has none, the testbed's shared one can run this
file, and tests/slurm trains on two nodes with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

RANKS = 2
PROGRAM = """
import os, signal, sys
import torch
from torch import distributed
from federator.checkpoint import Checkpointer

rank, folder = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                               world_size=int(sys.argv[3]))
with Checkpointer(torch.save, torch.load, all_ranks_write=True) as ckpt:
    found = ckpt.latest()
    if found is not None:
        print(found.step, found.state["mine"].tolist())
        sys.exit(0)
    for step in range(10):
        if step == 4 and rank == 1:
            os.kill(os.getpid(), signal.SIGUSR1)  # nobody tells rank 0
        ckpt.step(step, lambda: {"mine": torch.full((2,), float(rank))})
"""


def run(folder: Path) -> list[tuple[int, str]]:
    """Exit status and output of each rank."""
    (folder / "meet").unlink(missing_ok=True)
    environment = {**os.environ, "FED_CHECKPOINT_DIR": str(folder), "FED_ATTEMPT": "1"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), str(folder), str(RANKS)],
                         env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(RANKS)
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs, strict=True)]


def test_ranks_of_a_process_group_leave_after_the_same_step_and_go_on_there(tmp_path: Path) -> None:
    assert run(tmp_path) == [(85, ""), (85, "")]
    assert [path.name for path in tmp_path.glob("ckpt-*")] == ["ckpt-00000001-step-4"]
    assert (tmp_path / ".fed" / "saved.1").exists()
    assert run(tmp_path) == [(0, "4 [0.0, 0.0]\n"), (0, "4 [1.0, 1.0]\n")]
