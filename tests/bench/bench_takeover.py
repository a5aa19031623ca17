"""Measures the gap when the leading daemon is killed and a standby takes over.

Two real processes on one log. SQLite's lock goes with its holder, so what is measured there is the
standby's own part: its next try, the rest of the log taken in, the new term recorded, the socket
open. In Redis the lease must run out first. Beside it stands what a daemon takes that knows nothing
yet: its start, and the whole log. That log holds workloads in the states of a
federation at work: nine of ten have run and ended.

Run by ``./test bench``, or ``python -m tests.bench.bench_takeover WORKLOADS...``. Prints medians;
asserts nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from federator.model.event import Awarded, Changed, LogRecord, Submitted, encode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.plan import JobPlan
from federator.model.site import NodeShare
from federator.model.workload import AttemptId, WorkloadId, first_id_of
from federator.store.opening import open_store
from tests.fakes.build import draft, gang
from tests.fakes.redis_server import RedisServer

REPEATS = 3
CHUNK: Final = 10_000
CONFIG = """
federation: bench
store: "{store}"
socket: {folder}/daemon.sock
regions: {{west: {{shared: /shared}}}}
sites: {{alpine: {{region: west, command: ["/bin/false"], partitions: [gpu]}}}}
tenants: {{nlp: {{quota: {{gpus: 800}}, users: [ada]}}}}
"""


def history(workloads: int) -> Iterator[LogRecord]:
    """The log of a federation: of ten workloads eight have completed, one runs, one waits."""
    now_s = time.time() - 86_400.0
    first = first_id_of(int(now_s))
    for k in range(workloads):
        id_, at_s = WorkloadId(first + k), now_s + k / 10
        yield Submitted(
            at_s=at_s, draft=draft(gang(1), tenant="nlp"), first_id=id_, key=f"ada:{k:032x}"
        )
        if k % 10 == 0:
            continue
        attempt = AttemptId(workload=id_, attempt=1)
        plan = JobPlan(
            name="train", partition="gpu", nodes={f"n{k % 50}": NodeShare(gpus=8, cpus=8)}
        )
        yield Awarded(at_s=at_s, attempt=attempt, site="alpine", jobs=(plan,))
        begun = (WorkloadEvent.ACCEPTED, WorkloadEvent.STARTED)
        ended = () if k % 10 == 1 else (WorkloadEvent.COMPLETED,)
        for happening in (*begun, *ended):
            yield Changed(
                at_s=at_s,
                workload=id_,
                attempt=1,
                happening=happening,
                site_job_id=k + 1,
                started_at_s=at_s,
            )


class Daemons:
    """A leader and its standby.

    Args:
        folder: of their outputs.
        store: their log.
    """

    def __init__(self, folder: Path, store: str) -> None:
        self._folder = folder
        self._config = folder / "federation.yaml"
        self._config.write_text(CONFIG.format(folder=folder, store=store))
        self._started = 0

    def start(self, until: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start one and wait until it says so in its output."""
        self._started += 1
        output = self._folder / f"{self._started}.log"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "federator.cli.main",
                    "daemon",
                    "--config",
                    str(self._config),
                ],
                stderr=file,
            )
        self.await_word(output, until, process)
        return process, output

    @staticmethod
    def await_word(output: Path, word: str, process: subprocess.Popen[bytes]) -> None:
        while word not in (said := output.read_text()):
            if process.poll() is not None:
                raise SystemExit(f"the daemon ended: {said}")
            time.sleep(0.005)


def takeover_s(daemons: Daemons) -> tuple[float, float]:
    """Seconds from the leader's kill to the standby's first word as one; and of a cold start."""
    began_s = time.perf_counter()
    leader, _ = daemons.start("daemon_started")
    cold_s = time.perf_counter() - began_s
    standby, output = daemons.start("standby_up_to_date")
    began_s = time.perf_counter()
    leader.send_signal(signal.SIGKILL)
    Daemons.await_word(output, "daemon_started", standby)
    took_s = time.perf_counter() - began_s
    leader.wait()
    standby.terminate()  # which gives the lead up: the next start need not wait for it
    standby.wait()
    return took_s, cold_s


@contextlib.contextmanager
def filled(kind: str, records: Sequence[bytes]) -> Iterator[Daemons]:
    """Daemons on a log that holds these records."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        url = f"sqlite://{folder}/queue.db"
        if kind == "redis":
            server = RedisServer(folder / "redis")
            stack.callback(server.kill)
            url = server.url
        with contextlib.closing(open_store(url)) as store:
            store.lead(0)
            for k in range(0, len(records), CHUNK):
                store.append(records[k : k + CHUNK])
        yield Daemons(folder, url)


def main(sizes: Sequence[int]) -> None:
    print(f"{os.cpu_count()} cores; medians of {REPEATS}")
    for workloads in sizes:
        records = [encode_event(event) for event in history(workloads)]
        for kind in ("sqlite", "redis"):
            with filled(kind, records) as daemons:
                found = [takeover_s(daemons) for _ in range(REPEATS)]
            took_s, cold_s = map(statistics.median, zip(*found, strict=True))
            print(
                f"{kind:6} {workloads:7} workloads, {len(records):7} records: takeover "
                f"{took_s:6.2f} s, cold start {cold_s:6.2f} s, ratio {took_s / cold_s:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [0, 10_000, 100_000])
