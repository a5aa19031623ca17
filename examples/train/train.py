"""A PyTorch training that survives preemption, with a result that is equal to the last bit.

A small network with dropout learns from made-up data. All that decides the result is in the state:
weights, momentum, learning rate, the order of the data, and every random generator. So a run that
is told to leave at one site and goes on at another prints the same digest as one that nobody
disturbed. Works with any PyTorch from 1.13 on; other models of CPU or GPU may round differently.

    python train.py --steps 300                                      one process
    python train.py --steps 300 --device cuda                        on a GPU
    torchrun --nproc_per_node=2 train.py --steps 300                 two ranks (DDP)

Outside the federation say where checkpoints go: --directory checkpoints.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import os
import time
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR

from federator.checkpoint import Checkpointer

# Without it cuBLAS may add in another order each time; PyTorch refuses to be deterministic then.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
FEATURES, HIDDEN, SAMPLES, BATCH = 32, 64, 2048, 32


class Training:
    """A model and all that decides what becomes of it."""

    def __init__(self, steps: int, rank: int, ranks: int, device: torch.device) -> None:
        self.device = device
        torch.manual_seed(1)  # the same weights on every rank ...
        model = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Dropout(0.1), nn.Linear(HIDDEN, 1)
        ).to(device)
        data = torch.Generator().manual_seed(2)
        self.inputs = torch.randn(SAMPLES, FEATURES, generator=data).to(device)
        self.targets = self.inputs.square().mean(dim=1, keepdim=True)
        torch.manual_seed(3 + rank)  # ... and dropout of its own on each
        self.rank, self.ranks = rank, ranks
        self.model = DistributedDataParallel(model) if ranks > 1 else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.schedule = CosineAnnealingLR(self.optimizer, T_max=steps)
        self.shuffle = torch.Generator().manual_seed(4)  # equal on all ranks
        self.order = torch.empty(0, dtype=torch.int64)  # what is left of this epoch

    def step(self) -> float:
        """Learn from the next batch; returns this rank's loss."""
        if len(self.order) < BATCH * self.ranks:
            self.order = torch.randperm(SAMPLES, generator=self.shuffle)
        batches, self.order = self.order[: BATCH * self.ranks], self.order[BATCH * self.ranks :]
        mine = batches[self.rank :: self.ranks]
        loss = nn.functional.mse_loss(self.model(self.inputs[mine]), self.targets[mine])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "order": self.order.clone(),  # a slice would be saved with all that it is cut from
            "shuffle": self.shuffle.get_state(),
            "dropout": self.random_state(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.order = state["order"]
        self.shuffle.set_state(state["shuffle"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["dropout"], self.device)
        else:
            torch.set_rng_state(state["dropout"])

    def random_state(self) -> torch.Tensor:
        """The generator that dropout draws from; each device has one of its own."""
        on_gpu = self.device.type == "cuda"
        return torch.cuda.get_rng_state(self.device) if on_gpu else torch.get_rng_state()

    def digest(self) -> str:
        """SHA-256 of the weights and the momentum, bit by bit."""
        whole = hashlib.sha256()
        for weight in self.model.parameters():
            momentum = self.optimizer.state[weight]["momentum_buffer"]
            for values in (weight.detach(), momentum):
                whole.update(values.cpu().numpy().tobytes())
        return whole.hexdigest()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--step-s", type=float, default=0.0, help="how long a step takes at least")
    parser.add_argument("--directory", help="for checkpoints; default $FED_CHECKPOINT_DIR")
    parser.add_argument("--interval-s", type=float, help="between checkpoints")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device(given.device)
    if device.type == "cuda":  # each rank of a node its own, where there are as many
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if ranks > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(distributed.destroy_process_group)  # else its threads may abort the exit
    rank = distributed.get_rank() if ranks > 1 else 0
    training = Training(given.steps, rank, ranks, device)
    where = os.environ.get("FED_SITE", "no federation"), os.environ.get("FED_ATTEMPT", "1")
    # Dropout differs from rank to rank, so each writes a state of its own.
    with Checkpointer(
        torch.save,
        torch.load,
        directory=given.directory,
        interval_s=given.interval_s,
        all_ranks_write=ranks > 1,
    ) as ckpt:
        found = ckpt.latest()
        if found is not None:
            training.resume(found.state)
        first = found.step + 1 if found is not None else 0
        if rank == 0:
            print("begins with step", first, "at", *where, flush=True)
        for step in range(first, given.steps):
            loss = training.step()
            time.sleep(given.step_s)
            ckpt.step(step, training.state)
    if rank == 0:
        print("loss", loss if first < given.steps else "as before", flush=True)
        print("digest", training.digest(), flush=True)


if __name__ == "__main__":
    main()
