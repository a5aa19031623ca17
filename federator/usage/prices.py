"""The cost of GPU, CPU and memory time, and prices by Slurm's billing weights."""

from __future__ import annotations

import re
from typing import Final

from federator.model.prices import Rates

_WEIGHT: Final = re.compile(r"([^=,]+)=([0-9]*\.?[0-9]+)([KMGTP]?)", re.ASCII | re.IGNORECASE)
_UNITS_MIB: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_GPU: Final = "gres/gpu"


def cost(rates: Rates, gpu_ms: int, cpu_ms: int, mem_mib_s: int) -> float | None:
    """What an amount costs; None: nothing of it has a price."""
    parts = [
        amount * rate
        for amount, rate in zip(
            (gpu_ms / 3.6e6, cpu_ms / 3.6e6, mem_mib_s / 3600 / 1024), rates, strict=True
        )
        if rate is not None
    ]
    return sum(parts) if parts else None


def of_weights(text: str, unit_h: float) -> dict[str, Rates]:
    """Prices by GPU type ("": any other) by Slurm's ``TRESBillingWeights``.

    Args:
        text: ``CPU=1.0,Mem=0.25G,GRES/gpu=2.0,GRES/gpu:a100=3.0``; a unit behind a weight of memory
            says that the weight is of so much. The billing of a job is the sum of its TRES, each
            times its weight, as Slurm's without ``MAX_TRES``.
        unit_h: what one billing unit costs for an hour.

    Raises:
        ValueError: it is not of this form, or weighs what is not accounted here.
    """
    cpu_h = mem_gib_h = None
    gpus: dict[str, float] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        match = _WEIGHT.fullmatch(word)
        if match is None:
            raise ValueError(f"expected TRES=WEIGHT, found {word[:40]!r}")
        name, weight, unit = match[1].lower(), float(match[2]), match[3].upper()
        if unit and name != "mem":
            raise ValueError(f"a unit is for Mem alone, found {word[:40]!r}")
        if name == "cpu":
            cpu_h = weight * unit_h
        elif name == "mem":
            mem_gib_h = weight / _UNITS_MIB[unit] * 1024.0 * unit_h
        elif name == _GPU or name.startswith(f"{_GPU}:"):
            gpus[match[1][len(_GPU) + 1 :]] = weight * unit_h
        else:
            raise ValueError(f"{match[1][:40]!r} is not accounted: CPU, Mem, GRES/gpu[:TYPE] are")
    types = {"": gpus.get(""), **gpus}
    return {name: Rates(gpu_h, cpu_h, mem_gib_h) for name, gpu_h in types.items()}
