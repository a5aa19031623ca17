"""Measures how soon a daemon with 100,000 workloads in its log schedules again.

Run by ``./test bench``. From the start of the real ``federator daemon`` process until each of three
sites has been asked for bids; an agent made for this stands for each site. It shows at once the
2,000 jobs that the log has running there, and has no room for others. Three logs, in SQLite, tell
of the same workloads (tests/fakes/long_log.py): the whole of it; a snapshot; a snapshot and as many
records after it as may come before the next one. Prints medians of ``REPEATS`` and the daemon's
memory, and how long a compaction holds up decisions.
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
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from federator.daemon.compaction import LEAST_RECORDS, RECORDS_PER_WORKLOAD
from federator.model.event import LogRecord, encode_event
from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import AttemptReport, SiteJobState
from federator.model.site_message import Ask, BidsMade, Report, SiteAnswer
from federator.sched.state.ledger import Ledger
from federator.sched.state.snapshot import taken
from federator.store.sqlite import SqliteStore
from federator.wire.agent_protocol import PROTOCOL_VERSION, Hello, Ping, Pong, to_agent_decoder
from federator.wire.client_protocol import BANNER, frame
from federator.wire.framing import read_frame
from tests.fakes.long_log import SITES, long_log

WORKLOADS = 100_000
REPEATS = 5
TENANTS = 20
PATIENCE_S = 300.0
_FULL = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.RESOURCES),))


class Restart(NamedTuple):
    seconds: float
    cpu_s: float  # of the daemon: says more than seconds where other programs run
    mib: float


# ---- a site ----


async def agent(site: str, folder: Path) -> None:
    """Stand for the agent of a site until the daemon has asked it for bids."""
    reader = asyncio.StreamReader(limit=2**26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out = sys.stdout.buffer

    def send(data: bytes) -> None:
        out.write(data)
        out.flush()

    send(BANNER)
    await read_frame(reader)
    send(frame(Hello(protocol=PROTOCOL_VERSION, site=site, slurm_version="24.11.5")))
    decoder = msgspec.msgpack.Decoder(tuple[AttemptReport, ...])
    send(frame(Report(attempts=decoder.decode((folder / site).read_bytes()), complete=True)))
    while (body := await read_frame(reader)) is not None:
        match to_agent_decoder.decode(body):
            case Ping():
                send(frame(Pong()))
            case Ask() as ask:
                answers = tuple(SiteAnswer(id=r.id, refusal=_FULL) for r in ask.requests)
                send(frame(BidsMade(pass_id=ask.pass_id, answers=answers)))
                asked = folder / f"{site}.asked"
                asked.with_suffix(".new").write_text(repr(time.time()))
                asked.with_suffix(".new").rename(asked)


# ---- logs ----


def chunked(records: Iterator[LogRecord], number: int = 1_000) -> Iterator[list[bytes]]:
    while chunk := [encode_event(record) for record in islice(records, number)]:
        yield chunk


def write(store: SqliteStore, records: Iterator[LogRecord]) -> int:
    number = 0
    for chunk in chunked(records):
        store.append(chunk)
        number += len(chunk)
    return number


def told(records: Iterator[LogRecord]) -> Ledger:
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    return ledger


def build(folder: Path) -> dict[str, Path]:
    """Write the logs and what runs at each site; print how long a compaction took."""
    paths = {name: folder / name / "queue.db" for name in ("whole log", "snapshot", "longest")}
    stores = {name: SqliteStore(path) for name, path in paths.items()}
    for store in stores.values():
        store.lead(1)
    records = write(stores["whole log"], long_log(WORKLOADS))
    ledger = told(long_log(WORKLOADS))
    began_s = time.perf_counter()
    encoded = [encode_event(record) for record in taken(ledger, time.time())]
    encoded_s = time.perf_counter()
    stores["snapshot"].compact(encoded)
    took_s = time.perf_counter() - began_s
    print(
        f"a compaction of {WORKLOADS} workloads ({records} records) takes {took_s:.1f} s, "
        f"{encoded_s - began_s:.1f} s of it to make {sum(map(len, encoded)) / 2**20:.0f} MiB"
    )
    early = records - max(LEAST_RECORDS, int(RECORDS_PER_WORKLOAD * WORKLOADS))
    part = told(islice(long_log(WORKLOADS), early))
    write(stores["longest"], taken(part, time.time()))
    write(stores["longest"], islice(long_log(WORKLOADS), early, None))
    for store in stores.values():
        store.close()
    for site in SITES:
        (folder / site).write_bytes(msgspec.msgpack.encode(running_at(ledger, site)))
    return paths


def running_at(ledger: Ledger, site: str) -> Sequence[AttemptReport]:
    return [
        AttemptReport(
            attempt=e.attempt_id,
            user=e.workload.user,
            site_job_id=e.site_job_id,
            state=SiteJobState.RUNNING,
            started_at_s=e.started_at_s,
        )
        for e in ledger.in_state(WorkloadState.RUNNING)
        if e.site == site
    ]


def config(folder: Path, log: Path) -> Path:
    command = [sys.executable, __file__, "agent"]
    sites = {
        site: {"region": "west", "command": [*command, site, str(folder)], "partitions": ["gpu"]}
        for site in SITES
    }
    tenants = {f"tenant-{k}": {"quota": {"gpus": 800}, "users": ["ada"]} for k in range(TENANTS)}
    path = folder / "federation.yaml"
    path.write_bytes(
        msgspec.yaml.encode(
            {
                "federation": "bench",
                "store": f"sqlite://{log}",
                "socket": str(folder / "daemon.sock"),
                "regions": {"west": {"shared": "/shared"}},
                "sites": sites,
                "tenants": tenants,
            }
        )
    )
    return path


# ---- restarts ----


def restart(folder: Path, log: Path) -> Restart:
    """One start of the daemon, to the first question to the last of the sites."""
    asked = [folder / f"{site}.asked" for site in SITES]
    for path in asked:
        path.unlink(missing_ok=True)
    path = config(folder, log)
    argv = [sys.executable, "-m", "federator.cli.main", "daemon", "--config", str(path)]
    with (folder / "daemon.err").open("w") as errors:
        began_s = time.time()
        paths = {"PYTHONPATH": str(Path(__file__).parents[2])}  # its agents are of this file
        daemon = subprocess.Popen(argv, stderr=errors, env=os.environ | paths)
        try:
            while not all(path.exists() for path in asked):
                if daemon.poll() is not None or time.time() > began_s + PATIENCE_S:
                    raise SystemExit((folder / "daemon.err").read_text())
                time.sleep(0.02)
            status = Path(f"/proc/{daemon.pid}/status").read_text()
            ticks = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60.0)
    resident_kib = int(status.split("VmRSS:")[1].split()[0])
    cpu_s = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")  # user and system
    last_s = max(float(path.read_text()) for path in asked)
    return Restart(last_s - began_s, cpu_s, resident_kib / 1024)


def main() -> None:
    print(f"{os.cpu_count()} cores; medians of {REPEATS}; {WORKLOADS} workloads")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        medians: dict[str, float] = {}
        for what, log in build(folder).items():
            runs = [restart(folder, log) for _ in range(REPEATS)]
            medians[what] = statistics.median(run.seconds for run in runs)
            print(
                f"{what:<10} {log.stat().st_size / 2**20:6.0f} MiB: asks for bids after "
                f"{medians[what]:5.1f} s (all: {', '.join(f'{r.seconds:.1f}' for r in runs)}); "
                f"of the daemon {statistics.median(run.cpu_s for run in runs):.1f} s of CPU, "
                f"{statistics.median(run.mib for run in runs):.0f} MiB"
            )
        ratio = medians["whole log"] / medians["snapshot"]
        print(f"whole log : snapshot = {ratio:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:
        asyncio.run(agent(sys.argv[2], Path(sys.argv[3])))
    else:
        main()
