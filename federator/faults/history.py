"""Runs the history of one seed, the same each time, and says whether a promise was broken."""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final

import structlog

from federator.daemon import compaction
from federator.faults.clock import VirtualClock, run_virtual
from federator.faults.fault_injector import DRAWN_FAULTS, FaultInjector
from federator.faults.kinds import FaultKind
from federator.faults.process import ManyProcesses
from federator.faults.world import BEGINS_S, World
from federator.sched.passes import copy_targets, held, scaling, write_off
from federator.sched.state import backoff

_HURRIED: Final[tuple[tuple[ModuleType, str, float], ...]] = (
    (compaction, "LEAST_RECORDS", 25),  # a log of a few dozen is long enough here
    (compaction, "FIRST_AFTER_S", 3.0),
    (write_off, "AWAY_S", 8.0),  # for so long a site must have been away
    (scaling, "RESIZE_S", 2.0),  # or no resize would pay
    (copy_targets, "START_S", 0.0),  # copied at once, though its region could go on with it
    # With the product's hour a history takes several times as long, and nothing but its end is
    # awaited. Here, too, what sites refuse is not tried again before the faults are over.
    (backoff, "REFUSING_SITE_S", 300.0),
    (held, "TRIED_EVERY_S", 60.0),
)
"""Constants of the product that are other ones here."""
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
    with _one_collection():
        return _lived(seed, menu)


def _lived(seed: int, menu: tuple[FaultKind, ...]) -> HistoryEnd:
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
        # Futures that failed unasked and are part of a cycle say so only when they are collected.
        # While nothing was, all that the history made is in the youngest generation.
        gc.collect(0)
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
def _one_collection() -> Iterator[None]:
    """Look for garbage when a history is over, and through nothing that is older than it.

    Else it is looked for some 200 times a history, and through all of a test process's own as well.
    What outlived the collection that ``_lived`` has made for its faults is one generation older.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.collect(1)
            gc.enable()


@contextmanager
def _in_a_hurry() -> Iterator[None]:
    """Have some constants of the product other values: see ``_HURRIED``."""
    before = [(module, name, getattr(module, name)) for module, name, _ in _HURRIED]
    for module, name, value in _HURRIED:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


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
