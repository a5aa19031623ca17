"""A PyTorch training for torchrun that keeps its loss curve, whatever its number of ranks.

What the next step learns from depends on the number of the step alone: all ranks together take the
same batch, each a part of it, however many they are. So a run that is resized has the losses of one
that is not, but for the order in which floating-point numbers are added. The losses are noted in
``losses.txt`` beside the checkpoints: step, ranks, loss.

    python train_elastic.py --steps 300                              one process
    torchrun --nproc_per_node=2 train_elastic.py --steps 300         two ranks (DDP)

Outside the federation say where checkpoints go: --directory checkpoints.
"""

from __future__ import annotations

import argparse
import atexit
import os
import time
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from federator.checkpoint import Checkpointer

FEATURES, HIDDEN, SAMPLES = 32, 64, 2048
BATCH = 32  # of all ranks together


class Training:
    """A model, and the data that it learns from."""

    def __init__(self, rank: int, ranks: int) -> None:
        torch.manual_seed(1)  # the same weights and data on every rank
        model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.inputs = torch.randn(SAMPLES, FEATURES)
        self.targets = self.inputs.square().mean(dim=1, keepdim=True)
        self.rank, self.ranks = rank, ranks
        self.plain = model  # DDP puts a prefix before the names of its weights
        self.model = DistributedDataParallel(model) if ranks > 1 else model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(self, step: int) -> float:
        """Learn from the batch of this step; returns the loss over all of it."""
        epoch, place = divmod(step * BATCH, SAMPLES)
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        mine = order[place : place + BATCH][self.rank :: self.ranks]
        # DDP takes the mean over ranks. Of 32 samples 3 ranks have 11, 11 and 10: so it is the sum
        # over ranks that is wanted, of each one's part of the batch's mean.
        wrong = self.model(self.inputs[mine]) - self.targets[mine]
        loss = wrong.square().sum() / BATCH
        self.optimizer.zero_grad()
        (loss * self.ranks).backward()
        self.optimizer.step()
        whole = loss.detach()
        if self.ranks > 1:
            distributed.all_reduce(whole)
        return whole.item()

    def state(self) -> dict[str, Any]:
        return {"model": self.plain.state_dict(), "optimizer": self.optimizer.state_dict()}

    def resume(self, state: dict[str, Any]) -> None:
        self.plain.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.0, help="how long a step takes at least")
    parser.add_argument("--directory", help="for checkpoints; default $FED_CHECKPOINT_DIR")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        distributed.init_process_group("gloo")
        atexit.register(distributed.destroy_process_group)  # else its threads may abort the exit
    rank = distributed.get_rank() if ranks > 1 else 0
    training = Training(rank, ranks)
    # Rank 0 writes for all of them, and any number of ranks reads it.
    with Checkpointer(torch.save, torch.load, directory=given.directory) as ckpt:
        found = ckpt.latest()
        if found is not None:
            training.resume(found.state)
        for step in range(found.step + 1 if found is not None else 0, given.steps):
            loss = training.step(step)
            if rank == 0:
                with (ckpt.directory / "losses.txt").open("a") as losses:
                    print(step, ranks, loss, file=losses)
            time.sleep(given.step_s)
            ckpt.step(step, training.state)


if __name__ == "__main__":
    main()
