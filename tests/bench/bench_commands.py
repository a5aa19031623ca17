"""Measures short commands of ours beside Slurm's own, on each site of the testbed.

Run by ``./test bench``. In the site's container, as a user, the commands are started in turn
and timed whole, from start to exit. Prints for each the medians of wall time and CPU time, and the
ratio of the pair's wall times. The exit status is 1 if a median of our CPU times is above
``BOUND_S``; wall time is about the same on an idle machine, and anything on a busy one.

Then, at one site, the queue is printed with as many held jobs as its slurmctld takes, and as many
in the federation. CPU time there is of the command alone: what slurmctld and the daemon need is
in the wall time.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from federator.testbed import layout
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at

ROUNDS: Final = 21
BOUND_S: Final = 0.100
PAIRS: Final = {
    "fsbatch --parsable --nodes=1 --wrap=true": "sbatch --parsable -p local --wrap=true",
    "fsqueue": "squeue",
    "fscancel 4294967296": "scancel 99999",
    "fsinfo": "sinfo",
}
LONG: Final = {"fsqueue -h -r": "squeue -h -r", "fsqueue -h": "squeue -h"}
LONG_AT: Final = "boreal"
ARRAYS: Final = 10  # of TASKS each: MaxJobCount is 10,000, MaxArraySize 1001
TASKS: Final = 990
HELD: Final = f"--hold --array=0-{TASKS - 1} --wrap=true"
TIMER: Final = """
import json, resource, statistics, subprocess, sys, time

def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

rounds, commands = json.loads(sys.argv[1])
times = {command: [] for command in commands}
for _ in range(rounds):
    for command in commands:
        before, began = cpu(), time.monotonic()
        subprocess.run(command.split(), capture_output=True)
        times[command].append((time.monotonic() - began, cpu() - before))
medians = {c: [statistics.median(each) for each in zip(*t)] for c, t in times.items()}
print(json.dumps(medians))
"""


def medians_at(site: str, pairs: Mapping[str, str] = PAIRS) -> dict[str, tuple[float, float]]:
    """Seconds of wall and of CPU time, by command."""
    asked = json.dumps([ROUNDS, [each for pair in pairs.items() for each in pair]])
    # A job's output file lies where it was submitted.
    said = at(
        site, "sh", "-c", 'cd "$HOME" && exec python3 -I -c "$0" "$1"', TIMER, asked, user="vision1"
    )
    found: dict[str, tuple[float, float]] = json.loads(said)
    return found


def show(ours: str, theirs: str, medians: Mapping[str, tuple[float, float]]) -> None:
    (wall_s, cpu_s), (other_s, other_cpu_s) = medians[ours], medians[theirs]
    print(
        f"  {ours.partition(' --')[0]:<14} {1e3 * wall_s:5.0f} ms (CPU {1e3 * cpu_s:3.0f})  "
        f"{theirs.partition(' --')[0]:<13} {1e3 * other_s:4.0f} ms (CPU {1e3 * other_cpu_s:3.0f})  "
        f"ratio {wall_s / other_s:4.1f}"
    )


def long_queues() -> None:
    """Both queues of the same length, printed in turn."""
    try:
        for _ in range(ARRAYS):
            at(LONG_AT, "sbatch", "-Q", "-p", "local", *HELD.split(), user="vision1")
            at(LONG_AT, "fsbatch", "-Q", *HELD.split(), user="vision1")
        both = next(iter(LONG.items()))
        lines = [at(LONG_AT, *each.split(), user="vision1").count("\n") for each in both]
        print(f"{LONG_AT}: {lines[0]} jobs held in the federation, {lines[1]} in its Slurm")
        medians = medians_at(LONG_AT, LONG)
        for ours, theirs in LONG.items():
            show(ours, theirs, medians)
    finally:
        at(LONG_AT, "scancel", "--user=vision1", "--partition=local")
        at(LONG_AT, "fscancel", "--user=vision1", user="vision1")


def main() -> int:
    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}")
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for _ in lasting(Running(Path(folder))):
            for site in layout.SITES:
                medians = medians_at(site.name)
                print(f"{site.name}: Slurm {site.slurm}, Python {site.python}; {ROUNDS} of each")
                for ours, theirs in PAIRS.items():
                    slowest = max(slowest, medians[ours][1])
                    show(ours, theirs, medians)
            long_queues()
    held = slowest <= BOUND_S
    print(
        f"bound: CPU time, medians of at most {1e3 * BOUND_S:g} ms: {'held' if held else 'BROKEN'}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
