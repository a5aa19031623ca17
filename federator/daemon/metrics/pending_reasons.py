"""Pending workloads by the main reason for which they wait.

Workloads of one lane (a tenant's that ask for the same) wait for the same reason, so one of each
part of a lane is asked about. With many lanes a scrape asks about some, for ``PATIENCE_S``, and the
next one goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from federator.daemon.views import main_reason
from federator.model.reason import ReasonCode
from federator.model.workload import WorkloadId
from federator.sched.passes.federation import Federation

PATIENCE_S: Final = 0.002
MOST_PARTS: Final = 5_000
NOT_EXAMINED: Final = "not_examined"
WORDS: Final = (*(code.value for code in ReasonCode), NOT_EXAMINED)

_Key = tuple[object, ...]


class _Part(NamedTuple):
    """Neighbours of one lane."""

    key: _Key
    workloads: int
    first: WorkloadId


class PendingReasons:
    """What is known of why workloads wait.

    Args:
        federation: read only.
        clock: seconds that never run backwards.
    """

    def __init__(self, federation: Federation, clock: Callable[[], float]) -> None:
        self._federation, self._clock = federation, clock
        self._known: dict[_Key, str] = {}
        self._next = 0  # part to ask about

    def now(self) -> Counter[str]:
        """Workloads by reason; every reason is there."""
        found = Counter(dict.fromkeys(WORDS, 0))
        parts = list(islice(self._parts(), MOST_PARTS))
        waiting = len(self._federation.ledger.backlog)
        found[NOT_EXAMINED] = waiting - sum(part.workloads for part in parts)
        self._examine(parts)
        for part in parts:
            found[self._known.get(part.key, NOT_EXAMINED)] += part.workloads
        return found

    def _parts(self) -> Iterator[_Part]:
        backlog = self._federation.ledger.backlog
        for row in backlog.rows():
            for lane in backlog.lanes(row):
                for run in backlog.runs(lane):
                    place = lane.place(run.start)
                    key = (row, lane.shape, run.within_quota)
                    yield _Part(key, run.stop - run.start, WorkloadId(place[1]))

    def _examine(self, parts: list[_Part]) -> None:
        until_s = self._clock() + PATIENCE_S
        known: dict[_Key, str] = {}
        entries = self._federation.ledger.entries
        for k in range(len(parts)):
            part = parts[(self._next + k) % len(parts)]
            entry = entries[part.first]
            reason = main_reason(entry, self._federation.refusals_of(entry))
            known[part.key] = (reason.code if reason else ReasonCode.NOT_TRIED).value
            if self._clock() >= until_s:
                self._next = (self._next + k + 1) % len(parts)
                break
        alive = {part.key for part in parts}
        self._known = {key: code for key, code in self._known.items() if key in alive} | known
