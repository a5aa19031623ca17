"""Measures the web page: how long a view takes, and what a flood of requests does to passes.

Run by ``./test bench``; no Docker is needed. A daemon over simulated sites and the page are
processes of their own, as in service. A workload is submitted ten times a second, and a pass made.
Its latency lasts from the moment that it is due until it has been made, in the loop that answers
calls, too.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from federator.wire.client_protocol import Call
from federator.wire.client_socket import ClientSocket, OpenSocket
from federator.wire.replies import Reply
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback
from tests.fakes.page_daemon import DecidingDaemon, MadeUpDaemon, config_of

PENDING: Final = 10_000
QUEUED: Final = 1_000  # while passes are made
REQUESTS: Final = 10_000
AT_ONCE: Final = 10_000
FLOOD_S: Final = 20.0
NICER: Final = 10  # the page, than the daemon, in every second flood
PORT: Final = 18_410
ROUNDS: Final = 9
HEADERS: Final = "Host: 127.0.0.1\r\nConnection: close\r\n"
PATHS: Final = ("/", "/queue", "/tenants", "/passes", "/operations", "/api/queue", "/api/fleet")


def settings(folder: Path, sites: int) -> Path:
    names = tuple(f"site{k:03}" for k in range(sites))
    keys = config_of(names).model_dump(mode="json", exclude_unset=True)
    keys |= {"socket": str(folder / "daemon.sock"), "web": {"account": "root"}}
    path = folder / "federation.yaml"
    path.write_text(yaml.safe_dump(keys))
    return path


def page(path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "federator.cli.main", "web", f"--config={path}"]
    return subprocess.Popen(
        [*command, f"--listen=127.0.0.1:{PORT}", "--log-level=error"], stdin=subprocess.DEVNULL
    )


async def get(path: str) -> tuple[int, int, float]:
    """Status, bytes and seconds of one request on a connection of its own; 0: none was had."""
    began_s = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
        )
        data = await asyncio.wait_for(reader.read(-1), 120)
        writer.close()
    except (OSError, TimeoutError):
        return 0, 0, time.monotonic() - began_s
    status = int(data[9:12]) if data.startswith(b"HTTP/1.1 ") else 0
    return status, len(data), time.monotonic() - began_s


async def until_served() -> None:
    while (await get("/healthz"))[0] != 200:
        await asyncio.sleep(0.2)


async def listening(daemon: MadeUpDaemon | DecidingDaemon, path: Path) -> OpenSocket:
    """The daemon's socket, as federation.yaml has it."""
    return await ClientSocket(lambda _user, call: daemon.ask(call)).listen(
        path.parent / "daemon.sock"
    )


async def views(made_up: MadeUpDaemon, path: Path, paths: tuple[str, ...]) -> None:
    """How long views of a large federation take; the daemon's answers are made up."""
    door = await ClientSocket(lambda _user, call: made_up.ask(call)).listen(
        path.parent / "daemon.sock"
    )
    served = page(path)
    try:
        await until_served()
        for view in paths:
            await get(view)
        await asyncio.sleep(25)  # until all sites were asked
        for view in paths:
            took, size = [], 0
            for k in range(ROUNDS):
                mark = f"{'&' if '?' in view else '?'}x={k}"  # rendered each time
                _, size, seconds = await get(view + mark)
                took.append(seconds)
            print(
                f"  {view:<22} {1e3 * statistics.median(took):5.0f} ms, most "
                f"{1e3 * max(took):5.0f} ms, {size / 1024:6.0f} KiB"
            )
    finally:
        served.terminate()
        served.wait()
        door.close()


def fleet() -> Loopback:
    tenants = (tenant("vision", 64), tenant("nlp", priority=5))
    f = Loopback({f"site{k:03}": rack(f"r{k}", 4) for k in range(3)}, tenants=tenants)
    f.check_invariants = lambda: None  # type: ignore[method-assign]  # it takes most of the time
    for k in range(QUEUED):
        who, whose = ("ada", "vision") if k % 2 else ("eve", "nlp")
        f.submit(replace(draft(gang(1 + k % 4), user=who, tenant=whose, name=f"train-{k}")))
    f.run_for(5.0)
    return f


class PassTook(NamedTuple):
    """One pass: from when it was due until it was made, and the CPU time that it took."""

    latency_s: float
    cpu_s: float


async def passes(daemon: DecidingDaemon, seconds: float) -> list[PassTook]:
    """Passes, ten a second, in the loop that answers calls, too."""
    found, until_s, due_s = [], time.monotonic() + seconds, time.monotonic()
    while due_s < until_s:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        cpu_s = time.thread_time()
        daemon.federation.submit(draft(gang(1)))
        daemon.federation.run_for(0.2)
        found.append(PassTook(time.monotonic() - due_s, time.thread_time() - cpu_s))
        due_s = max(due_s + 0.1, time.monotonic())
    return found


