"""Hugging Face's Accelerate under a federation that may tell the training to leave.

Accelerate places the model and the batches; the Checkpointer saves and ends the job. A run that
leaves and goes on ends with the same bits as one that nobody disturbed, and it may go on with more
ranks or with fewer: the next batch depends on the number of the step alone.

    python train_accelerate.py --steps 300 --directory checkpoints
    torchrun --nproc_per_node=2 train_accelerate.py --steps 300

Accelerate chooses GPUs where there are some; ``ACCELERATE_USE_CPU=1`` has it use the CPU.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time

os.environ.setdefault(
    "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
)  # else no order of additions is promised

import torch
from accelerate import Accelerator
from torch import nn

from federator.checkpoint import Checkpointer

FEATURES, SAMPLES, BATCH = 32, 2048, 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.0, help="how long a step takes at least")
    parser.add_argument("--directory", help="for checkpoints; default $FED_CHECKPOINT_DIR")
    given = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)  # the same weights and data on every rank
    accelerator = Accelerator()
    rank, ranks, device = accelerator.process_index, accelerator.num_processes, accelerator.device
    inputs = torch.randn(SAMPLES, FEATURES)
    targets = inputs.square().mean(dim=1, keepdim=True)
    net = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1))
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.01))
    # Rank 0 writes for all of them; what it needs of the others get_state_dict gathers.
    with Checkpointer(torch.save, torch.load, directory=given.directory) as ckpt:
        found = ckpt.latest()
        if found is not None:
            accelerator.unwrap_model(model).load_state_dict(found.state["model"])
            optimizer.load_state_dict(found.state["optimizer"])
        first = 0 if found is None else found.step + 1
        accelerator.print("begins at step", first, flush=True)
        for step in range(first, given.steps):
            mine = torch.arange(step * BATCH + rank, (step + 1) * BATCH, ranks) % SAMPLES
            loss = (model(inputs[mine].to(device)) - targets[mine].to(device)).square().mean()
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(given.step_s)
            ckpt.step(
                step,
                lambda: {
                    "model": accelerator.get_state_dict(model),
                    "optimizer": optimizer.state_dict(),
                },
            )
    whole = hashlib.sha256()
    for weight in accelerator.unwrap_model(model).parameters():
        whole.update(weight.detach().cpu().numpy().tobytes())
    accelerator.print("digest", whole.hexdigest())
    accelerator.end_training()


if __name__ == "__main__":
    main()
