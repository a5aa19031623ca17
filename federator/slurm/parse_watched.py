"""Reads squeue where a site's own queue is watched: more fields of the same one command.

``WATCH_FORMAT`` puts what Slurm composes before the ordinary record, and what users gave after it.
So whoever counts bytes finds the ordinary record in the middle, as safely as without (see
``parse_jobs``). Seen on 22.05, 24.11 and 26.05: ``tres-alloc`` names GPUs only where
AccountingStorageTRES has gres/gpu; what was asked for is told by one of ``tres-per-*``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from federator.model.local_record import UNKNOWN_GPUS
from federator.slurm.parse_base import parse_count, parse_duration_s, parse_time_s

_BEFORE: Final = ("EligibleTime", "TimeLimit", "NumNodes", "NumTasks", "tres-alloc")
_BEHIND: Final = ("tres-per-job", "tres-per-node", "tres-per-task", "tres-per-socket")
_WIDTH: Final = 64
_GPU: Final = re.compile(
    r"(?:^|,)(?:gres[/:])?gpu(?::([^:=,0-9][^:=,]*))?(?:[:=]([0-9]{1,9}))?(?=,|$)", re.ASCII
)
_NOTHING: Final = ("", "N/A", "(null)")
MOST_NODES: Final = 1_000_000


def watch_format(ordinary: str) -> str:
    """For ``squeue -O``: ``ordinary`` with more before and behind it."""
    before = [f"{name}:|" for name in _BEFORE]
    return ",".join([*before, ordinary, *(f"{name}:{_WIDTH}" for name in _BEHIND)])


class QueueFacts(NamedTuple):
    """What a watched job's record tells beside the ordinary one; as of ``LocalRecord``."""

    eligible_at_s: float
    limit_s: float
    nodes: int
    gpus: int
    gpu_type: str


def watched_record(safe_fields: int, free_bytes: int) -> re.Pattern[bytes]:
    """One record of squeue by ``watch_format``; its group 1 is what comes before the ordinary one,
    group 2 the ordinary one without its end of line, group 3 the rest.

    Args:
        safe_fields: of the ordinary record, that Slurm composes.
        free_bytes: of the ordinary record, that users gave.
    """
    return re.compile(
        rb"((?:[^|\n]*+\|){%d})((?:[^|\n]*+\|){%d}[\s\S]{%d})([\s\S]{%d})\n"
        % (len(_BEFORE), safe_fields, free_bytes, _WIDTH * len(_BEHIND))
    )


@lru_cache(maxsize=32_768)  # most records are the same from sweep to sweep
def read_facts(before: bytes, behind: bytes) -> QueueFacts:
    """Read groups 1 and 3 of a ``watched_record``; what cannot be read is as if not told."""
    eligible, limit, nodes, tasks, held, _ = before.decode("utf-8", "replace").split("|")
    asked = [
        behind[at : at + _WIDTH].decode("utf-8", "replace").strip()
        for at in range(0, len(behind), _WIDTH)
    ]
    count, task_count = _count(nodes), _count(tasks)
    gpus, kind = _gpus(held, asked, count, task_count)
    return QueueFacts(_time(eligible), _limit(limit), count, gpus, kind)


def _gpus(held: str, asked: list[str], nodes: int, tasks: int) -> tuple[int, str]:
    """All GPUs and their type: as Slurm counts them, else by what was asked for."""
    found = [(each, times) for each, times in zip(asked, (1, nodes, tasks, 0), strict=True)]
    types = {kind for text, _ in found for kind, _ in _GPU.findall(text) if kind}
    kind = types.pop() if len(types) == 1 else ""
    counted = _GPU.findall(held)
    if counted:
        untyped = [int(count or 1) for name, count in counted if not name]
        return (untyped[0] if untyped else sum(int(count or 1) for _, count in counted)), kind
    for text, times in found:
        if text not in _NOTHING and (named := _GPU.findall(text)):
            total = times * sum(int(count or 1) for _, count in named)
            return (total if times else UNKNOWN_GPUS), kind
    return 0, kind


def _count(text: str) -> int:
    try:
        return min(parse_count(text.partition("-")[0]), MOST_NODES)
    except ValueError:
        return 0


def _time(text: str) -> float:
    try:
        return parse_time_s(text)
    except ValueError:
        return 0.0


def _limit(text: str) -> float:
    """Of ``10:00``, which squeue prints below an hour, and what ``parse_duration_s`` reads."""
    try:
        return parse_duration_s(f"0:{text:0>5}" if text.count(":") == 1 else text)
    except ValueError:
        return inf
