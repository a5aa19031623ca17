"""Measures asking each Slurm for its jobs and nodes. Prints a table; asserts nothing.

    python -m tests.bench.bench_slurm_queries [--jobs 300] [--runs 7] [alpine boreal cedar]

Needs the testbed, idle. Submits 1-GPU jobs as vision1 (64 of them run), asks in each way, then
cancels them. Commands are timed inside the container, without `docker exec`; parsing in this
process. Ways take turns, so that a change of load meets all of them.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from federator.slurm.parse_jobs import SQUEUE_FORMAT, parse_jobs, parse_layouts
from federator.slurm.parse_nodes import parse_nodes
from federator.testbed import layout
from tests.slurm.federation import open_to_all

NAME: Final = "bench-queries"

# Runs in the container: every command in turn, `runs` times; wall milliseconds and last output.
_TIMER: Final = """
import base64, json, subprocess, sys, time
ways, runs = json.load(sys.stdin)
times, last = {w: [] for w in ways}, {}
for _ in range(runs):
    for way, argv in ways.items():
        start = time.perf_counter()
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        times[way].append((time.perf_counter() - start) * 1e3)
        last[way] = base64.b64encode(done.stdout).decode() if done.returncode == 0 else ""
json.dump([times, last], sys.stdout)
"""

Parse = Callable[[bytes], object]


def read_json(output: bytes) -> object:
    """Read a document of which Slurm leaves users' bytes as they are, UTF-8 or not."""
    return json.loads(output.decode("utf-8", "replace"))


def ways(json_option: str) -> dict[str, tuple[list[str], Parse]]:
    """Return each way of asking: the command, and what turns its output into values."""
    short = "%i|%T|%P|%u|%D|%N|%S|%e|%Q|%b"
    return {
        "squeue -O mixed (ours)": (
            ["squeue", "--local", "-h", "-a", "-t", "all", "-O", SQUEUE_FORMAT],
            parse_jobs,
        ),
        "squeue -o, no user text": (
            ["squeue", "-h", "-a", "-t", "all", "-o", short],
            lambda out: [line.split(b"|") for line in out.splitlines()],
        ),
        "scontrol -d show jobs -o": (
            ["scontrol", "-a", "-d", "-o", "show", "jobs"],
            lambda out: parse_layouts(out.decode("utf-8", "replace")),
        ),
        "squeue --json": (["squeue", json_option], read_json),
        "scontrol -d show nodes -o (ours)": (
            ["scontrol", "-a", "-d", "-o", "show", "nodes"],
            lambda out: parse_nodes(out.decode("utf-8", "replace")),
        ),
        "sinfo --json": (["sinfo", json_option], read_json),
        "sinfo -N -O": (
            ["sinfo", "-h", "-N", "-O", "NodeHost:|,StateLong:|,CPUsState:|,Gres:|,GresUsed:|"],
            lambda out: [line.split(b"|") for line in out.splitlines()],
        ),
    }


def in_container(site: str, user: str, argv: Sequence[str], stdin: bytes = b"") -> bytes:
    """Run a command in a site's container; its stdout."""
    environment = ("-e", "LC_ALL=C", "-e", "SLURM_TIME_FORMAT=%s")
    command = [
        "docker",
        "exec",
        "-i",
        "-u",
        user,
        *environment,
        "-w",
        "/tmp",
        layout.site(site).container,
        *argv,
    ]
    return subprocess.run(command, input=stdin, check=True, capture_output=True).stdout


def fill(site: str, jobs: int) -> None:
    """Submit the jobs and give Slurm the time to start what fits."""
    script = (
        f"i=0; while [ $i -lt {jobs} ]; do printf '#!/bin/sh\\nexec sleep 3600\\n' | "
        f"sbatch -Q -p fed -J {NAME} --gres=gpu:1 --comment=fed:$((4294967296 + i)):1 -o /dev/null;"
        " i=$((i + 1)); done"
    )
    with open_to_all(site):
        in_container(site, "vision1", ["sh", "-c", script])
        time.sleep(5)


def parse_ms(parse: Parse, output: bytes, runs: int) -> float:
    """Return the median time of turning the output into values."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        parse(output)
        times.append((time.perf_counter() - start) * 1e3)
    return median(times)


def measure(site: str, jobs: int, runs: int) -> list[str]:
    """Return one row per way, for one site."""
    version = in_container(site, "federator", ["scontrol", "--version"]).decode().split()[-1]
    all_ways = ways("--json" if version.startswith("22.05") else "--json=v0.0.42")
    request = json.dumps([{name: argv for name, (argv, _) in all_ways.items()}, runs]).encode()
    fill(site, jobs)
    try:
        raw = in_container(site, "federator", ["python3", "-c", _TIMER], request)
    finally:
        in_container(site, "vision1", ["scancel", "--name", NAME])
    times, last = json.loads(raw)
    rows = []
    for name, (_, parse) in all_ways.items():
        output = base64.b64decode(last[name])
        if not output:
            rows.append(f"{version:8} {name:34} {'refused':>9}")
            continue
        ask, read = median(times[name]), parse_ms(parse, output, runs)
        rows.append(f"{version:8} {name:34} {ask:9.1f} {read:9.1f} {len(output) / 1024:9.0f}")
    return rows


def main() -> None:
    """Measure the sites given, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sites", nargs="*", default=["alpine", "boreal", "cedar"])
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    print(f"{options.jobs} jobs, medians of {options.runs} runs")
    print(f"{'Slurm':8} {'way':34} {'ask ms':>9} {'parse ms':>9} {'KiB':>9}")
    for site in options.sites:
        print("\n".join(measure(site, options.jobs, options.runs)), flush=True)


if __name__ == "__main__":
    main()
