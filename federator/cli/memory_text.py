"""Writes amounts of memory as squeue, scontrol and sacct do."""

from __future__ import annotations

from typing import Final

MEMORY_UNITS: Final = "KMGTP"
_LARGEST: Final = len(MEMORY_UNITS) - 1


def memory_text(mib: int, unit: str = "", *, convert: bool = True) -> str:
    """``2000M``, ``62.50G``, ``64G``: in a larger unit where that is a multiple of half of it.

    Args:
        mib: MiB; 0 is the site's default.
        unit: one of K M G T P: in this one, whatever comes of it.
        convert: else MiB.
    """
    if not mib:
        return "0"
    at, amount = 1, float(mib)
    if convert and unit:
        at = MEMORY_UNITS.index(unit)
        amount = mib / 1024 ** (at - 1)
    while convert and not unit and amount >= 1024 and amount % 512 == 0 and at < _LARGEST:
        amount, at = amount / 1024, at + 1
    decimals = 0 if amount.is_integer() else 2
    return f"{amount:.{decimals}f}{MEMORY_UNITS[at]}"
