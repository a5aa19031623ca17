"""Measures what metrics cost the daemon: counting, a scrape, and a whole daemon that is scraped.

Run by ``./test bench``; prints medians; asserts nothing. Counting is always on, so it is set beside
the work that it follows: decisions and bids of whole passes, and records encoded. A scrape is
measured in the loop (``collect``) and in the thread that writes the text, each against the 5 s
until the next. Last, a real daemon takes 1,000 submissions a second, or as many as the machine has
CPU for, scraped every second or not, in turns: CPU seconds of its process for each submission.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec

from federator.daemon.metrics.counts import Counts
from federator.daemon.metrics.gauges import Gauges
from federator.daemon.metrics.text import MetricsText
from federator.model.event import encode_event
from federator.model.message import Command, Observation, Record, SubmitAsked
from federator.model.partition import PartitionSummary
from federator.model.submission import Option, Submission
from federator.wire.client_protocol import BANNER, SubmitCall, SubmitReply, frame
from federator.wire.replies import reply_decoder
from tests.bench import bench_awards, bench_pass
from tests.fakes.build import draft
from tests.fakes.counted import FakeLink, config_of

EVERY_S = 5.0
WORKLOADS = 1_500
PENDING = 10_000
SUBMITTED_PER_S = 1_000
WINDOW_S = 8.0
WINDOWS = 3  # of A B B A
PORT = 29_464


# ---- counting ----


class Followed(bench_pass.Fleet):
    """Notes what the loop would hand to the counters."""

    def __init__(self) -> None:
        self.turns: list[tuple[Observation, list[Command]]] = []
        super().__init__()
        handle = self.federation.handle

        def noted(observation: Observation, now_s: float) -> list[Command]:
            commands = handle(observation, now_s)
            self.turns.append((observation, commands))
            return commands

        self.federation.handle = noted  # type: ignore[method-assign]


def counting() -> tuple[float, float]:
    """CPU seconds for WORKLOADS submitted and awarded: the work, and counting it."""
    fleet = Followed()
    fleet.turns.clear()
    began_s = time.process_time()
    fleet.submit(WORKLOADS, bench_pass.mixed())
    fleet.one_pass()
    for _, commands in fleet.turns:
        for command in commands:
            if isinstance(command, Record):
                encode_event(command.event)
    work_s = time.process_time() - began_s
    counts = Counts(fleet.federation.ledger, fleet.sites, 0.0)
    began_s = time.process_time()
    for observation, commands in fleet.turns:
        counts.turn_begins(0.0)
        counts.decided(observation, commands, fleet.federation.rounds.last_pass)
        events = [c.event for c in commands if isinstance(c, Record)]
        if events:
            counts.recorded(events, 0.001)
        counts.turn_took(0.001)
    return work_s, time.process_time() - began_s


def one_submission() -> float:
    """CPU seconds of counting one submission, a turn of its own."""
    fleet = bench_pass.Fleet()
    counts = Counts(fleet.federation.ledger, fleet.sites, 0.0)
    asked = SubmitAsked(client=1, key="k", draft=draft(bench_pass.mixed()[0]))
    commands = fleet.federation.handle(asked, 2_000.0)
    events = [c.event for c in commands if isinstance(c, Record)]

    def one() -> None:
        counts.turn_begins(0.0)
        counts.decided(asked, commands, None)
        counts.recorded(events, 0.001)
        counts.turn_took(0.001)

    return each_s(one, 2_000)


def each_s(act: Callable[[], object], times: int) -> float:
    """Median CPU seconds of one of many."""
    found = []
    for _ in range(5):
        began_s = time.process_time()
        for _ in range(times):
            act()
        found.append((time.process_time() - began_s) / times)
    return statistics.median(found)


# ---- a scrape ----


def scrape(sites: int, pending: int) -> tuple[float, float, int]:
    """CPU seconds of the loop and of the thread for one scrape; bytes of the text."""
    bench_pass.SITES, bench_pass.RACKS = sites, 128 // sites or 1
    fleet = bench_pass.Fleet()
    fleet.submit(pending, bench_pass.mixed())
    fleet.one_pass()
    views = fleet.federation.sites
    row = PartitionSummary(partition="gpu", gpu_type="a100", gpus=2048, gpus_alloc=1024)
    for view in views.values():
        view.summary = (row,)
    links = {name: FakeLink() for name in views}
    config = config_of(*views)
    counts = Counts(fleet.federation.ledger, views, 0.0)
    gauges = Gauges(fleet.federation, links, None, time.perf_counter, 0.0)
    writer = MetricsText()
    loop_s, thread_s, size = [], [], 0
    for _ in range(7):
        time.sleep(1.05)  # as seldom as it may be
        began_s = time.process_time()
        found = [*gauges.metrics(config, 10_000.0), *counts.metrics()]
        middle_s = time.process_time()
        text, _ = writer.of(found, "")
        size = len(text)
        loop_s.append(middle_s - began_s)
        thread_s.append(time.process_time() - middle_s)
    return statistics.mean(loop_s), statistics.mean(thread_s), size


# ---- a daemon ----


async def submit(path: Path, over: threading.Event) -> None:
    """SUBMITTED_PER_S over eight connections, or as many as there is CPU for."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    async def some(first: int) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        await reader.readexactly(len(BANNER))
        for k in count(first, 8):
            await asyncio.sleep(max(0.0, began_s + k / SUBMITTED_PER_S - loop.time()))
            if over.is_set():
                break
            options = (Option(name="gres", value=f"gpu:{1 + k % 8}"),)
            submission = Submission(components=(options,), script="#!/bin/bash\nsrun train\n")
            writer.write(frame(SubmitCall(submission=submission, key=f"b-{k:07}", as_user="ada")))
            length = int.from_bytes(await reader.readexactly(4), "big")
            reply = reply_decoder.decode(await reader.readexactly(length))
            assert isinstance(reply, SubmitReply), reply
        writer.close()

    await asyncio.gather(*map(some, range(8)))


