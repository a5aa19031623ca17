"""Measures the reads of a sweep by pyslurm beside Slurm's commands. Prints a table, no verdict.

    python -m tests.bench.bench_pyslurm [--jobs 300] [--runs 21] [alpine boreal]

Needs the testbed, idle, with pyslurm in the sites' own Python (docs/pyslurm.md). Submits 1-GPU jobs
as vision1 (64 of them run), asks both ways in turns inside the container, then cancels the jobs.
Time is by the clock; CPU is of the commands, or of the child, without slurmctld's.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Final

from federator.slurm.pyslurm_reader import child_command
from tests.bench.bench_slurm_queries import NAME, fill, in_container
from tests.contract.record_pyslurm import READS

# Runs in the container, with the child's text on line 2: name, way, best and median ms, CPU, bytes.
_TIMER: Final = """
import json, os, resource, statistics, subprocess, sys, time
reads, runs = json.loads(sys.stdin.readline())
text = json.loads(sys.stdin.readline())
began = time.perf_counter()
child = subprocess.Popen(
    [sys.executable, "-I", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
child.stdout.readline()
print(json.dumps(["start", "pyslurm", *[(time.perf_counter() - began) * 1e3] * 2, 0, 0]))
def by_child(argv):
    def used():
        fields = open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")
    before = used()
    child.stdin.write(json.dumps(argv).encode() + b"\\n")
    child.stdin.flush()
    head = json.loads(child.stdout.readline())
    got = child.stdout.read(head["bytes"])
    return used() - before, len(got)
def by_command(argv):
    def used():
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (spent.ru_utime + spent.ru_stime) * 1e3
    before = used()
    got = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
    return used() - before, len(got)
found = {}
for _ in range(runs):
    for name, argv in reads.items():
        for way, ask in (("command", by_command), ("pyslurm", by_child)):
            began = time.perf_counter()
            cpu, size = ask(argv)
            wall = (time.perf_counter() - began) * 1e3
            found.setdefault((name, way), []).append((wall, cpu, size))
for (name, way), rows in found.items():
    wall = statistics.median(row[0] for row in rows)
    best = min(row[0] for row in rows)
    cpu = statistics.mean(row[1] for row in rows)  # of the child in ticks of 10 ms
    print(json.dumps([name, way, best, wall, cpu, rows[-1][2]]))
"""


def measure(site: str, jobs: int, runs: int) -> None:
    """Print the rows of one site."""
    version = in_container(site, "federator", ["scontrol", "--version"]).decode().split()[-1]
    text = Path(child_command()[-1]).read_text(encoding="utf-8")
    request = "\n".join([json.dumps([READS, runs]), json.dumps(text), ""]).encode()
    fill(site, jobs)
    try:
        raw = in_container(site, "federator", ["python3", "-c", _TIMER], request)
    finally:
        in_container(site, "vision1", ["scancel", "--name", NAME])
    for name, way, *times, size in map(json.loads, raw.decode().splitlines()):
        best_ms, median_ms, cpu_ms = times
        print(
            f"{version:8} {name:11} {way:8} {best_ms:8.1f} {median_ms:9.1f} {cpu_ms:8.1f}"
            f" {size / 1024:8.0f}"
        )


def main() -> None:
    """Measure the sites given, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sites", nargs="*", default=["alpine", "boreal"])
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--runs", type=int, default=21)
    options = parser.parse_args()
    print(f"{options.jobs} jobs, medians of {options.runs} runs; {time.strftime('%Y-%m-%d')}")
    print("Slurm    read        way       best ms median ms   CPU ms      KiB")
    for site in options.sites:
        measure(site, options.jobs, options.runs)


if __name__ == "__main__":
    main()
