"""Countable generic resources (gres) beside GPUs, such as ``nic``: amounts by name.

An amount of a type, ``nic:mlx5``, is counted in that of its name, ``nic``, as well. So whoever asks
for a name alone is content with any type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

Gres = tuple[tuple[str, int], ...]
"""Names and amounts, sorted by name; mostly empty. Names of types hold one colon."""

PARTS_OF_GPUS: Final = frozenset({"shard", "mps"})
"""Gres that Slurm takes out of GPUs: what is in use of them keeps a GPU from others."""


def counted(amounts: Iterable[tuple[str, str, int]]) -> Gres:
    """Add up amounts by name and type ("": none, or any)."""
    found: dict[str, int] = {}
    for name, kind, amount in amounts:
        for key in (name, f"{name}:{kind}") if kind else (name,):
            found[key] = found.get(key, 0) + amount
    return tuple(sorted((key, amount) for key, amount in found.items() if amount))


def gres_of(amounts: Iterable[tuple[str, int]]) -> Gres:
    """As in a file, where ``nic:mlx5`` is not counted in ``nic`` if that is not named."""
    found = dict(amounts)
    typed = [(*name.split(":", 1), n) for name, n in found.items() if ":" in name]
    totals = {key: n for key, n in counted(typed) if key not in found}  # type: ignore[arg-type]
    return tuple(sorted((found | totals).items()))


def plus(one: Gres, other: Gres, times: int = 1) -> Gres:
    """Both together; with ``times`` = -1 what is left, which may be less than none."""
    if not other:
        return one
    found = dict(one)
    for name, amount in other:
        found[name] = found.get(name, 0) + times * amount
    return tuple(sorted(found.items()))


def positive(gres: Gres) -> Gres:
    """Without what is used up, or less than none."""
    return tuple(each for each in gres if each[1] > 0) if gres else gres


def without(gres: Gres, names: Collection[str]) -> Gres:
    """Without all amounts of these names, of any type."""
    return tuple(each for each in gres if each[0].partition(":")[0] not in names) if names else gres


def covers(free: Mapping[str, int], asked: Gres) -> bool:
    """Tell whether all that is asked for is there."""
    return all(free.get(name, 0) >= amount for name, amount in asked)