def scraped_for(seconds: float, every_s: float) -> str:
    """What the last scrape said; ``inf``: it is asked once, at the end."""
    text, until_s = "", time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, every_s))
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
            text = answer.read().decode()
    return text


def daemon(folder: Path) -> dict[bool, list[tuple[float, float]]]:
    """By window, scraped each second or not: CPU seconds for a submission, and their rate.

    A submission costs more as the queue grows, so windows come as A B B A.
    """
    path = bench_awards.config(folder)
    settings = msgspec.yaml.decode(path.read_bytes())
    settings["metrics"] = {"listen": f"127.0.0.1:{PORT}"}
    path.write_bytes(msgspec.yaml.encode(settings))
    argv = [sys.executable, "-m", "federator.cli.main", "daemon", "--config", str(path)]
    over = threading.Event()
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with (folder / "daemon.err").open("w") as errors:
        process = subprocess.Popen(argv, stderr=errors)
    try:
        while "daemon_started" not in (folder / "daemon.err").read_text():
            time.sleep(0.05)
        load = threading.Thread(target=lambda: asyncio.run(submit(folder / "daemon.sock", over)))
        load.start()
        before = submitted(scraped_for(3.0, 3.0))
        for scraped in (False, True, True, False) * WINDOWS:
            before_s, began_s = bench_awards.cpu_s(process.pid), time.monotonic()
            text = scraped_for(WINDOW_S, 1.1 if scraped else WINDOW_S)
            now, took_s = submitted(text), time.monotonic() - began_s
            used_s = bench_awards.cpu_s(process.pid) - before_s
            found[scraped].append((used_s / (now - before), (now - before) / took_s))
            before = now
        over.set()
        load.join()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60.0)
    return found


def submitted(text: str) -> float:
    (line,) = (x for x in text.splitlines() if x.startswith("federator_submissions_total "))
    return float(line.split()[1])


def main() -> None:
    print(f"{os.cpu_count()} cores; a scrape every {EVERY_S:g} s; a bound of 1 % of CPU")
    work_s, count_s = counting()
    print(
        f"  counting, {WORKLOADS:,} workloads submitted and awarded   "
        f"{count_s / WORKLOADS * 1e6:6.1f} us each, beside {work_s / WORKLOADS * 1e6:6.0f} us of "
        f"decisions, bids and encoding: {count_s / work_s:.2%}"
    )
    one_s = one_submission()
    print(
        f"  counting one submission                           {one_s * 1e6:6.1f} us: "
        f"{one_s * SUBMITTED_PER_S:.2%} of a core at {SUBMITTED_PER_S:,} a second"
    )
    for sites, pending in ((8, WORKLOADS), (8, PENDING), (200, WORKLOADS)):
        loop_s, thread_s, size = scrape(sites, pending)
        print(
            f"  a scrape, {sites:3} sites, {pending:6,} workloads: {loop_s * 1e3:5.1f} ms of the "
            f"loop, "
            f"{thread_s * 1e3:5.1f} ms of the thread ({size / 1e3:.0f} kB): "
            f"{(loop_s + thread_s) / EVERY_S:.2%} of a core"
        )
    with tempfile.TemporaryDirectory() as name:
        found = daemon(Path(name))
    each = {scraped: statistics.mean(run[0] for run in runs) for scraped, runs in found.items()}
    for scraped, runs in found.items():
        print(
            f"  a daemon {'scraped each 1.1 s' if scraped else 'not scraped       '}: "
            f"{each[scraped] * 1e6:6.0f} us of CPU for a submission "
            f"({', '.join(f'{run[0] * 1e6:.0f}' for run in runs)}) at "
            f"{statistics.mean(run[1] for run in runs):,.0f}/s"
        )
    more = (each[True] - each[False]) / each[False]
    print(
        f"  so scrapes each 1.1 s cost {more:+.1%}, each {EVERY_S:g} s {more * 1.1 / EVERY_S:+.2%}"
    )


if __name__ == "__main__":
    main()
