"""Judges how well a job used what it was given, and says what to ask for next time."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf
from typing import Final, NamedTuple

from federator.cli.text import clock_text
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow, MeasuredUse

LITTLE_FRAC: Final = 0.5  # of what it was given: less would have done
FULL_FRAC: Final = 0.95  # of its memory: hardly anything was left
SPARE: Final = 1.25  # more than was used is asked for next time
SMALL_MIB: Final = 1024.0  # on a node; nobody waits for so little
_NOTHING: Final = MeasuredUse()


class Efficiency(NamedTuple):
    """What the latest attempt used of what it was given; None: its site did not measure it."""

    elapsed_s: int
    cpus: int
    nodes: int
    cpu_s: float | None
    cpu_frac: float | None
    mem_mib: float | None
    given_mem_mib: float  # of all nodes; 0: not known
    mem_frac: float | None
    gpus: int
    gpu_frac: float | None
    gpu_mem_mib: float | None


def efficiency_of(made: AccountingAttempt, now_s: float) -> Efficiency:
    """Compare what an attempt used with what it was given.

    Args:
        made: the attempt, with its ``use``.
        now_s: Unix time, for one that still runs.
    """
    use = made.use or _NOTHING
    elapsed_s = max(0, int((made.ended_at_s or now_s) - made.started_at_s))
    cpus = int(use.alloc_cpus or made.cpus or 1)
    given_mib = float(use.alloc_mem_mib or made.mem_mib)
    core_s = elapsed_s * cpus
    return Efficiency(
        elapsed_s=elapsed_s,
        cpus=cpus,
        nodes=max(1, made.nodes),
        cpu_s=use.cpu_s,
        cpu_frac=None if use.cpu_s is None else use.cpu_s / core_s if core_s else 0.0,
        mem_mib=use.mem_mib,
        given_mem_mib=given_mib,
        mem_frac=use.mem_mib / given_mib if use.mem_mib is not None and given_mib else None,
        gpus=made.gpus,
        gpu_frac=use.gpu_util_frac,
        gpu_mem_mib=use.gpu_mem_mib,
    )


def advice(row: AccountingRow, found: Efficiency) -> Iterator[str]:
    """What to ask for next time, a line each; nothing where it was about right."""
    yield from _time_advice(row, found)
    yield from _cpu_advice(found)
    yield from _memory_advice(row, found)
    if found.gpus and found.gpu_frac is not None and found.gpu_frac < LITTLE_FRAC:
        fewer = "fewer GPUs (--gpus-per-node)" if found.gpus > 1 else "a partition without GPUs"
        yield f"the GPUs were busy {found.gpu_frac:.0%} of the time: {fewer}, or faster input"


def _time_advice(row: AccountingRow, found: Efficiency) -> Iterator[str]:
    limit_s = row.time_limit_s
    if limit_s == inf or limit_s <= 0:
        return
    if row.state == "TIMEOUT":
        yield f"--time above {clock_text(int(limit_s))}: it was ended by its limit"
    elif row.state == "COMPLETED" and found.elapsed_s < LITTLE_FRAC * limit_s:
        minutes = max(5, 5 * ceil(found.elapsed_s * SPARE / 300))
        if minutes * 60 < limit_s:
            yield f"--time={clock_text(minutes * 60)}: a shorter job starts sooner"


def _cpu_advice(found: Efficiency) -> Iterator[str]:
    if found.cpu_s is None or not found.elapsed_s or found.cpu_frac is None:
        return
    on_node = ceil(found.cpus / found.nodes)
    needed = max(1, ceil(found.cpu_s / found.elapsed_s * SPARE / found.nodes))
    if found.cpu_frac < LITTLE_FRAC and needed < on_node:
        yield f"{needed} {'CPU' if needed == 1 else 'CPUs'} on a node instead of {on_node} (-n, -c)"


def _memory_advice(row: AccountingRow, found: Efficiency) -> Iterator[str]:
    given = found.given_mem_mib / found.nodes
    if row.state == "OUT_OF_MEMORY" and given:
        yield f"--mem={_size(2 * given)}: its memory was not enough"
        return
    if found.mem_mib is None or found.mem_frac is None:
        return
    used = found.mem_mib / found.nodes
    if found.mem_frac > FULL_FRAC:
        yield f"--mem={_size(used * SPARE)}: hardly any memory was left"
    elif found.mem_frac < LITTLE_FRAC and given - used * SPARE > SMALL_MIB:
        yield f"--mem={_size(used * SPARE)} instead of {_size(given)} on a node"


def _size(mib: float) -> str:
    """As --mem takes it, not less than ``mib``."""
    return f"{ceil(mib / 1024)}G" if mib > 4096 else f"{100 * ceil(mib / 100)}M"
