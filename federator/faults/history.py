"""Runs the history of one seed, the same each time, and says whether a promise was broken."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import structlog

from federator.daemon import compaction
from federator.faults.clock import VirtualClock, run_virtual
from federator.faults.fault_injector import DRAWN_FAULTS, FaultInjector
from federator.faults.kinds import FaultKind
from federator.faults.process import ManyProcesses
from federator.faults.world import BEGINS_S, World
from federator.sched.passes import copy_targets, scaling, write_off

COMPACTED_AT: Final = 25  # records
RESIZED_S: Final = 2.0  # a resize is taken to cost
WRITTEN_OFF_S: Final = 8.0  # for so long a site must have been away
FAULTS_S: Final = 90.0
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_OURS: Final = ("link_fault", "call_fault")  # events by which the daemon owns to a fault of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEnd:
    """Of one history."""

    seed: int
    broken: tuple[str, ...]  # promises; none if all is well
    struck: Counter[FaultKind]
    counts: Counter[str]
    digest: str
    lasted_s: float  # of virtual time
    story: tuple[str, ...]


def run_history(seed: int, menu: tuple[FaultKind, ...] = DRAWN_FAULTS) -> HistoryEnd:
    """Live through the history of a seed."""
    clock = VirtualClock(BEGINS_S)
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="federator-faults-", dir=where) as folder, _quiet() as said:
        world = World(Random(seed), clock, Path(folder))
        injector = FaultInjector(world, FAULTS_S, menu)

        async def live() -> None:
            injector.begin()
            await world.run(FAULTS_S)

        loops: list[ManyProcesses] = []

        def loop_of(clock: VirtualClock) -> ManyProcesses:
            loops.append(ManyProcesses(clock))
            return loops[-1]

        with _in_a_hurry():
            run_virtual(clock, live(), loop_of)
        loops[0].take_unasked()
    broken = [*world.model.evidence.broken, *(f"unforeseen: {e!r}" for e in loops[0].faults), *said]
    return HistoryEnd(
        seed=seed,
        broken=tuple(broken),
        struck=world.struck,
        counts=world.model.evidence.counts,
        digest=world.digest,
        lasted_s=clock() - BEGINS_S,
        story=tuple(world.story),
    )


@contextmanager
def _in_a_hurry() -> Iterator[None]:
    """A log of a few dozen records is long enough here, a site is soon given up, a resize cheap.

    A checkpoint is copied at once, though its region could go on with it later.
    """
    setup_s, copy_targets.START_S = copy_targets.START_S, 0.0  # type: ignore[misc]
    before = compaction.LEAST_RECORDS, compaction.FIRST_AFTER_S, write_off.AWAY_S
    resize_s, scaling.RESIZE_S = scaling.RESIZE_S, RESIZED_S  # type: ignore[misc]
    compaction.LEAST_RECORDS, compaction.FIRST_AFTER_S = COMPACTED_AT, 3.0  # type: ignore[misc]
    write_off.AWAY_S = WRITTEN_OFF_S  # type: ignore[misc]
    try:
        yield
    finally:
        compaction.LEAST_RECORDS, compaction.FIRST_AFTER_S, write_off.AWAY_S = before  # type: ignore[misc]
        scaling.RESIZE_S = resize_s  # type: ignore[misc]
        copy_targets.START_S = setup_s  # type: ignore[misc]


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """Keep the daemon's log to ourselves; what it says of its own faults is kept."""
    said: list[str] = []

    def keep(_logger: object, _method: str, event: Any) -> Any:
        if event.get("event") in _OURS:
            said.append(f"the daemon says: {event}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.format_exc_info, keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=False,
    )
    try:
        yield said
    finally:
        structlog.configure(**before)
