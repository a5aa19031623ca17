"""PyTorch Lightning under a federation that may tell the training to leave.

Lightning saves in its own way; the Checkpointer says when that is due, acknowledges, and ends the
job with the status that asks for another attempt. A run that leaves and goes on ends with the same
bits as one that nobody disturbed: the next batch depends on the number of the step alone.

    python train_lightning.py --steps 300 --directory checkpoints
    torchrun --nproc_per_node=2 train_lightning.py --steps 300 --devices 2
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
)  # else no order of additions is promised

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader

from federator.checkpoint import Checkpointer, Due

FEATURES, SAMPLES, BATCH = 32, 2048, 64


class Federated(Callback):
    """Has Lightning save when the Checkpointer says so, and leaves once it has."""

    def __init__(self, ckpt: Checkpointer, step_s: float) -> None:
        self.ckpt, self.step_s = ckpt, step_s

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:
            print("begins at step", trainer.global_step, flush=True)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        time.sleep(self.step_s)
        due = self.ckpt.due(trainer.global_step)
        if due is Due.NOTHING:
            return
        before = newest(self.ckpt.directory)
        trainer.save_checkpoint(self.ckpt.directory / f"step={trainer.global_step}.ckpt")
        self.ckpt.saved()
        if before is not None and trainer.is_global_zero:
            before.unlink(missing_ok=True)
        if due is Due.LEAVE:
            self.ckpt.leave()


def newest(directory: Path) -> Path | None:
    """The checkpoint of the latest step; Lightning puts a file in place when it is whole."""
    found = directory.glob("step=*.ckpt")
    return max(found, key=lambda path: int(path.stem.removeprefix("step=")), default=None)


class Training(LightningModule):
    """A model, and the data that it learns from."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1))
        self.inputs = torch.randn(SAMPLES, FEATURES)
        self.targets = self.inputs.square().mean(dim=1, keepdim=True)

    def training_step(self, *_: Any) -> torch.Tensor:
        first, ranks = self.global_step * BATCH, self.trainer.world_size
        mine = torch.arange(first + self.global_rank, first + BATCH, ranks) % SAMPLES
        wrong = self.net(self.inputs[mine].to(self.device)) - self.targets[mine].to(self.device)
        return wrong.square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.0, help="how long a step takes at least")
    parser.add_argument("--devices", type=int, default=1, help="on this node")
    parser.add_argument("--accelerator", default="auto", help="cpu, gpu or auto")
    parser.add_argument("--directory", help="for checkpoints; default $FED_CHECKPOINT_DIR")
    given = parser.parse_args()
    seed_everything(1)
    # Before the Trainer, which leaves the signals alone to which somebody listens already.
    with Checkpointer(directory=given.directory) as ckpt:
        trainer = Trainer(
            max_steps=given.steps,
            accelerator=given.accelerator,
            devices=given.devices,
            num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
            deterministic=True,
            callbacks=[Federated(ckpt, given.step_s)],
            enable_checkpointing=False,  # only when one is due
            enable_progress_bar=False,
            logger=False,
        )
        training = Training()
        # What the loader yields is not used: it counts the steps.
        steps = DataLoader(range(given.steps))
        trainer.fit(training, steps, ckpt_path=newest(ckpt.directory))
    whole = hashlib.sha256()
    for weight in training.parameters():
        whole.update(weight.detach().cpu().numpy().tobytes())
    if trainer.is_global_zero:
        print("digest", whole.hexdigest(), flush=True)


if __name__ == "__main__":
    main()
