"""Hugging Face's Trainer, which saves by itself, under a federation that may tell it to leave.

A tiny GPT-2 learns made-up tokens. The Trainer writes its own checkpoints; the Checkpointer only
says when one is due, acknowledges, and ends the job with the status that asks for another attempt.
A run that leaves and goes on ends with the same bits as one that nobody disturbed.

    python trainer.py --steps 60 --directory checkpoints

Written for transformers 5; an option says whether it runs on the GPU or the CPU.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from typing import Any

os.environ.setdefault(
    "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
)  # else no order of additions is promised

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from federator.checkpoint import Checkpointer, Due

LENGTH, VOCABULARY, SAMPLES = 32, 128, 512


class Federated(TrainerCallback):
    """Saves when the Checkpointer says so, and leaves once the Trainer has saved."""

    def __init__(self, ckpt: Checkpointer, step_s: float) -> None:
        self.ckpt, self.due, self.step_s = ckpt, Due.NOTHING, step_s

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        time.sleep(self.step_s)
        self.due = self.ckpt.due(state.global_step)
        control.should_save = control.should_save or self.due is not Due.NOTHING

    def on_save(self, *_: Any, **__: Any) -> None:
        self.ckpt.saved()
        if self.due is Due.LEAVE:
            self.ckpt.leave()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.0, help="how long a step takes at least")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--directory", help="for checkpoints; default $FED_CHECKPOINT_DIR")
    given = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    set_seed(1)
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=draw)
    shape = {"n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 2}
    with Checkpointer(directory=given.directory) as ckpt:
        trainer = Trainer(
            model=GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **shape)),
            args=TrainingArguments(
                output_dir=str(ckpt.directory),
                max_steps=given.steps,
                save_strategy="no",  # only when one is due
                save_total_limit=3,
                use_cpu=given.device == "cpu",
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
            callbacks=[Federated(ckpt, given.step_s)],
        )
        newest = get_last_checkpoint(str(ckpt.directory)) if ckpt.directory.is_dir() else None
        print("goes on from", newest and os.path.basename(newest), flush=True)
        trainer.train(resume_from_checkpoint=newest)
    whole = hashlib.sha256()
    for weight in trainer.model.parameters():
        whole.update(weight.detach().cpu().numpy().tobytes())
    print("digest", whole.hexdigest(), flush=True)


if __name__ == "__main__":
    main()
