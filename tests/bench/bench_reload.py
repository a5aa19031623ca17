"""Seconds of a turn that a reload takes: ``python -m tests.bench.bench_reload``.

Beside it, in the same run, the naive way: a federation made anew from a snapshot of the log.
"""

from __future__ import annotations

import gc
import time
from statistics import median

from federator.model.tenant import Tenancy
from federator.policies.mast import Mast
from federator.sched.passes.federation import Federation
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from federator.sched.state.snapshot import taken
from federator.sched.state.usage import UsageMemory
from tests.fakes.long_log import long_log

SIZES = (10_000, 100_000)
RUNS = 5


def federation(workloads: int) -> Federation:
    found = Federation({}, Mast(), Rules(), Ledger())
    found.replay(long_log(workloads))
    return found


def reload_s(known: Federation) -> float:
    began_s = time.perf_counter()
    now_s = known.ledger.latest_s
    known.reconfigure({}, Mast(), Rules(), Tenancy(), UsageMemory().average(), now_s)
    return time.perf_counter() - began_s


def anew_s(known: Federation) -> float:
    began_s = time.perf_counter()
    ledger = Ledger()
    for record in taken(known.ledger, known.ledger.latest_s):
        ledger.apply(record)
    return time.perf_counter() - began_s


def main() -> None:
    for size in SIZES:
        known = federation(size)
        gc.collect()
        gc.freeze()
        ours = median(reload_s(known) for _ in range(RUNS))
        naive = median(anew_s(known) for _ in range(RUNS))
        print(f"{size:>7} workloads: {ours:.2f} s; made anew {naive:.2f} s, {naive / ours:.1f} x")


if __name__ == "__main__":
    main()
