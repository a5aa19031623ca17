"""The rank of this process, and decisions that several ranks take together.

torch is never imported here: when the script has not done so, there is no process group to ask.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Agree = Callable[[int], int]  # the largest of all ranks' numbers, to every rank


class UncoordinatedRanks(RuntimeError):
    """Several processes of one training were started, and nothing lets them decide together."""


class Ranks(NamedTuple):
    """This process's place among the ranks, and their all-reduce."""

    rank: int
    agree: Agree

    def size(self) -> int:
        """Return how many ranks there are; all must ask at once."""
        return self.agree(self.rank) + 1

    @classmethod
    def find(cls, rank: int | None, agree: Agree | None) -> Ranks:
        """Return what the caller gave, else torch's process group, else a single rank.

        Raises:
            UncoordinatedRanks: the environment speaks of several ranks, and there is neither.
        """
        distributed = _torch_distributed()
        if agree is None and distributed is not None:
            return cls(rank_here(rank), _all_reduce(distributed))
        if agree is None:
            _refuse_several(os.environ)
            return cls(rank or 0, _alone)
        return cls(rank_of(os.environ) if rank is None else rank, agree)


def rank_here(rank: int | None) -> int:
    """Return the rank that the caller gave, else what torch or the environment says."""
    if rank is not None:
        return rank
    distributed = _torch_distributed()
    return rank_of(os.environ) if distributed is None else int(distributed.get_rank())


def rank_of(environment: Mapping[str, str]) -> int:
    """Return this process's rank as torchrun or srun says it; 0 when nobody does."""
    return _number(environment, "RANK", "SLURM_PROCID", default=0)


def ranks_said(environment: Mapping[str, str]) -> str:
    """Return how many ranks torchrun or srun has started; "" where nobody says."""
    size = _number(environment, "WORLD_SIZE", "SLURM_STEP_NUM_TASKS", default=0)
    return str(size) if size else ""


def _refuse_several(environment: Mapping[str, str]) -> None:
    size = _number(environment, "WORLD_SIZE", "SLURM_STEP_NUM_TASKS", default=1)
    if size > 1:
        raise UncoordinatedRanks(
            f"this is one of {size} ranks, and they cannot decide together when to save: initialise"
            " torch.distributed first, or give agree=, a function that takes an int and returns"
            " the largest of all ranks' (or rank=0, agree=lambda number: number, and a directory"
            " of its own, to each process that trains for itself)"
        )


def _number(environment: Mapping[str, str], *names: str, default: int) -> int:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return default


def _alone(number: int) -> int:
    return number


def _torch_distributed() -> Any:
    """Return torch.distributed where the script has initialised it, else None."""
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return module


def _all_reduce(distributed: Any) -> Agree:
    torch = sys.modules["torch"]

    def agree(number: int) -> int:
        on_gpu = distributed.get_backend() == "nccl"
        device = f"cuda:{torch.cuda.current_device()}" if on_gpu else "cpu"
        tensor = torch.tensor([number], dtype=torch.int64, device=device)
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
        return int(tensor.item())

    return agree