def told(name: str, took: list[PassTook]) -> None:
    late_s = sorted(each.latency_s for each in took)
    cpu_s = statistics.median(each.cpu_s for each in took)
    print(
        f"  {name:<34} {len(took):4} passes: median {1e3 * statistics.median(late_s):5.1f} ms, p95 "
        f"{1e3 * late_s[int(0.95 * len(late_s))]:5.1f} ms, most {1e3 * late_s[-1]:5.1f} ms; CPU "
        f"time {1e3 * cpu_s:5.1f} ms"
    )


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


FLOOD: Final = """
import asyncio, collections, sys, time
sys.path.insert(0, ".")
from tests.bench.bench_web import AT_ONCE, PATHS, REQUESTS, get
async def main():
    gate = asyncio.Semaphore(AT_ONCE)
    async def one(k):
        async with gate:
            return (await get(PATHS[k % len(PATHS)]))[0]
    began = time.monotonic()
    found = collections.Counter(await asyncio.gather(*map(one, range(REQUESTS))))
    print(dict(found), f"in {time.monotonic() - began:.1f} s")
asyncio.run(main())
"""


async def flood(path: Path) -> None:
    """Passes without the page, with open pages, and under floods of it."""
    daemon = DecidingDaemon(fleet(), config_of(("site000", "site001", "site002")), "root")
    asked_s = [0.0]

    async def timed(_user: str, call: Call) -> Reply:
        began_s = time.thread_time()
        reply = await daemon.ask(call)  # it waits for nothing
        asked_s[0] += time.thread_time() - began_s
        return reply

    door = await ClientSocket(timed).listen(path.parent / "daemon.sock")
    told("without the page", await passes(daemon, 20))
    served = page(path)
    try:
        await until_served()
        for view in PATHS:
            await get(view)
        watching = [asyncio.create_task(get("/events?of=queue")) for _ in range(3)]
        cpu_s, answers_s, at_s = cpu_of(served.pid), asked_s[0], time.monotonic()
        told("three open pages", await passes(daemon, 20))
        lasted_s = time.monotonic() - at_s
        page_frac = (cpu_of(served.pid) - cpu_s) / lasted_s
        daemon_frac = (asked_s[0] - answers_s) / lasted_s
        print(f"  CPU then: page {page_frac:.1%} of a core, its questions {daemon_frac:.1%}")
        same = os.getpriority(os.PRIO_PROCESS, 0)
        after = min(19, same + NICER)
        # In turn: the machine changes, too. Only root may raise a priority.
        for nice in (same, after, same, after) if os.geteuid() == 0 else (after,):
            os.setpriority(os.PRIO_PROCESS, served.pid, nice)
            await one_flood(daemon, served.pid, nice - same)
        for task in watching:
            task.cancel()
    finally:
        served.terminate()
        served.wait()
        door.close()


async def one_flood(daemon: DecidingDaemon, pid: int, nice: int) -> None:
    """Passes while all requests come at once, the page being nicer than the daemon by so much."""
    asked, cpu_s, began_s = Counter(daemon.asked), cpu_of(pid), time.monotonic()
    flooding = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FLOOD, stdout=asyncio.subprocess.PIPE
    )
    told(f"{REQUESTS:,} at once, page nicer by {nice}", await passes(daemon, FLOOD_S))
    said, _ = await flooding.communicate()
    print(f"    answers by status (0: no connection): {said.decode().strip()}")
    questions, lasted_s = daemon.asked - asked, time.monotonic() - began_s
    print(f"    questions to the daemon in {lasted_s:.0f} s: {dict(questions)}")
    print(f"    CPU time of the page: {1e3 * (cpu_of(pid) - cpu_s) / REQUESTS:.2f} ms a request")


def main() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 32_768), hard))
    print(f"{os.cpu_count()} cores; open files {soft}")
    with tempfile.TemporaryDirectory() as folder:
        small = settings(Path(folder), 3)
        print(f"views with {PENDING:,} pending, 3 sites of 40 nodes")
        paths = ("/", "/sites/site000", "/queue", "/queue?sort=-gpus&user=ada", "/api/queue")
        asyncio.run(views(MadeUpDaemon(pending=PENDING), small, paths))
        print("views of 200 sites of 1,000 nodes, 10,000 pending")
        made_up = MadeUpDaemon(sites=200, nodes=1000, pending=PENDING, running=400)
        large = settings(Path(folder), 200)
        asyncio.run(views(made_up, large, ("/", "/sites/site007", "/queue", "/api/fleet")))
        print(f"passes with {QUEUED:,} pending, a new workload each")
        asyncio.run(flood(settings(Path(folder), 3)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
