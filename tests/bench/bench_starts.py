"""What estimated starts cost the daemon: a look at the queue, and one play of it.

Run: ``python -m tests.bench.bench_starts``. CPU time on the process of the daemon's loop. Between
two plays the loop does its turns, so a look and a play are what anybody waits for.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from federator.sched.starts.estimates import StartEstimates
from federator.sched.state.durations import DurationModel
from tests.bench import bench_pass

SITES: Final = 8
PENDING: Final = (8_000, 15_000, 100_000)


def measure(pending: int) -> tuple[float, list[float], int, int]:
    """Seconds of a look and of each play; pieces that run; how many are played."""
    bench_pass.SITES, bench_pass.RACKS = SITES, 128 // SITES
    fleet = bench_pass.Fleet()
    fleet.submit(pending, bench_pass.mixed())
    fleet.one_pass()
    ledger, now_s = fleet.federation.ledger, fleet.federation.ledger.latest_s + 60.0
    _learn(ledger.durations._model)
    estimates = StartEstimates(fleet.federation)
    estimates.look(now_s)
    began_s = time.process_time()
    estimates.look(now_s)
    plays = estimates.begin(now_s)
    look_s = time.process_time() - began_s
    took_s = []
    while not plays.over:
        began_s = time.process_time()
        plays.play()
        took_s.append(time.process_time() - began_s)
    return look_s, took_s, len(plays.view.occupied), len(plays.view.queued)


def _learn(model: DurationModel) -> None:
    """Runs of all sizes, from minutes to a day."""
    for k in range(300):
        for size in range(11):
            model.observe(("vision", "ada", "train"), 2**size, 60.0 * 1.02**k)  # type: ignore[arg-type]


def main() -> None:
    for pending in PENDING:
        look_s, took_s, running, played = measure(pending)
        print(
            f"{pending:,} submitted: look {look_s * 1e3:.0f} ms, a play "
            f"{statistics.median(took_s) * 1e3:.0f} ms (at most {max(took_s) * 1e3:.0f}), all "
            f"{sum(took_s):.1f} s; {running} pieces run, {played} are played"
        )


if __name__ == "__main__":
    main()
