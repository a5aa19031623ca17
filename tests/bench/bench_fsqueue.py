"""Measures fsqueue with a long queue: the CPU time of the client, and of the daemon's answer.

Run by ``./test bench``; prints medians. The exit status is 1 if what the plain table costs, both
parts together, is above ``BOUND_S``. The queue is that of a real core: each workload was refused by
every site. No Docker is needed.
"""

from __future__ import annotations

import gc
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec.structs import replace as replace_fields

from federator.cli import services
from federator.daemon.views import queue_rows
from federator.model.submission import Option, Submission, pack_submission
from federator.wire.client_protocol import BANNER, QueueCall, QueueReply, frame
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

PENDING: Final = 10_000
ROUNDS: Final = 9
BOUND_S: Final = 0.300
SITES: Final = ("alpine", "boreal", "cedar")
_TABLE: Final = QueueCall(collapsed=True, brief=True, codes=True)  # as the command asks
MEASURED: Final[dict[str, tuple[list[str], QueueCall]]] = {
    "fsqueue": ([], _TABLE),
    "fsqueue -h -o '%i %t'": (["-h", "-o", "%i %t"], _TABLE),
    "fsqueue -l": (["-l"], replace_fields(_TABLE, details=True)),
    "fsqueue --json": (["--json"], QueueCall(files=True)),
}


def waiting() -> Loopback:
    """A federation with PENDING workloads that a pass has tried."""
    f = Loopback({site: rack(site, 2) for site in SITES})
    packed = pack_submission(
        Submission(
            components=((Option(name="gres", value="gpu:8"), Option(name="nodes", value="4")),),
            script="#!/bin/sh\n" + "true\n" * 50,
            environment={f"NAME{k}": "value" * 8 for k in range(60)},
        )
    )
    for k in range(PENDING):
        f.submit(replace(draft(gang(1 + k % 2), name=f"train-{k}"), submission=packed))
    f.run_for(5.0)
    gc.set_threshold(*services.COLLECT_SELDOM)  # as in a daemon
    return f


def cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def answer(path: str, data: bytes) -> threading.Thread:
    """Answer one call with what was made before."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()

    def serve() -> None:
        with listening, listening.accept()[0] as peer:
            peer.sendall(BANNER)
            peer.recv(2**20)
            peer.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def client_s(words: list[str], data: bytes) -> tuple[float, int]:
    """CPU seconds of one command from start to exit, and the lines that it printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "sock")
        serving = answer(path, data)
        environment = {**os.environ, "FEDERATOR_SOCKET": path}
        before_s = cpu_of_children_s()
        done = subprocess.run(
            [sys.executable, "-I", "-m", "federator.cli.fsqueue", *words],
            env=environment,
            check=True,
            capture_output=True,
        )
        serving.join()
        return cpu_of_children_s() - before_s, done.stdout.count(b"\n")


def daemon_s(f: Loopback, call: QueueCall) -> tuple[float, bytes]:
    """CPU seconds of one answer, and the answer."""
    before_s = time.process_time()
    rows, left_off = queue_rows(f.federation, call, 20_000)
    data = frame(QueueReply(rows=rows, now_s=f.clock.now_s, left_off=left_off))
    return time.process_time() - before_s, data


def main() -> int:
    f = waiting()
    print(f"{PENDING} pending workloads, {len(SITES)} sites; {ROUNDS} rounds, CPU time")
    totals: dict[str, float] = {}
    for name, (words, call) in MEASURED.items():
        ours, theirs = [], []
        for _ in range(ROUNDS):
            seconds, data = daemon_s(f, call)
            theirs.append(seconds)
            seconds, lines = client_s(words, data)
            ours.append(seconds)
        client, daemon = statistics.median(ours), statistics.median(theirs)
        totals[name] = client + daemon
        print(
            f"  {name:<22} client {1e3 * client:4.0f} ms, daemon {1e3 * daemon:4.0f} ms, "
            f"{len(data) / 2**20:.1f} MiB, {lines} lines"
        )
    held = totals["fsqueue"] <= BOUND_S
    print(f"bound: fsqueue, {1e3 * BOUND_S:g} ms in all: {'held' if held else 'BROKEN'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
