"""Measures the queue: submissions acknowledged and a log replayed.

Run by ``./test bench``; Prints medians; asserts nothing. The submission figure is
set against a bare append to the same SQLite log, one commit each, which is what durability costs.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from federator.model.event import decode_event, encode_event
from federator.model.message import Record, SubmitAsked
from federator.model.workload import SiteName
from federator.policies.fifo import Fifo
from federator.sched.passes.federation import Federation
from federator.sched.state.rules import Rules
from federator.store.sqlite import SqliteStore
from tests.fakes.build import draft, gang

REPEATS = 5
SUBMISSIONS = 500
WAITING = 2_000
SITES: dict[SiteName, tuple[str, ...]] = {
    SiteName("alpine"): ("gpu",)
}  # not heard yet, so nothing is refused


def median_s(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(REPEATS))


def submit_each() -> float:
    """Seconds for SUBMISSIONS, each committed before the next: one client after the other."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "queue.db")
        store.lead(0)
        federation = Federation(SITES, Fifo(), Rules())
        began_s = time.perf_counter()
        for k in range(SUBMISSIONS):
            asked = SubmitAsked(client=k, key=f"key-{k:08}", draft=draft(gang(1)))
            commands = federation.handle(asked, float(k))
            store.append([encode_event(c.event) for c in commands if isinstance(c, Record)])
        took_s = time.perf_counter() - began_s
        store.close()
    return took_s


def append_each() -> float:
    """The naive reference: as many bare appends of as many bytes."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "queue.db")
        store.lead(0)
        began_s = time.perf_counter()
        for _ in range(SUBMISSIONS):
            store.append([b"x" * 400])
        took_s = time.perf_counter() - began_s
        store.close()
    return took_s


def replay() -> float:
    """Seconds to rebuild the state of WAITING workloads from their log."""
    federation = Federation(SITES, Fifo(), Rules())
    records = []
    for k in range(WAITING):
        asked = SubmitAsked(client=k, key=f"key-{k:08}", draft=draft(gang(1)))
        records += [
            encode_event(c.event)
            for c in federation.handle(asked, float(k))
            if isinstance(c, Record)
        ]
    began_s = time.perf_counter()
    Federation(SITES, Fifo(), Rules()).replay(map(decode_event, records))
    return time.perf_counter() - began_s


def main() -> None:
    print(f"{os.cpu_count()} cores; medians of {REPEATS}")
    ours, bare = median_s(submit_each), median_s(append_each)
    print(f"submissions, durable one by one   {SUBMISSIONS / ours:10.0f} /s")
    print(
        f"bare appends, one commit each     {SUBMISSIONS / bare:10.0f} /s   ratio {bare / ours:.2f}"
    )
    print(f"replay of the log                 {WAITING / median_s(replay):10.0f} workloads/s")


if __name__ == "__main__":
    main()
