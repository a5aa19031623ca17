"""Finds the smallest buddy cell that a job must break.

What is free of a node counts as cells whose sizes are powers of two: 6 free GPUs are a cell of 4
and one of 2. The wholly free nodes of a rack count as cells likewise. Which GPUs of a node a job
gets is Slurm's choice, so a cell of GPUs is a number, and not particular ones.

Source:
    HiveD (OSDI'20): buddy allocation, where a request takes the smallest free cell that holds it,
    so that larger ones stay whole. SIA sec. 5.5: a server of 8 GPUs is a cell, and splits into 2
    of 4, 4 of 2 or 8 of 1.
"""

from __future__ import annotations


def broken_cell(free: int, wanted: int) -> int:
    """The size of the smallest cell of what is free that holds a request.

    Args:
        free: GPUs of a node, or nodes of a rack.
        wanted: as many at most, above 0.

    Returns:
        A power of two; or ``free``, where no cell alone holds it and several must be broken.
    """
    cell = 1 << max(0, wanted - 1).bit_length()
    while cell <= free:
        if cell & free:
            return cell
        cell <<= 1
    return free
