"""What a simulation of the past is made of."""

from __future__ import annotations

from math import inf
from pathlib import Path

import msgspec
from sqlalchemy import Engine

from federator.history import schema
from federator.history.database import open_reader, open_writer, put_rows, transaction
from federator.history.past_work import past_work
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow

NOW_S = 1_764_072_000.0


def attempt(number: int, started_at_s: float, ran_s: float = 0.0) -> AccountingAttempt:
    return AccountingAttempt(
        attempt=number,
        site="alpine",
        nodes=2,
        gpus=16,
        gpu_types="a100=4,h100=12",
        started_at_s=started_at_s,
        ended_at_s=started_at_s + ran_s if ran_s else 0.0,
    )


def row(id_: int, came_s: float, made: AccountingAttempt | None = None) -> AccountingRow:
    return AccountingRow(
        id=id_, name="train", user="ada", tenant="vision", submitted_at_s=came_s, last=made
    )


def history(tmp_path: Path) -> Engine:
    url = f"sqlite:///{tmp_path}/history.db"
    with transaction(open_writer(url)) as connection:
        schema.prepare(connection)
        own, made = [], []
        for id_, tries in ((1, [(100, 50)]), (2, [(200, 10), (300, 90)]), (3, [(40, 20)])):
            runs = [attempt(k, *times) for k, times in enumerate(tries, 1)]
            values = msgspec.structs.asdict(runs[-1]) | msgspec.structs.asdict(row(id_, 30.0))
            values["over_at_s"] = runs[-1].ended_at_s
            own.append({c.name: values[c.name] for c in schema.workloads.columns})
            for run in runs:
                values = msgspec.structs.asdict(run) | {"id": id_, "counted": 1}
                made.append({k: v for k, v in values.items() if k not in ("use", "facts")})
        put_rows(connection, schema.workloads, iter(own), replace=False)
        put_rows(connection, schema.attempts, iter(made), replace=False)
        live = [row(7, 500.0, attempt(1, 600.0)), row(8, 500.0)]
        packed = ({"id": each.id, "row": msgspec.msgpack.encode(each)} for each in live)
        put_rows(connection, schema.live, packed, replace=False)
        connection.execute(
            schema.log_place.insert().values(
                one=1, first=0, next=1, crc=0, within_snapshot=False, at_s=900.0
            )
        )
    return open_reader(url)


def test_each_workload_came_and_started_once_and_ran_as_its_last_attempt(tmp_path: Path) -> None:
    found = past_work(history(tmp_path), 100.0, NOW_S)
    assert found.is_whole
    told = [(each.id, each.came_s, each.start_s, each.ran_s) for each in found.work]
    assert told == [(1, 30.0, 100.0, 50.0), (2, 30.0, 200.0, 90.0), (7, 500.0, 600.0, 300.0)]
    first = found.work[0]
    assert (first.gpus, first.nodes, first.limit_s) == (16, 2, inf)
    assert first.gpu_types == ("h100", "a100"), "what it had most of comes first"


def test_what_is_beyond_the_most_is_said(tmp_path: Path) -> None:
    found = past_work(history(tmp_path), 0.0, NOW_S, most=2)
    assert ([each.id for each in found.work], found.is_whole) == ([1, 2], False)
    assert [each.id for each in past_work(history_of(tmp_path), 0.0, 400.0).work] == [1, 2, 3]


def history_of(tmp_path: Path) -> Engine:
    return open_reader(f"sqlite:///{tmp_path}/history.db")
