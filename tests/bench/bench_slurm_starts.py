"""Compares estimated starts of 300 short jobs on the testbed with Slurm's own squeue --start.

The same jobs run twice: through the federation, then by each site's plain sbatch, dealt out to the
sites in turn. Both are asked for estimates every few seconds; of each job the first one counts, and
is compared with its start. Slurm tells one time and no interval. It prints a line for each. Run it
as ``python -m tests.bench.bench_slurm_starts [JOBS]`` with a testbed that is up; CI does not.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from federator.model.submission import Option, Submission
from federator.testbed import layout
from federator.wire.client_protocol import QueueCall, QueueReply, SubmitCall, SubmitReply
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at

JOBS: Final = 300
BURST: Final = 15
EVERY_S: Final = 15.0  # from one burst to the next
POLL_S: Final = 3.0
MOST_S: Final = 1500.0  # for all of them to start
SEED: Final = 28


class Asked(NamedTuple):
    """One job: whole nodes, and the seconds that it sleeps. Its limit is a minute."""

    nodes: int
    runs_s: int

    @property
    def options(self) -> dict[str, str]:
        name = f"bench{self.nodes}x{self.runs_s // 5}"  # runs of one name are alike
        return {
            "job-name": name,
            "nodes": str(self.nodes),
            "gres": "gpu:8",
            "time": "1",
            "output": "/dev/null",
        }

    @property
    def script(self) -> str:
        return f"#!/bin/sh\nexec sleep {self.runs_s}\n"


class Told(NamedTuple):
    """The first estimate of one job; all are Unix times."""

    asked_at_s: float
    likely_s: float
    earliest_s: float = 0.0
    latest_s: float = 0.0


class Seen:
    """The first estimates and the starts, by any name of a job."""

    def __init__(self) -> None:
        self.waited: set[str] = set()  # seen to wait at least once
        self.told: dict[str, Told] = {}
        self.started_s: dict[str, float] = {}

    def report(self, name: str, *, intervals: bool) -> None:
        errors = [abs(self.started_s[k] - each.likely_s) for k, each in self.told.items()]
        waits = [self.started_s[k] - each.asked_at_s for k, each in self.told.items()]
        print(f"{name}: {len(self.started_s)} jobs, {len(self.waited)} seen to wait, ", end="")
        print(f"{len(errors)} with an estimate", end="")
        if errors:
            held = statistics.mean(error <= 60.0 for error in errors)
            print(
                f"; started {statistics.median(waits):.0f} s later in the median; error in the "
                f"mean {statistics.mean(errors):.1f} s, median {statistics.median(errors):.1f} s, "
                f"P90 {sorted(errors)[int(0.9 * len(errors))]:.1f} s, within 1 min {held:.0%}",
                end="",
            )
        if errors and intervals:
            inside = [e.earliest_s <= self.started_s[k] <= e.latest_s for k, e in self.told.items()]
            width = statistics.median(e.latest_s - e.earliest_s for e in self.told.values())
            print(f"; {statistics.mean(inside):.0%} in their interval of {width:.0f} s", end="")
        print(flush=True)


def jobs(count: int) -> list[Asked]:
    drawn = random.Random(SEED)
    return [Asked(drawn.choice((1, 1, 2, 3)), drawn.randint(2, 20)) for _ in range(count)]


def bursts(asked: list[Asked]) -> Iterator[list[tuple[int, Asked]]]:
    numbered = list(enumerate(asked))
    return (numbered[k : k + BURST] for k in range(0, len(numbered), BURST))


def federated(running: Running, asked: list[Asked]) -> Seen:
    """All of them through the federation."""
    seen, began_s, waiting = Seen(), time.monotonic(), bursts(asked)
    burst = next(waiting, None)
    submitted = 0
    while time.monotonic() - began_s < MOST_S:
        while burst is not None and time.monotonic() - began_s >= submitted / BURST * EVERY_S:
            for number, job in burst:
                options = tuple(Option(name=k, value=v) for k, v in job.options.items())
                made = Submission(components=(options,), script=job.script, work_dir="/")
                key = f"bench-{began_s:.0f}-{number:04}"
                reply = running.ask(SubmitCall(submission=made, key=key, as_user="vision1"))
                assert isinstance(reply, SubmitReply), reply
                submitted += 1
            burst = next(waiting, None)
        look(running, seen)
        if len(seen.started_s) == len(asked):
            break
        time.sleep(POLL_S)
    return seen


def look(running: Running, seen: Seen) -> None:
    reply = running.ask(QueueCall(ended=True, brief=True, starts=True))
    assert isinstance(reply, QueueReply), reply
    for row in reply.rows:
        id_ = str(row.id)
        if row.started_at_s:
            seen.started_s.setdefault(id_, row.started_at_s)
        elif row.state == "PENDING":
            seen.waited.add(id_)
            start = row.start
            if start is not None and not start.none and id_ not in seen.told:
                seen.told[id_] = Told(reply.now_s, start.likely_s, start.earliest_s, start.latest_s)


def plain(asked: list[Asked]) -> Seen:
    """The same jobs by the sbatch of each site, in turn."""
    seen, began_s, waiting = Seen(), time.monotonic(), bursts(asked)
    burst = next(waiting, None)
    submitted = 0
    while time.monotonic() - began_s < MOST_S:
        while burst is not None and time.monotonic() - began_s >= submitted / BURST * EVERY_S:
            for offset, site in enumerate(layout.SITES):
                part = [job for number, job in burst if number % len(layout.SITES) == offset]
                at(site.name, "sh", "-c", "\n".join(map(_sbatch, part)), user="vision1")
            submitted += len(burst)
            burst = next(waiting, None)
        for site in layout.SITES:
            look_at(site.name, seen)
        if len(seen.started_s) == len(asked):
            break
        time.sleep(POLL_S)
    return seen


def _sbatch(job: Asked) -> str:
    words = " ".join(f"--{name}={value}" for name, value in job.options.items())
    return f"sbatch --partition=local {words} --chdir=/ --wrap='exec sleep {job.runs_s}'"


def look_at(site: str, seen: Seen) -> None:
    shown = at(site, "squeue", "--noheader", "--states=all", "--partition=local", "-O", _FIELDS)
    now_s = time.time()
    for line in shown.splitlines():
        number, state, start = line.split()
        id_ = f"{site}:{number}"
        start_s = 0.0 if start == "N/A" else datetime.fromisoformat(start + "+00:00").timestamp()
        if state != "PENDING":
            seen.started_s.setdefault(id_, start_s)
            continue
        seen.waited.add(id_)
        if start_s and id_ not in seen.told:
            seen.told[id_] = Told(now_s, start_s)


_FIELDS: Final = "JobID:12,State:12,StartTime:24"


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    asked = jobs(count)
    load = os.getloadavg()[0]
    print(f"{count} jobs of 2-20 s on 1-3 whole nodes of 24, {BURST} every {EVERY_S:g} s")
    print(f"{os.cpu_count()} cores, load {load:.1f} before", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for running in lasting(Running(Path(folder))):
            federated(running, asked).report("federation", intervals=True)
    plain(asked).report("squeue --start", intervals=False)
    print(f"load {os.getloadavg()[0]:.1f} after")
    return 0


if __name__ == "__main__":
    sys.exit(main())
