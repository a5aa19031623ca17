"""Replaces the log by a snapshot now and then, so that log and restart time stay bounded.

When as many records have come since the last one as make a restart noticeably longer. No turn is
taken meanwhile, but the event loop runs on: sites hear pings, and questions are answered.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import structlog

from federator.errors import NotCompacted
from federator.model.event import encode_event
from federator.sched.state.ledger import Ledger
from federator.sched.state.snapshot import taken
from federator.store.base import Store

LEAST_RECORDS: Final = 25_000
RECORDS_PER_WORKLOAD: Final = 0.25  # since the last snapshot, of those that are known
REST: Final = 20.0  # as many times as long as a compaction took, no other is made
FIRST_AFTER_S: Final = 60.0  # a daemon that has just started has sites waiting
AGAIN_AFTER_S: Final = 600.0  # where there was no room, say
WAITS: Final = 20.0  # for a history that is behind, until the log is so many times as long

log = structlog.get_logger()


class LogFollower(Protocol):
    """Reads the log and keeps something of it."""

    def take_all(self) -> None:
        """Read on up to the end; raises ``NotCompacted`` where that cannot be done now."""


async def _nothing() -> None:
    """Nothing is forgotten."""


class Compaction:
    """Keeps one term's log short.

    Args:
        ledger: what the log has told.
        store: where the log is, led by this process.
        act: calls what blocks, without blocking.
        now_s: Unix time.
        followers: must have all of the log first.
    """

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        act: Callable[..., Awaitable[Any]],
        now_s: float,
        followers: Sequence[LogFollower] = (),
    ) -> None:
        self._followers = followers
        self._ledger = ledger
        self._store = store
        self._act = act
        self._not_before_s = now_s + FIRST_AFTER_S
        self._trouble = ""

    def is_due(self, now_s: float) -> bool:
        """Whether the log has grown long enough."""
        return self._ledger.tail > self._enough and now_s >= self._not_before_s

    @property
    def _enough(self) -> float:
        return max(LEAST_RECORDS, RECORDS_PER_WORKLOAD * len(self._ledger.entries))

    async def run(self, now_s: float, forget: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Put a snapshot in place of the log; nothing may be appended meanwhile.

        Where that cannot be done the log stays as it is, and it is tried again later. What ended
        long ago is forgotten only once the history has it.

        Args:
            now_s: Unix time.
            forget: appends to the log which workloads are forgotten.

        Raises:
            LeadershipLost, StoreError: as ``Store.append``.
        """
        began_s = time.monotonic()
        try:
            if await self._act(self._is_followed):
                await forget()
            records, size = await self._act(self._replace, now_s)
        except NotCompacted as error:
            self._not_before_s = now_s + AGAIN_AFTER_S
            if not self._trouble:
                log.warning("log_not_compacted", detail=str(error), again_in_s=AGAIN_AFTER_S)
            self._trouble = str(error)
            return
        took_s = time.monotonic() - began_s
        self._ledger.tail, self._trouble = 0, ""
        self._not_before_s = now_s + REST * took_s
        log.info(
            "log_compacted",
            workloads=len(self._ledger.entries),
            records=records,
            mib=round(size / 2**20, 1),
            took_s=round(took_s, 1),
        )

    def _is_followed(self) -> bool:
        """Whether all followers have all of it; raises ``NotCompacted`` while one is waited for.

        Not for ever: a log that grows and grows ends the daemon. What the history lacks then it
        takes from the snapshot; the audit says what it lacks.
        """
        try:
            for follower in self._followers:
                follower.take_all()
        except NotCompacted:
            if self._ledger.tail < WAITS * self._enough:
                raise
            return False
        return True

    def _replace(self, now_s: float) -> tuple[int, int]:
        self._is_followed()
        records = [encode_event(record) for record in taken(self._ledger, now_s)]
        self._store.compact(records)
        return len(records), sum(map(len, records))
