"""Measures fsbatch to the job's first line on an idle testbed, beside plain sbatch.

Run by ``./test bench``. Each job notes the time it starts; all clocks are this machine's. Prints
median, P95 and maximum over the jobs, and the ratio of the medians. The exit status is 1 if the
P95 of fsbatch is above ``BOUND_S``, the bound for submit to running on an idle testbed.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

from federator.testbed import layout
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, output_of, within

JOBS = 30
BOUND_S = 3.0
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
        id_ = at(
            site.name,
            "sbatch",
            "--parsable",
            "--partition=local",
            "--gres=gpu:1",
            user="vision1",
            stdin=SCRIPT,
        ).strip()
        name = f"/home/vision1/slurm-{id_}.out"

        def started(site: str = site.name, name: str = name) -> str:
            return at(site, "sh", "-c", f"cat {name} 2>/dev/null || true")

        delays.append(float(within(30, started)) - began_s)
        at(site.name, "rm", "-f", name)
    return delays


def p95(delays: list[float]) -> float:
    return sorted(delays)[int(0.95 * (len(delays) - 1) + 0.5)]


def line(what: str, delays: list[float]) -> str:
    return f"{what:<10} {statistics.median(delays):>9.2f} {p95(delays):>9.2f} {max(delays):>9.2f}"


def main() -> int:
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for running in lasting(Running(Path(folder))):
            ours = federated(running)
    theirs = plain()
    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}")
    print(f"{JOBS} jobs, one at a time   median_s     P95_s     max_s")
    print(line("fsbatch", ours))
    print(line("sbatch", theirs))
    print(f"ratio of medians {statistics.median(ours) / statistics.median(theirs):.2f}")
    held = p95(ours) <= BOUND_S
    print(f"bound: P95 of fsbatch at most {BOUND_S:g} s: {'held' if held else 'BROKEN'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
