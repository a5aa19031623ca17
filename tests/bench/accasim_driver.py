"""Runs AccaSim 1.1.3 on a workload in SWF, its cores as one counter; prints JSON.

Run by ``bench_simulate.py`` with the Python of a virtual environment that has accasim:
``accasim_driver.py WORKLOAD.swf SYSTEM.json FIFO|SJF swf|node``. AccaSim writes no files here and
its own statistics are off, which is the cheapest that it can be run. ``swf``: as it reads SWF by
itself, each core of a job is asked for and placed alone. ``node``: each job asks for all its cores
at once, on a system of one node; nothing is placed, so it takes less time. Waits are the same.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import importlib
import io
import json
import sys
import tempfile
import time
from typing import Any

# AccaSim imports a name that left ``collections`` with Python 3.10.
collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]


def main(workload: str, system: str, order: str, asks: str) -> None:
    schedulers = importlib.import_module("accasim.base.scheduler_class")
    allocators = importlib.import_module("accasim.base.allocator_class")
    simulators = importlib.import_module("accasim.base.simulator_class")
    readers = importlib.import_module("accasim.utils.reader_class")
    events = importlib.import_module("accasim.base.event_class")
    kind = {"FIFO": schedulers.FirstInFirstOut, "SJF": schedulers.ShortestJobFirst}[order]

    class OneNode(readers.Tweaker):  # type: ignore[misc, name-defined]
        """A job asks one node for as many cores as it has processors: the node is a counter."""

        def tweak_function(self, job: dict[str, Any]) -> dict[str, Any]:
            cores = job.pop("total_processors")
            job["core"], job["requested_nodes"] = cores, 1
            job["requested_resources"] = {"core": cores}
            job["queue"] = job.pop("queue_number")
            return job

    waits_s: list[int] = []
    finish = events.EventManager.finish_event

    def finish_event(self: Any, event: Any) -> None:
        finish(self, event)
        waits_s.append(event.waiting_time)

    events.EventManager.finish_event = finish_event
    with tempfile.TemporaryDirectory() as results, contextlib.redirect_stdout(io.StringIO()):
        simulator = simulators.Simulator(
            workload,
            system,
            kind(allocators.FirstFit()),
            tweak_function=OneNode() if asks == "node" else None,
            scheduling_output=False,
            statistics_output=False,
            show_statistics=False,
            RESULTS_FOLDER_PATH=results,
        )
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        simulator.start_simulation()
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(
        json.dumps({"jobs": len(waits_s), "wait_s": sum(waits_s), "wall_s": wall_s, "cpu_s": cpu_s})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
