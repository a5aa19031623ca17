"""Compares JSON of ours with what a command of Slurm printed, by fields and their types."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

_RECORDED = Path(__file__).parents[1] / "data"


def recorded(kind: str, release: str) -> dict[str, Any]:
    """What ``squeue``, ``sinfo`` or ``sacct`` of a real Slurm printed with ``--json``."""
    name = f"sacct/{release}/jobs" if kind == "sacct" else f"slurm_json/{release}/{kind}"
    found: dict[str, Any] = json.loads(
        gzip.decompress((_RECORDED / f"{name}.json.gz").read_bytes())
    )
    return found


def differences(ours: object, real: object, place: str = "") -> list[str]:
    """Where ours has what the real one has not, or of another type."""
    if isinstance(ours, dict) and isinstance(real, dict):
        return [
            found
            for key, value in ours.items()
            if key != "federation"
            for found in (
                differences(value, real[key], f"{place}.{key}")
                if key in real
                else [f"{place}.{key} is not there"]
            )
        ]
    if isinstance(ours, list) and isinstance(real, list):
        return [
            found for a, b in zip(ours, real, strict=False) for found in differences(a, b, place)
        ]
    return [] if type(ours) is type(real) else [f"{place}: {ours!r}, not {real!r}"]
