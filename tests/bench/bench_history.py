"""How long the history takes for what fsacct asks, with so many workloads in it.

    python -m tests.bench.bench_history --workloads 1000000
    python -m tests.bench.bench_history --url postgresql://... --workloads 1000000

Rows are spread evenly over three years, 1,000 users (one of them has every twentieth workload), 50
accounts, 8 sites. They are written to the tables as the follower writes them; how fast it follows a
log is measured by itself, with a shorter one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Engine

from federator.history import schema
from federator.history.database import open_reader, open_writer, put_rows, transaction
from federator.history.follower import HistoryFollower, workload_values
from federator.history.query import HistoryQuestion, JobName, attempts_of, page
from federator.model.event import encode_event
from federator.model.workload import FIRST_WORKLOAD_ID
from federator.store.memory import MemoryStore
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow
from federator.wire.client_protocol import AccountingReply, frame
from tests.fakes.long_log import long_log

BEGAN_S = 1_700_000_000.0
YEARS = 3
DAY_S = 86_400.0
PAGE = 2_000
AT_ONCE = 100_000  # rows in one transaction
FOLLOWED = 20_000  # workloads


def rows(count: int) -> Iterator[AccountingRow]:
    apart_s = YEARS * 365 * DAY_S / count
    for k in range(count):
        at_s = BEGAN_S + k * apart_s
        user = "heavy" if k % 20 == 0 else f"user{(k * 7919) % 1000}"
        last = AccountingAttempt(
            attempt=1,
            site=f"site{k % 8}",
            site_job_id=k,
            partition="gpu",
            node_list="n[0001-0008]",
            nodes=8,
            cpus=64,
            gpus=64,
            gpu_types="a100=64",
            mem_mib=512_000,
            awarded_at_s=at_s + 60,
            started_at_s=at_s + 120,
            ended_at_s=at_s + 7_200,
            state="COMPLETED",
        )
        task = k % 10
        yield AccountingRow(
            id=FIRST_WORKLOAD_ID + k,
            name=f"train-{k // 3}",
            user=user,
            tenant=f"account{k % 50}",
            submitted_at_s=at_s,
            eligible_at_s=at_s,
            over_at_s=at_s + 7_201,
            state="COMPLETED",
            array_id=FIRST_WORKLOAD_ID + k - task if k % 100 < 50 else 0,
            array_index=task,
            work_dir=f"/home/{user}/runs",
            asked_nodes=8,
            asked_cpus=64,
            asked_gpus=64,
            last=last,
        )


def fill(engine: Engine, count: int) -> None:
    with transaction(engine) as connection:
        schema.prepare(connection)
    made = rows(count)
    for _ in range(0, count, AT_ONCE):
        some = [row for _, row in zip(range(AT_ONCE), made, strict=False)]
        with transaction(engine) as connection:
            values = map(workload_values, some)
            put_rows(connection, schema.workloads, values, replace=True)
            steps = ({"id": row.id, **_step(row)} for row in some)
            put_rows(connection, schema.attempts, steps, replace=True)


def _step(row: AccountingRow) -> dict[str, object]:
    assert row.last is not None
    return {name: getattr(row.last, name) for name in AccountingAttempt.__struct_fields__}


def asked(reader: Engine, question: HistoryQuestion) -> int:
    """All pages of an answer with every attempt, as the daemon would send it; how many rows."""
    after, found = None, 0
    while True:
        some = page(reader, question, after, PAGE)
        attempts_of(reader, [row.id for row in some.rows])
        reply = AccountingReply(rows=tuple(some.rows), now_s=0.0, federation="bench")
        frame(reply)
        found += len(some.rows)
        after = some.after
        if after is None:
            return found


def measured(act: Callable[[], int], rounds: int) -> str:
    wall, cpu, found = [], [], 0
    for _ in range(rounds):
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        found = act()
        wall.append(time.perf_counter() - began_s)
        cpu.append(time.process_time() - began_cpu_s)
    middle = statistics.median
    return f"{found:>7} rows {1e3 * middle(wall):>9.1f} ms {1e3 * middle(cpu):>9.1f} ms CPU here"


def questions(count: int) -> dict[str, HistoryQuestion]:
    end_s = BEGAN_S + YEARS * 365 * DAY_S
    middle = FIRST_WORKLOAD_ID + count // 200 * 100
    month_s = end_s - 30 * DAY_S
    return {
        "a user's last month": HistoryQuestion(users=("user7",), start_s=month_s),
        "a user's month, 2 years ago": HistoryQuestion(
            users=("user7",), start_s=end_s - 760 * DAY_S, end_s=end_s - 730 * DAY_S
        ),
        "the heaviest user's last month": HistoryQuestion(users=("heavy",), start_s=month_s),
        "an account's last month": HistoryQuestion(tenants=("account3",), start_s=month_s),
        "a user's failures in 3 years": HistoryQuestion(
            users=("user7",), states=frozenset({"FAILED"})
        ),
        "everybody's last hour": HistoryQuestion(start_s=end_s - 3600),
        "a site's last day": HistoryQuestion(sites=("site3",), start_s=end_s - DAY_S),
        "an array by its id": HistoryQuestion(jobs=(JobName(middle),)),
        "50 ids": HistoryQuestion(jobs=tuple(JobName(middle + 3 * k) for k in range(50))),
        "by name": HistoryQuestion(names=(f"train-{count // 6}",)),
        "a name that nobody has": HistoryQuestion(names=("0f3a",), users=("user7",)),
    }


def follow(engine: Engine) -> None:
    store = MemoryStore()
    store.lead(0)
    store.append([encode_event(event) for event in long_log(FOLLOWED)])
    count = len(list(store.records()))
    follower = HistoryFollower(store, engine)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    while not follower.take():
        pass
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    print(
        f"follows a log: {count} records, {count / wall_s:.0f}/s, {1e6 * cpu_s / count:.0f} us CPU"
    )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--workloads", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--url", help="of an empty history; by default a file")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite://{folder}/history.db"
        if given.url is None:
            follow(open_writer(f"sqlite://{folder}/followed.db"))
        began_s = time.perf_counter()
        fill(open_writer(url), given.workloads)
        print(f"{given.workloads} workloads written in {time.perf_counter() - began_s:.0f} s")
        if given.url is None:
            print(f"{Path(folder, 'history.db').stat().st_size / 2**30:.2f} GiB")
        reader = open_reader(url)
        for name, question in questions(given.workloads).items():
            ask = lambda question=question: asked(reader, question)  # noqa: E731
            print(f"{name:<32} {measured(ask, given.rounds)}", flush=True)


if __name__ == "__main__":
    main()
