"""The parts of simulated sites that nobody decides: start-up, saving, faults, local users."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf, isfinite, log
from typing import Final

import numpy as np

from federator.errors import InvalidRequest

_Z90: Final = 1.2815515655446004  # standard deviations above the median


class Draws(IntEnum):
    """What random numbers are for; each has generators of its own."""

    STARTUP = 0
    FAILURES = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """How simulated sites behave. By default nothing takes time and nothing breaks.

    Attributes:
        startup_median_s: from the start at the site until the job does useful work: half of all
            starts take longer. MAST sec. 5: 150 s.
        startup_p90_s: one start in ten takes longer (log-normal). MAST: 278 s.
        save_s: that an evicted job takes to save; if its grace is shorter, it saves nothing.
        restore_s: that a start takes longer when there is a checkpoint to go on from.
        checkpoint_every_s: of useful work, between the checkpoints that a job makes by itself;
            ``inf``: none.
        node_mtbf_s: mean time between failures of one node.
        node_repair_s: until a failed node is back.
        local_load: GPU time asked for by local users, as a share of each site's.
        local_duration_s: mean run time of their jobs.
        local_gpus: most GPUs of a local job, on one node; 1 to so many are alike.
    """

    startup_median_s: float = 0.0
    startup_p90_s: float = 0.0
    save_s: float = 0.0
    restore_s: float = 0.0
    checkpoint_every_s: float = inf
    node_mtbf_s: float = inf
    node_repair_s: float = 4 * 3600.0
    local_load: float = 0.0
    local_duration_s: float = 3600.0
    local_gpus: int = 8

    def __post_init__(self) -> None:
        known = (
            self.startup_median_s,
            self.startup_p90_s,
            self.save_s,
            self.restore_s,
            self.node_repair_s,
            self.local_load,
            self.local_duration_s,
        )
        if not all(amount >= 0 and isfinite(amount) for amount in known):
            raise InvalidRequest(f"times and loads: expected numbers from 0 on, got {self}")
        if not (self.checkpoint_every_s > 0 and self.node_mtbf_s > 0):  # NaN fails too
            raise InvalidRequest(f"checkpoint_every_s, node_mtbf_s: expected above 0, got {self}")
        if self.local_gpus < 1 or self.local_gpus != int(self.local_gpus):
            raise InvalidRequest(f"local_gpus: expected 1, 2, ..., got {self.local_gpus}")
        if self.local_load and not self.local_duration_s:
            raise InvalidRequest("local_duration_s: expected above 0 where there is local load")
        if self.startup_p90_s and not 0 < self.startup_median_s <= self.startup_p90_s:
            raise InvalidRequest(
                f"startup_p90_s: expected at least a median above 0, got {self.startup_p90_s}"
            )

    def startup_s(self, seed: int, arrival: int, attempt: int) -> float:
        """How long this start takes, whatever else happens in the simulation."""
        if not self.startup_median_s or self.startup_p90_s <= self.startup_median_s:
            return self.startup_median_s
        sigma = log(self.startup_p90_s / self.startup_median_s) / _Z90
        rng = np.random.default_rng([Draws.STARTUP, seed, arrival, attempt])
        return float(self.startup_median_s * np.exp(sigma * rng.standard_normal()))

    def kept_s(self, done_s: float) -> float:
        """How much of the useful work is saved when a job stops without warning."""
        if not isfinite(self.checkpoint_every_s):
            return 0.0
        return done_s // self.checkpoint_every_s * self.checkpoint_every_s
