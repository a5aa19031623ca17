"""Each history keeps the records of sites' own jobs as they were."""

from __future__ import annotations

from math import inf

from federator.history import schema
from federator.history.database import transaction
from federator.history.local_jobs import LocalBatch, delete_old, note_watched, put, read
from federator.model.workload import SiteName
from tests.contract.history_log import reader, writer
from tests.fakes.local_jobs import T0_S, capacity, stay

ALPINE = SiteName("alpine")


def test_a_record_comes_back_as_it_was_and_what_is_not_shown_again_has_ended(url: str) -> None:
    with transaction(writer(url)) as connection:
        schema.prepare(connection)
    ran = stay(1, started_at_s=5.0, ended_at_s=9.0, gpus=-1, federated=True, limit_s=inf)
    runs = stay(2, "RUNNING", started_at_s=5.0)
    put(writer(url), [LocalBatch(ALPINE, T0_S + 9, (ran, runs), complete=True)] * 2)
    for at_s in (9, 60):
        note_watched(writer(url), {ALPINE: capacity("alpine", 1)}, T0_S + at_s)
    found = read(reader(url), T0_S, inf)
    assert [kept.record for kept in found.kept] == [ran, runs]
    assert [tuple(span) for span in found.spans] == [("alpine", T0_S + 9, T0_S + 60)]
    assert found.capacities == {ALPINE: capacity("alpine", 1)}
    put(writer(url), [LocalBatch(ALPINE, T0_S + 100, (), complete=True)])
    lost = read(reader(url), T0_S, inf).kept[1]
    assert (lost.record.state, lost.record.ended_at_s, lost.unsure_s) == ("GONE", T0_S + 100, 40.0)
    with transaction(writer(url)) as connection:
        delete_old(connection, T0_S + 1000)
    assert read(reader(url), 0.0, inf).kept == []
