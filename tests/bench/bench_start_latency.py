"""How long from fsbatch to the first line of the job, on an idle testbed? Against plain sbatch.

Run by ``./test bench``. Each job notes the time it starts; all clocks are this machine's. Prints
median, P95 and maximum over the jobs, and the ratio of the medians. Asserts nothing.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from pathlib import Path

from federator.testbed import layout
from tests.slurm.conftest import clear
from tests.slurm.federation import Running, at, output_of, within

JOBS = 30
SCRIPT = "#!/bin/sh\ndate +%s.%N\n"


def federated(running: Running) -> list[float]:
    """Seconds from the start of fsbatch to the job's first line, one job at a time."""
    delays = []
    for kind, _ in zip(itertools.cycle(["a100", "h100", "a100"]), range(JOBS), strict=False):
        began_s = time.time()
        id_ = running.submit(SCRIPT, f"--gres=gpu:{kind}:1")
        (row,) = running.await_end(id_)
        delays.append(float(output_of(row)) - began_s)
    return delays


def plain() -> list[float]:
    """The same with each site's own sbatch (through docker exec)."""
    delays = []
    for site, _ in zip(itertools.cycle(layout.SITES), range(JOBS), strict=False):
        began_s = time.time()
        id_ = at(site.name, "sbatch", "--parsable", "--partition=fed", "--gres=gpu:1",
                 user="vision1", stdin=SCRIPT).strip()  # fmt: skip
        name = f"/home/vision1/slurm-{id_}.out"

        def started(site: str = site.name, name: str = name) -> str:
            return at(site, "sh", "-c", f"cat {name} 2>/dev/null || true")

        delays.append(float(within(30, started)) - began_s)
    return delays


def line(what: str, delays: list[float]) -> str:
    ordered = sorted(delays)
    p95 = ordered[int(0.95 * (len(ordered) - 1) + 0.5)]
    median = statistics.median(ordered)
    return f"{what:<10} {median:>9.2f} {p95:>9.2f} {ordered[-1]:>9.2f}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        clear()
        running = Running(Path(folder))
        running.start()
        try:
            ours = federated(running)
        finally:
            running.stop()
    theirs = plain()
    print(f"{JOBS} jobs, one at a time   median_s     P95_s     max_s")
    print(line("fsbatch", ours))
    print(line("sbatch", theirs))
    print(f"ratio of medians {statistics.median(ours) / statistics.median(theirs):.2f}")


if __name__ == "__main__":
    main()
