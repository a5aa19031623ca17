"""Measures what traces cost: whoever tells spans, the thread that writes them, and what off costs.

Run by ``./test bench``; prints medians; asserts nothing. One workload is the ten spans of a life
with one attempt and three bids, told as the daemon tells them.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.traces.destination import Destination
from federator.traces.exporter import open_sink, otlp_of, sink_into
from federator.traces.span import TracedSpan, Value

WORKLOADS = 1_000
TIMES = 7
NAMES = ("submit", "wait", "pass", "bid", "bid", "bid", "award", "launch", "start", "run")
ABOUT: dict[str, Value] = {
    "federator.attempt": 1,
    "federator.site": "alpine",
    "federator.score.gpus_left": 3.0,
}


def life(number: int) -> list[TracedSpan]:
    """The spans of one workload."""
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    return [
        TracedSpan(id_, name, f"{name}/1/{k}", 1e9 + k, 1e9 + k + 1, "attempt/1", ABOUT)
        for k, name in enumerate(NAMES)
    ]


def median_us(act: Callable[[], object], per: int) -> float:
    took = []
    for _ in range(TIMES):
        began_s = time.process_time()
        act()
        took.append(time.process_time() - began_s)
    return statistics.median(took) / per * 1e6


def main() -> None:
    lives = [span for number in range(WORKLOADS) for span in life(number)]
    exporter = InMemorySpanExporter()
    with tempfile.TemporaryDirectory() as folder:
        where = Destination(file=str(Path(folder) / "traces.jsonl"))
        sink = open_sink(where, "demo", "bench", print)
        assert sink is not None

        def told() -> None:
            for span in lives[:5_000]:
                sink.tell(span)

        began_s = time.perf_counter()
        told()
        in_loop_us = (time.perf_counter() - began_s) / 500 * 1e6
        sink.close()
    dropped = sink_into(SimpleSpanProcessor(exporter), 0.0, "demo", "bench")

    def not_sampled() -> None:
        for span in lives:
            dropped.tell(span)

    kept = sink_into(SimpleSpanProcessor(exporter), 1.0, "demo", "bench")
    for span in lives[:5_000]:
        kept.tell(span)
    batch: list[ReadableSpan] = list(exporter.get_finished_spans())[:512]
    print(f"told, of one workload: {in_loop_us:.0f} us of the loop, the thread beside it")
    print(f"not sampled: {median_us(not_sampled, WORKLOADS):.1f} us")
    written_us = median_us(lambda: json.dumps(otlp_of(batch)), 512) * len(NAMES)
    print(f"written as OTLP, of one workload: {written_us:.0f} us in the thread")
    made_us = median_us(lambda: life(1), 1)
    print(f"made as values: {made_us:.1f} us")
    off = timeit.timeit("if each is not None: pass", "each = None", number=1_000_000)
    print(f"off: {off * 1e3:.0f} ns for each observation and each commit")


if __name__ == "__main__":
    main()
