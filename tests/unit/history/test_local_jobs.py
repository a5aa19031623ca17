"""The history keeps the stays of sites' own jobs, and the times in which they were watched."""

from __future__ import annotations

from functools import reduce
from math import inf
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, text

from federator.errors import HistoryError
from federator.history import local_jobs, schema
from federator.history.database import open_reader, open_writer, transaction
from federator.history.local_jobs import LocalBatch, note_watched, put, read
from federator.history.retention import delete_some
from federator.model.local_record import LocalRecord, lasting_word
from federator.model.site import Capacity, Node
from federator.model.workload import SiteName

ALPINE, BIRCH = SiteName("alpine"), SiteName("birch")
T_S = 1_795_000_000.0


def record(job_id: int, state: str = "RUNNING", **fields: Any) -> LocalRecord:
    values: dict[str, Any] = {"user": "ada", "account": "bio", "submitted_at_s": T_S, **fields}
    return LocalRecord(job_id=job_id, shown=str(job_id), partition="gpu", state=state, **values)


def told(at_s: float, *records: LocalRecord, complete: bool = False) -> LocalBatch:
    return LocalBatch(ALPINE, T_S + at_s, records, complete)


@pytest.fixture
def engines(tmp_path: Path) -> tuple[Engine, Engine]:
    url = f"sqlite://{tmp_path / 'history.db'}"
    writer = open_writer(url)
    with transaction(writer) as connection:
        schema.prepare(connection)
    return writer, open_reader(url)


def kept(reader: Engine, since_s: float = 0.0) -> list[tuple[str, str, float, float]]:
    found = read(reader, since_s, inf)
    return [(k.record.shown, k.record.state, k.record.ended_at_s, k.unsure_s) for k in found.kept]


def test_the_last_that_was_told_of_a_stay_is_kept(engines: tuple[Engine, Engine]) -> None:
    writer, reader = engines
    whole = record(1, started_at_s=T_S + 5, limit_s=inf, gpus=8, gpu_type="a100", nodes=1)
    put(writer, [told(1, record(1, "PENDING"), record(2)), told(5, whole), told(5, whole)])
    assert [each.record for each in read(reader, 0.0, inf).kept] == [whole, record(2)]
    again = record(1, "PENDING", submitted_at_s=T_S + 9, restarts=1)
    put(writer, [told(9, again)])
    assert [name for name, *_ in kept(reader)] == ["1", "2", "1"]


@pytest.mark.parametrize(
    ("words", "kept_word"),
    [
        (("Priority", "Resources", ""), "Resources"),
        (("QOSMaxGRESPerUser", "Priority", ""), "QOSMaxGRESPerUser"),
        (("Dependency", "QOSMaxGRESPerUser", "Resources"), "QOSMaxGRESPerUser"),
        (("Dependency", "Priority"), "Priority"),
        (("BeginTime", "Resources", ""), "Resources"),
        (("JobHeldUser", "Dependency", "Priority"), "JobHeldUser"),
        (("", ""), ""),
    ],
)
def test_why_a_job_waited_is_known_after_its_start(
    engines: tuple[Engine, Engine], words: tuple[str, ...], kept_word: str
) -> None:
    writer, reader = engines
    for at_s, word in enumerate(words):
        put(writer, [told(at_s, record(1, "PENDING", held_by=word))])
    (found,) = read(reader, 0.0, inf).kept
    assert found.record.held_by == kept_word
    assert reduce(lasting_word, words) == kept_word  # as an agent keeps it


def test_tables_of_an_earlier_release_get_the_word_by_which_a_job_was_held(tmp_path: Path) -> None:
    writer = open_writer(f"sqlite://{tmp_path / 'history.db'}")
    with transaction(writer) as connection:
        schema.prepare(connection)
        connection.execute(text("ALTER TABLE local_jobs DROP COLUMN held_by"))
        connection.execute(schema.history_version.update().values(version=5))
    with transaction(writer) as connection:
        schema.prepare(connection)
    put(writer, [told(1, record(1, "PENDING", held_by="Priority"))])
    (found,) = read(open_reader(f"sqlite://{tmp_path / 'history.db'}"), 0.0, inf).kept
    assert found.record.held_by == "Priority"


def test_what_a_new_look_at_all_does_not_show_has_ended_since_the_site_was_watched(
    engines: tuple[Engine, Engine],
) -> None:
    writer, reader = engines
    put(writer, [told(1, record(1), record(2), record(3, "COMPLETED", ended_at_s=T_S))])
    put(writer, [LocalBatch(BIRCH, T_S + 1, [record(1)], complete=True)])
    note_watched(writer, {ALPINE: None}, T_S + 100)
    put(writer, [told(400, record(2)), told(400, record(4), complete=True)])
    assert kept(reader) == [
        ("1", "GONE", T_S + 400, 300.0),
        ("2", "RUNNING", 0.0, 0.0),
        ("3", "COMPLETED", T_S, 0.0),
        ("4", "RUNNING", 0.0, 0.0),
        ("1", "RUNNING", 0.0, 0.0),  # birch's
    ]


def test_jobs_over_before_a_time_are_not_read(engines: tuple[Engine, Engine]) -> None:
    writer, reader = engines
    put(writer, [told(1, record(1), record(3, "COMPLETED", ended_at_s=T_S + 1))])
    assert [name for name, *_ in kept(reader, T_S + 2)] == ["1"]


def test_times_in_which_nobody_watched_are_gaps(engines: tuple[Engine, Engine]) -> None:
    writer, reader = engines
    nodes = (Node(name="a1", partitions=("gpu",), cpus=8, mem_mib=9, gpu_type="a100", gpus=8),)
    for at_s in (0, 60, 120, 400, 460):
        note_watched(writer, {ALPINE: Capacity(nodes=nodes)}, T_S + at_s)
    found = read(reader, 0.0, inf)
    spans = [(span.since_s - T_S, span.until_s - T_S) for span in found.spans]
    assert spans == [(0, 120), (400, 460)]
    assert found.capacities[ALPINE].nodes == nodes


def test_what_was_kept_for_long_enough_goes_and_the_oldest_of_too_many(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = engines
    put(writer, [told(1, *(record(k, submitted_at_s=T_S + k) for k in range(6)))])
    delete_some(writer, T_S + 2)
    assert [name for name, *_ in kept(reader)] == ["2", "3", "4", "5"]
    monkeypatch.setattr(local_jobs, "MOST_RECORDS", 3)
    delete_some(writer, T_S + 2)
    assert [name for name, *_ in kept(reader)] == ["3", "4", "5"]


def test_texts_and_numbers_that_no_database_takes_are_cut(
    engines: tuple[Engine, Engine],
) -> None:
    writer, reader = engines
    put(writer, [told(1, record(2**70, user="a\0b", account="x" * 9_000, nodes=-(2**70)))])
    assert len(kept(reader)) == 1


def test_a_history_of_the_release_before_gets_the_tables(tmp_path: Path) -> None:
    writer = open_writer(f"sqlite://{tmp_path / 'history.db'}")
    with transaction(writer) as connection:
        schema.prepare(connection)
        for table in schema.LOCAL:
            table.drop(connection)
        connection.execute(schema.history_version.update().values(version=4))
    with pytest.raises(HistoryError, match="not those of this release yet"):
        put(writer, [told(1, record(1))])
    with transaction(writer) as connection:
        schema.prepare(connection)
        assert inspect(connection).has_table("local_jobs")
    put(writer, [told(1, record(1))])
