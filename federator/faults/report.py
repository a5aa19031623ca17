"""Sums many histories up: faults counted by kind, and promises that were broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from federator.faults.history import HistoryEnd, run_history
from federator.faults.kinds import FaultKind

_CHUNK: Final = 5


@dataclass(slots=True)
class FaultReport:
    """Of the histories so far."""

    histories: int = 0
    struck: Counter[FaultKind] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)  # of what happened besides
    lasted_s: float = 0.0  # of virtual time
    broken: list[HistoryEnd] = field(default_factory=list)  # histories in which a promise was

    def add(self, outcome: HistoryEnd) -> None:
        self.histories += 1
        self.struck += outcome.struck
        self.counts += outcome.counts
        self.lasted_s += outcome.lasted_s
        if outcome.broken:
            self.broken.append(outcome)

    def lines(self) -> Iterator[str]:
        """For people: every kind, how often it struck, and what was broken."""
        width = max(len(kind.value) for kind in FaultKind)
        for kind in FaultKind:
            yield f"{kind.value:{width}}  {self.struck[kind]}"
        yield ""
        for name in sorted(self.counts):
            yield f"{name}: {self.counts[name]}"
        kinds = sum(1 for kind in FaultKind if self.struck[kind])
        yield (
            f"{self.histories} histories, {self.lasted_s / 3600:.1f} h of virtual time: "
            f"{sum(self.struck.values())} faults of {kinds} kinds struck, "
            f"{len(self.broken)} histories broke a promise"
        )
        for outcome in self.broken:
            yield f"seed {outcome.seed}: {'; '.join(outcome.broken)}"
            yield f"  again: federator faults --seed {outcome.seed} --histories 1 --verbose"

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "histories": self.histories,
            "virtual_s": self.lasted_s,
            "kinds": {kind.name.lower(): self.struck[kind] for kind in FaultKind},
            "counts": dict(sorted(self.counts.items())),
            "broken": [{"seed": each.seed, "promises": each.broken} for each in self.broken],
        }


def run_histories(seeds: Iterable[int], processes: int = 1) -> Iterator[HistoryEnd]:
    """The outcomes in the order of the seeds; with several processes side by side."""
    if processes == 1:
        yield from map(run_history, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(run_history, seeds, chunksize=_CHUNK)
