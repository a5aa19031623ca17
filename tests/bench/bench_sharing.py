"""Measures what sharing is worth, and whom it slows, against each pool alone. Asserts nothing.

Against ``fifo-count``, for each policy that treats pools as counters, and for ``sia`` with
other knowledge than what it learns:

- on the September 2020 trace of Helios' Venus, if it is there (``FEDERATOR_TRACES``, or the folder
  ``shared/traces`` beside the repository), with all pools and without the two that donate most
  (those of which their own jobs leave most GPU-seconds);
- on SIA's synthetic workload and its variants, seeds 0 to 2.

And how often the forecast of arrivals was right on Venus, after the first days, at each step of 5
minutes and for each pool, under the schedule that ``sia`` itself made.

Run by ``./test bench``, or alone: ``python tests/bench/bench_sharing.py``.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from federator.planner.anticipation import WINDOWS_S
from federator.planner.boosted import FIRST_S, BoostedForecast
from federator.planner.forecast import SimilarJobs
from federator.planner.history import STEP_S, PoolHistory
from federator.sim.baselines.sia import Knowledge, SiaReplay
from federator.sim.generate.sia import SIA_VARIANTS
from federator.sim.importers.trace_csv import TraceBuilder, read_pools, read_trace
from federator.sim.registry import trace_policy
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePolicy

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "traces"
TRACES = Path(os.environ.get("FEDERATOR_TRACES", BESIDE))
VENUS = TRACES / "helios-venus-sept2020.csv.gz"
SEEDS = range(3)
POLICIES: Mapping[str, TracePolicy] = {
    **{name: trace_policy(name) for name in ("ssf", "gssf", "maxmin", "sia-vc")},
    **{f"sia {kind.value}": SiaReplay(knowledge=kind) for kind in Knowledge},
}
HEAD = (
    f"  {'policy':20}{'speed-up':>9}{'mean JCT':>10}{'p5':>7}{'p95':>8}"
    f"{'slowed':>8}{'worst':>9}{'total':>11}{'CPU':>8}"
)


def jcts_s(trace: Trace, table: Timetable) -> list[int]:
    return [end - submit for end, submit in zip(table.end_s, trace.submit_s, strict=True)]


def told(name: str, traces: Sequence[Trace], policy: TracePolicy) -> None:
    """One line for all jobs of some traces."""
    alone, shared = list[int](), list[int]()
    began_s = time.process_time()
    for trace in traces:
        shared += jcts_s(trace, policy.replay(trace, ReplayOptions()))
    took_s = time.process_time() - began_s
    for trace in traces:
        alone += jcts_s(trace, trace_policy("pool-fifo-count").replay(trace, ReplayOptions()))
    gains = sorted(a / b for a, b in zip(alone, shared, strict=True))
    later_s = [b - a for a, b in zip(alone, shared, strict=True) if b > a]
    print(
        f"  {name:20}{math.exp(statistics.fmean(map(math.log, gains))):8.2f}x"
        f"{sum(alone) / sum(shared):9.2f}x{gains[len(gains) // 20]:7.2f}"
        f"{gains[len(gains) * 19 // 20]:8.1f}{len(later_s) / len(gains):8.2%}"
        f"{max(later_s, default=0) / 60:6.0f}min{sum(later_s) / 60:8.0f}min{took_s:7.1f}s",
        flush=True,
    )


def compare(title: str, traces: Sequence[Trace]) -> None:
    print(f"{title}: {sum(map(len, traces)):,} jobs, {traces[0].capacity} GPUs")
    print(HEAD)
    for name, policy in POLICIES.items():
        told(name, traces, policy)


def without_donors(trace: Trace) -> Trace:
    """Without the two pools of which their own jobs leave most GPU-seconds."""
    span_s = max(trace.submit_s) - min(trace.submit_s)
    left = [pool.gpus * span_s for pool in trace.pools]
    for row, k in enumerate(trace.pool):
        left[k] -= trace.gpus[row] * trace.duration_s[row]
    donors = sorted(range(len(left)), key=left.__getitem__)[-2:]
    builder = TraceBuilder([pool for k, pool in enumerate(trace.pools) if k not in donors])
    for row, k in enumerate(trace.pool):
        if k not in donors:
            builder.add(
                job_id=trace.job_id[row],
                line=0,
                submit_s=trace.submit_s[row],
                duration_s=trace.duration_s[row],
                gpus=trace.gpus[row],
                num_nodes=None,
                cpus=None,
                pool=trace.pools[k].name,
                user=trace.user[row],
            )
    return builder.trace


def forecasts(trace: Trace) -> None:
    """Precision and recall of the trees."""
    table = trace_policy("sia").replay(trace, ReplayOptions())
    begin_s = min(trace.submit_s)
    history = PoolHistory(len(trace.pools), WINDOWS_S, begin_s)
    trees, similar = BoostedForecast(), SimilarJobs()
    events = [(at_s, 2, row) for row, at_s in enumerate(trace.submit_s)]
    events += [(at_s, 1, row) for row, at_s in enumerate(table.start_s)]
    events += [(at_s, 0, row) for row, at_s in enumerate(table.end_s)]
    events.sort(key=lambda event: (event[0], (0, 2, 1)[event[1]], event[2]))
    said: list[list[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]] = [[] for _ in WINDOWS_S]
    expected_s: dict[int, float] = {}
    position = 0
    for step_s in range(begin_s, max(trace.submit_s), STEP_S):
        while position < len(events) and events[position][0] <= step_s:
            at_s, kind, row = events[position]
            position += 1
            history.close(at_s - 1)
            job = trace.user[row], trace.pool[row], trace.gpus[row]
            if kind == 2:
                history.arrived(job[1], job[2])
                expected_s[row] = similar.expect_s(*job)
            elif kind == 1:
                history.started(row, job[1], at_s + expected_s[row])
            else:
                history.ended(row)
                similar.ended(*job, trace.duration_s[row])
        history.close(step_s)
        for window in range(len(WINDOWS_S)):
            said[window].append(trees.says(history, window))
    first = FIRST_S // STEP_S + 1
    for window, length_s in enumerate(WINDOWS_S):
        last = history.steps - history.windows[window]
        came = history.any_came(window, first, last)
        found = np.array(said[window][first - 1 : last])
        hits = int((found & came).sum())
        precision, recall = hits / int(found.sum()), hits / int(came.sum())
        f_score = 2 * precision * recall / (precision + recall)
        print(
            f"  arrivals within {length_s // 60:3} min: precision {precision:.2f} "
            f"recall {recall:.2f} F {f_score:.2f}; they came in {came.mean():.0%}"
        )


def main() -> None:
    if VENUS.exists():
        venus = read_trace(VENUS, read_pools(VENUS.with_name("helios-venus-sept2020.pools.csv")))
        compare("Venus, September 2020", [venus])
        forecasts(venus)
        compare("Venus without the two pools that donate most", [without_donors(venus)])
    else:
        print("no Venus trace in ../shared/traces; set FEDERATOR_TRACES")
    for name, workload in SIA_VARIANTS.items():
        compare(f"SIA's synthetic workload, {name}", [workload.generate(seed) for seed in SEEDS])


if __name__ == "__main__":
    main()
