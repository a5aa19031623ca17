"""How long is the federation without a daemon? One that leads is killed, and a standby takes over.

Two real processes on one SQLite log, whose lock goes with its holder, so that what is measured is
the standby's own part: its next try, the log taken in, the new term recorded, the socket open. A
lease that must run out first adds at most its length. The log holds workloads in the states of a
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
from federator.model.lifecycle import Happening
from federator.model.plan import JobPlan
from federator.model.site import NodeShare
from federator.model.workload import AttemptId, WorkloadId, first_id_at
from federator.store.sqlite import SqliteStore
from tests.fakes.build import draft, gang

REPEATS = 3
CHUNK: Final = 10_000
CONFIG = """
federation: bench
store: "sqlite://{folder}/queue.db"
socket: {folder}/daemon.sock
regions: {{west: {{shared: /shared}}}}
sites: {{alpine: {{region: west, command: ["/bin/false"], partitions: [gpu]}}}}
tenants: {{nlp: {{quota: {{gpus: 800}}, users: [ada]}}}}
"""


def history(workloads: int) -> Iterator[LogRecord]:
    """The log of a federation: of ten workloads eight have completed, one runs, one waits."""
    now_s = time.time() - 86_400.0
    first = first_id_at(now_s)
    for k in range(workloads):
        id_, at_s = WorkloadId(first + k), now_s + k / 10
        yield Submitted(at_s=at_s, draft=draft(gang(1), tenant="nlp"), first_id=id_,
                        key=f"ada:{k:032x}")  # fmt: skip
        if k % 10 == 0:
            continue
        attempt = AttemptId(workload=id_, attempt=1)
        plan = JobPlan(
            name="train", partition="gpu", nodes={f"n{k % 50}": NodeShare(gpus=8, cpus=8)}
        )
        yield Awarded(at_s=at_s, attempt=attempt, site="alpine", jobs=(plan,))
        begun = (Happening.ACCEPTED, Happening.STARTED)
        ended = () if k % 10 == 1 else (Happening.COMPLETED,)
        for happening in (*begun, *ended):
            yield Changed(at_s=at_s, workload=id_, attempt=1, happening=happening,
                          site_job_id=k + 1, started_at_s=at_s)  # fmt: skip


class Daemons:
    """A leader and its standby.

    Args:
        folder: of their log and their outputs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = folder / "federation.yaml"
        self._config.write_text(CONFIG.format(folder=folder))
        self._started = 0

    def start(self, until: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start one and wait until it says so in its output."""
        self._started += 1
        output = self._folder / f"{self._started}.log"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "federator.cli.main", "daemon", "--config",
                 str(self._config)], stderr=file,
            )  # fmt: skip
        self.await_word(output, until, process)
        return process, output

    @staticmethod
    def await_word(output: Path, word: str, process: subprocess.Popen[bytes]) -> None:
        while word not in (said := output.read_text()):
            if process.poll() is not None:
                raise SystemExit(f"the daemon ended: {said}")
            time.sleep(0.005)


def takeover_s(daemons: Daemons) -> float:
    """Seconds from the kill of the leader to the standby's first word as one."""
    leader, _ = daemons.start("daemon_started")
    standby, output = daemons.start('"event": "standby"')
    began_s = time.perf_counter()
    leader.send_signal(signal.SIGKILL)
    Daemons.await_word(output, "daemon_started", standby)
    took_s = time.perf_counter() - began_s
    for process in (leader, standby):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    return took_s


def main(sizes: Sequence[int]) -> None:
    print(f"{os.cpu_count()} cores; medians of {REPEATS}")
    for workloads in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            store = SqliteStore(folder / "queue.db")
            store.lead(0)
            records = [encode_event(event) for event in history(workloads)]
            for k in range(0, len(records), CHUNK):
                store.append(records[k : k + CHUNK])
            store.close()
            daemons = Daemons(folder)
            took_s = statistics.median(takeover_s(daemons) for _ in range(REPEATS))
        print(f"takeover, {workloads:7} workloads, {len(records):7} records   {took_s:6.2f} s")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [0, 10_000, 100_000])
