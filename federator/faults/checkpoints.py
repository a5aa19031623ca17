"""Simulated checkpoints: what each region's storage really holds, and copies from one to another.

A copy takes several steps. Its worker may be killed in any of them; what it had copied is seen by
nobody, as only a whole one is put in its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from federator.model.dataset import CopyPhase
from federator.sched.passes.checkpoint_moves import SEALED
from federator.wire.agent_protocol import CopyOrder

STEPS: Final = 3  # of a copy
KILLED_PART: Final = 0.5  # of these
SIZE: Final = 1000
Step = tuple[CopyPhase, int, str]


class SimulatedCheckpoint(NamedTuple):
    """The newest one of a workload in a region: its number, and how often work was saved by it."""

    number: int
    saves: int


NONE_YET: Final = SimulatedCheckpoint(0, 0)


class SimulatedCheckpoints:
    """All that jobs have saved.

    Args:
        regions: of each site.
        rng: says when a worker dies.
        tell: notes what struck.
    """

    def __init__(
        self, regions: Mapping[str, str], rng: Random, tell: Callable[[str], None]
    ) -> None:
        self._regions = regions
        self._rng = rng
        self._tell = tell
        self._newest: dict[tuple[str, int], SimulatedCheckpoint] = {}
        self._copied: dict[tuple[str, str], int] = {}  # steps, by region and path

    def newest(self, site: str, workload: int) -> SimulatedCheckpoint:
        """What a job would find at a site."""
        return self._newest.get((self._regions[site], workload), NONE_YET)

    def save(self, site: str, workload: int, saves: int) -> None:
        """A job saves there."""
        number = self.newest(site, workload).number + 1
        self._newest[self._regions[site], workload] = SimulatedCheckpoint(number, saves)

    def step(self, site: str, order: CopyOrder) -> Step:
        """As ``SiteDriver.copy``."""
        here = self._regions[site]
        workload = int(order.version)
        if order.digest == SEALED:
            found = self.newest(site, workload)
            if found is NONE_YET:
                return CopyPhase.FOUND, 0, "- its folder holds no sealed checkpoint"
            return CopyPhase.FOUND, SIZE, f"{_name(found)} {_digest(workload, found)}"
        key = here, order.path
        if order.drop:
            self._copied.pop(key, None)
            return CopyPhase.DROPPED, 0, ""
        return self._copy(here, workload, key, order)

    def _copy(self, here: str, workload: int, key: tuple[str, str], order: CopyOrder) -> Step:
        there = order.source.split("/")[2]  # /shared/REGION/USER/checkpoints/ID/NAME
        source = self._newest.get((there, workload), NONE_YET)
        known = self._newest.get((here, workload), NONE_YET)
        if _digest(workload, known) == order.digest:
            return CopyPhase.DONE, SIZE, ""
        if _digest(workload, source) != order.digest:
            return CopyPhase.FAILED, 0, "what came has another digest"
        if known.number >= source.number:
            return CopyPhase.FAILED, 0, "a newer checkpoint is in its folder"
        if self._rng.random() < KILLED_PART:
            self._tell("copy killed")
            return CopyPhase.COPYING, self._copied.get(key, 0) * SIZE // STEPS, ""
        self._copied[key] = self._copied.get(key, 0) + 1
        if self._copied[key] < STEPS:
            return CopyPhase.COPYING, self._copied[key] * SIZE // STEPS, ""
        del self._copied[key]
        self._newest[here, workload] = source
        return CopyPhase.DONE, SIZE, ""


def _name(of: SimulatedCheckpoint) -> str:
    return f"ckpt-{of.number:08d}-step-{of.saves}"


def _digest(workload: int, of: SimulatedCheckpoint) -> str:
    return SEALED + hashlib.sha256(f"{workload} {of.number} {of.saves}".encode()).hexdigest()
