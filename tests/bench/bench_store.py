"""Measures how many appends and submissions are durable in a second, on each store.

Run by ``./test bench``; prints medians; asserts nothing. Appends: by records per commit, and of 8
threads whose records share commits as in the daemon; beside each the ratio to one commit for each
record, measured in the same run. Submissions: a real ``federator daemon`` without a site, asked by
8 connections that each wait for the answer before they ask again; beside them the same ratio.
"""

from __future__ import annotations

import asyncio
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from federator.model.submission import Option, Submission
from federator.store.base import Store
from federator.store.opening import open_store
from federator.wire.client_protocol import BANNER, SubmitCall, SubmitReply, frame
from federator.wire.replies import reply_decoder
from tests.fakes.redis_server import RedisServer

QUICK = os.environ.get("FEDERATOR_BENCH") == "quick"  # it is to run, and to say little
REPEATS = 1 if QUICK else 3
RECORD = b"x" * 400  # about what a small submission takes
BATCHES = (1, 8, 64, 256)
CLIENTS = 8
LASTING_S = 0.05 if QUICK else 2.0  # one measurement of appends
SUBMITTING_S = 0.5 if QUICK else 10.0
CONFIG = """
federation: bench
store: "{store}"
socket: daemon.sock
regions: {{west: {{shared: /shared}}}}
sites: {{alpine: {{region: west, command: ["/bin/sleep", "1000"], partitions: [gpu]}}}}
tenants: {{nlp: {{quota: {{gpus: 8}}, users: [ada]}}}}
"""
SCRIPT = "#!/bin/bash\n#SBATCH --job-name=train\nsrun python train.py\n"


@contextmanager
def stores() -> Iterator[dict[str, str]]:
    """URLs by name; of logs that are empty, on the disk of the temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis")
        try:
            yield {"SQLite": f"sqlite://{folder}/queue.db", "Redis": server.url}
        finally:
            server.kill()


def batches(store: Store, size: int) -> float:
    """Records per second, ``size`` in each commit."""
    records, done, began_s = [RECORD] * size, 0, time.perf_counter()
    while time.perf_counter() - began_s < LASTING_S:
        store.append(records)
        done += size
    return done / (time.perf_counter() - began_s)


def shared(store: Store) -> float:
    """Records per second of 8 threads; what came during a commit goes with the next one."""
    asked: queue.SimpleQueue[threading.Semaphore] = queue.SimpleQueue()
    done, ends_s = [0] * CLIENTS, time.perf_counter() + LASTING_S

    def ask(client: int) -> None:
        durable = threading.Semaphore(0)
        while time.perf_counter() < ends_s:
            asked.put(durable)
            durable.acquire()
            done[client] += 1

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(CLIENTS)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        waiting = []
        try:
            waiting.append(asked.get(timeout=0.1))
            while True:
                waiting.append(asked.get_nowait())
        except queue.Empty:
            pass
        if waiting:
            store.append([RECORD] * len(waiting))
        for durable in waiting:
            durable.release()
    return sum(done) / (time.perf_counter() - began_s)


def appends(what: str, measure: Callable[[Store], float]) -> None:
    """Medians by store, and of the ratios to one commit for each record, taken right after."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(REPEATS):
        with stores() as urls:
            for name, url in urls.items():
                with closing(open_store(url)) as store:
                    store.lead(0)
                    rate = measure(store)
                    found.setdefault(name, []).append((rate, rate / batches(store, 1)))
    for name, pairs in found.items():
        rate, ratio = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:8} appends, {what:26} {rate:9.0f} /s   ratio {ratio:.1f}", flush=True)


# ---- a whole daemon ----


@contextmanager
def daemon(folder: Path, store: str) -> Iterator[Path]:
    """The socket of one that serves."""
    config = folder / "federation.yaml"
    config.write_text(CONFIG.format(store=store))
    argv = [sys.executable, "-m", "federator.cli.main", "daemon", "--config", str(config)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "daemon_started" in line:
                break
        else:
            raise RuntimeError("".join(said))
        drained = threading.Thread(target=lambda: said.extend(process.stderr or ()))
        drained.start()
        try:
            yield folder / "daemon.sock"
        except (OSError, EOFError):  # it has ended by itself
            process.terminate()
            drained.join()
            sys.stderr.write("".join(said[-5:]))
            raise
        finally:
            process.terminate()
            drained.join()


async def client(path: Path, name: int, ends_s: float, took_s: list[float]) -> None:
    """Submit, wait for the id, submit again."""
    reader, writer = await asyncio.open_unix_connection(path)
    await reader.readexactly(len(BANNER))
    submission = Submission(components=((Option(name="gres", value="gpu:1"),),), script=SCRIPT)
    number = 0
    while (began_s := time.perf_counter()) < ends_s:
        number += 1
        key = f"bench-{name}-{number:06}"
        writer.write(frame(SubmitCall(submission=submission, key=key, as_user="ada")))
        length = int.from_bytes(await reader.readexactly(4), "big")
        reply = reply_decoder.decode(await reader.readexactly(length))
        assert isinstance(reply, SubmitReply), reply
        took_s.append(time.perf_counter() - began_s)
    writer.close()


async def submitting(path: Path) -> list[float]:
    took_s: list[float] = []
    ends_s = time.perf_counter() + SUBMITTING_S
    await asyncio.gather(*(client(path, k, ends_s, took_s) for k in range(CLIENTS)))
    return took_s


def submissions() -> None:
    rates: dict[str, list[float]] = {}
    bare: dict[str, list[float]] = {}
    waits_s: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        with stores() as urls:
            for name, url in urls.items():
                with tempfile.TemporaryDirectory() as folder, daemon(Path(folder), url) as path:
                    took_s = asyncio.run(submitting(path))
                rates.setdefault(name, []).append(len(took_s) / SUBMITTING_S)
                with closing(open_store(url)) as store:  # the same log, right after
                    store.lead(0)
                    bare.setdefault(name, []).append(batches(store, 1))
                waits_s.setdefault(name, []).append(statistics.quantiles(took_s, n=100)[98])
    for name, found in rates.items():
        ratio = statistics.median(a / b for a, b in zip(found, bare[name], strict=True))
        print(
            f"{name:8} submissions, {CLIENTS} connections         "
            f"{statistics.median(found):9.0f} /s   ratio {ratio:.1f} (lowest {min(found):.0f}; "
            f"99 of 100 within {statistics.median(waits_s[name]) * 1000:.0f} ms)"
        )


def main() -> None:
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} at the start; medians of {REPEATS}")
    for size in BATCHES:
        appends(f"{size} in a commit", partial(batches, size=size))
    appends(f"{CLIENTS} threads, shared commits", shared)
    submissions()


if __name__ == "__main__":
    main()
