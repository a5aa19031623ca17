"""Measures awards through the whole daemon: eight sites, rank to launch order, all of it durable.

Run by ``./test bench``; prints medians; asserts nothing. A real ``federator daemon`` process, with
its SQLite log, its channels and its loop, has 1,500 workloads waiting when eight agents made for
this come up. They bid as agents do (``SiteScheduler``, 256 nodes of 8 GPUs each), and submit to no
Slurm: an order is accepted at once. Measured from the first question to the last order: awards in a
second, and CPU seconds of the daemon for each, which say more where other programs run. Beside
them, from the same run, ``bench_pass.py``'s figure for what is no more than the decisions and the
bids, joined by function calls.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from federator.model.site_message import Ask, BidsMade, LaunchAccepted, Report
from federator.model.submission import Option, Submission
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    Hello,
    LaunchOrder,
    Ping,
    Pong,
    to_agent_decoder,
)
from federator.wire.client_protocol import BANNER, SubmitCall, SubmitReply, frame
from federator.wire.framing import read_frame
from federator.wire.replies import reply_decoder
from tests.bench import bench_pass
from tests.fakes.build import rack

SITES = tuple(f"site{k}" for k in range(bench_pass.SITES))
WORKLOADS = 1_500
REPEATS = 3
PATIENCE_S = 120.0


class Awards(NamedTuple):
    per_s: float
    daemon_cpu_ms: float  # for each
    sites_cpu_ms: float  # for each, of all sites together


# ---- a site ----


async def agent(site: str, folder: Path) -> None:
    """Bid, and accept; come up when the file ``go`` is there, and note the times."""
    scheduler = SiteScheduler(("gpu",))
    nodes = [rack(f"{site}-r{r}-", bench_pass.NODES) for r in range(bench_pass.RACKS)]
    scheduler.update(tuple(node for each in nodes for node in each), ())
    reader = asyncio.StreamReader(limit=2**26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out, times = sys.stdout.buffer, folder / f"{site}.times"

    def send(data: bytes) -> None:
        out.write(data)
        out.flush()

    send(BANNER)
    await read_frame(reader)
    while not (folder / "go").exists():
        await asyncio.sleep(0.02)
    send(frame(Hello(protocol=PROTOCOL_VERSION, site=site, slurm_version="24.11.5")))
    capacity = scheduler.capacity
    send(frame(Report(attempts=(), complete=True, capacity=capacity, freed=scheduler.freed)))
    number, began_s = 0, 0.0
    with times.open("wb", buffering=0) as note:
        while (body := await read_frame(reader)) is not None:
            match to_agent_decoder.decode(body):
                case Ping():
                    send(frame(Pong()))
                case Ask() as ask:
                    if not began_s:
                        note.write(b"asked %f\n" % time.time())
                        began_s = time.process_time()
                    answers = scheduler.bid(ask.requests, time.time(), reserving=ask.reserving)
                    made = BidsMade(pass_id=ask.pass_id, answers=answers, freed=scheduler.freed)
                    send(frame(made))
                    note.write(b"used %f\n" % (time.process_time() - began_s))
                case LaunchOrder() as order:
                    number += 1
                    scheduler.hold(order.attempt, order.jobs)
                    send(frame(LaunchAccepted(attempt=order.attempt, site_job_id=number)))
                    note.write(b"launched %f\n" % time.time())
                    note.write(b"used %f\n" % (time.process_time() - began_s))


# ---- the daemon ----


def config(folder: Path) -> Path:
    command = [sys.executable, __file__, "agent"]
    path = folder / "federation.yaml"
    sites = {
        site: {"region": "west", "command": [*command, site, str(folder)], "partitions": ["gpu"]}
        for site in SITES
    }
    path.write_bytes(
        msgspec.yaml.encode(
            {
                "federation": "bench",
                "store": f"sqlite://{folder}/queue.db",
                "socket": str(folder / "daemon.sock"),
                "regions": {"west": {"shared": "/shared"}},
                "sites": sites,
                "tenants": {"nlp": {"quota": {"gpus": 100_000}, "users": ["ada"]}},
            }
        )
    )
    return path


async def submit(path: Path) -> None:
    """All WORKLOADS, over eight connections."""

    async def some(first: int) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        await reader.readexactly(len(BANNER))
        for k in range(first, WORKLOADS, 8):
            nodes, gpus = bench_pass.SHAPES[k % len(bench_pass.SHAPES)]
            options = (
                Option(name="nodes", value=str(nodes)),
                Option(name="gres", value=f"gpu:{gpus}"),
                Option(name="cpus-per-task", value=str(gpus)),
            )
            submission = Submission(components=(options,), script="#!/bin/bash\nsrun train\n")
            call = SubmitCall(submission=submission, key=f"bench-{k:06}", as_user="ada")
            writer.write(frame(call))
            length = int.from_bytes(await reader.readexactly(4), "big")
            reply = reply_decoder.decode(await reader.readexactly(length))
            assert isinstance(reply, SubmitReply), reply
        writer.close()

    await asyncio.gather(*map(some, range(8)))


def cpu_s(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


def run(folder: Path) -> Awards:
    argv = [sys.executable, "-m", "federator.cli.main", "daemon", "--config", str(config(folder))]
    ends_s = time.time() + PATIENCE_S
    with (folder / "daemon.err").open("w") as errors:
        daemon = subprocess.Popen(argv, stderr=errors)
    try:
        while "daemon_started" not in (folder / "daemon.err").read_text():
            time.sleep(0.05)
        asyncio.run(submit(folder / "daemon.sock"))
        before_s = cpu_s(daemon.pid)
        (folder / "go").touch()
        while len(launched := times(folder, "launched")) < WORKLOADS:
            if daemon.poll() is not None or time.time() > ends_s:
                raise SystemExit((folder / "daemon.err").read_text()[-2000:])
            time.sleep(0.02)
        used_s = cpu_s(daemon.pid) - before_s
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60.0)
    took_s = max(launched) - min(times(folder, "asked"))
    sites_s = sum(max(times(folder, "used", site)) for site in SITES)
    return Awards(WORKLOADS / took_s, used_s / WORKLOADS * 1e3, sites_s / WORKLOADS * 1e3)


def times(folder: Path, what: str, site: str = "*") -> list[float]:
    lines = [line for f in folder.glob(f"{site}.times") for line in f.read_text().splitlines()]
    return [float(line.split()[1]) for line in lines if line.startswith(f"{what} ")]


def main() -> None:
    print(
        f"{os.cpu_count()} cores; medians of {REPEATS}; {WORKLOADS} workloads, {len(SITES)} sites"
    )
    runs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name:
            runs.append(run(Path(name)))
    print(
        f"  through the daemon {statistics.median(r.per_s for r in runs):8,.0f} awarded/s   "
        f"(all: {', '.join(f'{r.per_s:.0f}' for r in runs)}); "
        f"CPU for each: {statistics.median(r.daemon_cpu_ms for r in runs):.2f} ms of the daemon, "
        f"{statistics.median(r.sites_cpu_ms for r in runs):.2f} ms of all sites"
    )
    bench_pass.measure("decisions and all sites' bids alone", WORKLOADS, bench_pass.mixed())


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:
        asyncio.run(agent(sys.argv[2], Path(sys.argv[3])))
    else:
        main()
