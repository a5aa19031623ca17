"""What the history promises, on each database that it can be kept in."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, event, text
from structlog.testing import capture_logs

from federator.errors import HistoryError, NotCompacted
from federator.history import follower as following
from federator.history import measured, retention, schema, service
from federator.history.follower import HistoryFollower
from federator.history.query import JobName
from federator.history.rows import row_of
from federator.model.event import (
    Forgotten,
    Submitted,
)
from federator.model.lifecycle import TERMINAL, WorkloadEvent
from federator.model.viewer import Viewer
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.wire.accounting_rows import AccountingRow, MeasuredUse
from tests.contract.history_log import (
    T0_S,
    Log,
    ask,
    awarded,
    brought_up_to_date,
    changed,
    contents,
    follow,
    ids,
    life,
    reader,
    submitted,
    writer,
)
from tests.fakes.build import draft
from tests.fakes.long_log import long_log
from tests.fakes.postgres_server import PostgresServer

_H = WorkloadEvent


# ---- what is kept ----


def test_a_workload_that_ended_is_kept_with_all_that_is_known_of_it(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    (row,) = ask(url)
    assert row.last is not None
    assert (row.id, row.name, row.user, row.tenant) == (
        FIRST_WORKLOAD_ID + 1,
        "train",
        "ada",
        "vision",
    )
    assert (row.submitted_at_s, row.over_at_s, row.state) == (T0_S, T0_S + 81, "COMPLETED")
    assert (row.asked_nodes, row.asked_gpus, row.time_limit_s) == (1, 8, 3600.0)
    last = row.last
    assert (last.site, last.site_job_id, last.partition) == ("alpine", 701, "gpu")
    assert (last.node_list, last.nodes, last.gpu_types) == ("alpine[1-4]", 4, "a100=32")
    assert (last.cpus, last.gpus, last.mem_mib) == (64, 32, 256_000)
    assert (last.awarded_at_s, last.started_at_s, last.ended_at_s) == (
        T0_S + 10,
        T0_S + 20,
        T0_S + 80,
    )


def test_every_attempt_is_kept_with_its_end(log: Log, url: str) -> None:
    log.write(
        submitted(1),
        awarded(1),
        changed(1, _H.ACCEPTED, site_job_id=7),
        changed(1, _H.STARTED, started_at_s=T0_S + 1),
        changed(1, _H.NODE_FAILED, ended_at_s=T0_S + 9, site_state="NODE_FAIL"),
        awarded(1, attempt=2, site="boreal"),
        changed(1, _H.DECLINED, T0_S + 10),
        awarded(1, attempt=3, at_s=T0_S + 30),
        changed(1, _H.ACCEPTED, site_job_id=8),
    )
    log.write(changed(1, _H.CANCEL_ASKED, T0_S + 40, by="eve"), changed(1, _H.CANCELLED, T0_S + 41))
    follow(log, url)
    (row,) = ask(url)
    found = [(a.attempt, a.site, a.site_job_id, a.state, a.ended_at_s - T0_S) for a in row.earlier]
    assert found == [
        (1, "alpine", 7, "NODE_FAIL", 9.0),
        (2, "boreal", 0, "CANCELLED", 10.0),
    ]
    assert row.last is not None
    assert (row.last.attempt, row.last.state, row.last.ended_at_s) == (3, "CANCELLED", T0_S + 41)
    assert (row.state, row.cancelled_by) == ("CANCELLED", "eve")


def test_a_site_s_word_for_a_failure_is_kept_as_the_state(log: Log, url: str) -> None:
    log.write(*life(1)[:-1], changed(1, _H.FAILED, T0_S + 90, site_state="OUT_OF_MEMORY", signal=9))
    follow(log, url)
    (row,) = ask(url)
    assert row.last is not None
    assert (row.state, row.last.signal) == ("OUT_OF_MEMORY", 9)


def test_the_history_of_a_long_log_says_what_its_ledger_says(log: Log, url: str) -> None:
    log.write(*list(long_log(2_000))[1:])
    follow(log, url)
    expected: dict[int, AccountingRow] = {
        id_: row_of(entry) for id_, entry in log.ledger.entries.items() if entry.state in TERMINAL
    }
    found = {row.id: row for row in ask(url)}
    assert len(found) == len(expected) > 500
    for id_, row in found.items():
        assert msgspec.structs.replace(row, earlier=()) == expected[id_]


def test_what_lives_is_no_answer_yet(log: Log, url: str) -> None:
    log.write(*life(1)[:-1], *life(2))
    follow(log, url)
    assert ids(ask(url)) == [2]


@pytest.mark.parametrize(
    ("name", "kept"),
    [("with\0nul", "with�nul"), ("n" * 5_000, "n" * 400), ("'; DROP TABLE", "'; DROP TABLE")],
)
def test_any_name_and_any_number_can_be_kept(log: Log, url: str, name: str, kept: str) -> None:
    wanted = replace(draft(), name=name, time_limit_s=inf)
    log.write(Submitted(at_s=T0_S, draft=wanted, first_id=FIRST_WORKLOAD_ID, key="key"))
    log.write(*life(0)[1:-1])
    log.write(changed(0, _H.FAILED, T0_S + 1, exit_code=2**63 + 5, ended_at_s=nan))
    follow(log, url)
    (row,) = ask(url, names=(name,))
    assert row.last is not None
    assert (row.name, row.last.exit_code, row.time_limit_s) == (kept, 2**63 - 1, inf)


# ---- what attempts used ----


def test_every_attempt_that_ran_is_asked_about_until_its_site_has_told(log: Log, url: str) -> None:
    log.write(*life(1), *life(2, T0_S + 100), *life(3)[:-1])
    log.write(submitted(4), awarded(4), changed(4, _H.DECLINED, T0_S + 5))
    follow(log, url)
    at_s = T0_S + 80 + measured.FIRST_S
    engine = reader(url)
    assert measured.due(engine, ["alpine"], at_s - 1, 9) == []
    (first,) = measured.due(engine, ["alpine"], at_s, 9)
    assert (first.job.user, first.job.site_job_id) == ("ada", 701)
    assert (first.job.started_at_s, first.job.ended_at_s) == (T0_S + 20, T0_S + 80)
    assert first.job.gpus == 32
    assert measured.due(engine, ["boreal"], at_s, 9) == []
    use = MeasuredUse(cpu_s=12.5, mem_mib=100.0)
    measured.put(writer(url), [first], [use], at_s)
    (told, waits) = ((FIRST_WORKLOAD_ID + k, 1) for k in (1, 2))
    assert measured.use_of(engine, [told[0], waits[0]]) == {
        told: (use, 0.0),
        waits: (None, T0_S + 180 + measured.FIRST_S),
    }
    (second,) = measured.due(engine, ["alpine"], at_s + 1000, 9)
    assert second.job.site_job_id == 702


def test_a_site_that_does_not_know_is_asked_a_few_times(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    now_s, asked = T0_S + 100, 0
    while found := measured.due(reader(url), ["alpine"], now_s, 9):
        measured.put(writer(url), found, [None], now_s)
        assert measured.due(reader(url), ["alpine"], now_s, 9) == []
        now_s, asked = now_s + 3601, asked + 1
    assert asked == measured.TRIES
    assert measured.use_of(reader(url), [FIRST_WORKLOAD_ID + 1]) == {}


def test_a_part_of_what_was_used_is_kept_while_the_site_is_asked_for_the_rest(
    log: Log, url: str
) -> None:
    log.write(*life(1))
    follow(log, url)
    told = [
        MeasuredUse(ready_s=3.0, gpu_util_frac=0.5),
        MeasuredUse(cpu_s=1.0, gpu_util_frac=0.75),
    ]
    now_s = T0_S + 100
    for use in told:
        found = measured.due(reader(url), ["alpine"], now_s, 9)
        measured.put(writer(url), found, [use], now_s, (0,) if use is told[0] else ())
        known = measured.use_of(reader(url), [FIRST_WORKLOAD_ID + 1])[FIRST_WORKLOAD_ID + 1, 1]
        assert known.due_at_s == (now_s + measured.PAUSES_S[0] if use is told[0] else 0.0)
        now_s += 61
    assert known.use == MeasuredUse(ready_s=3.0, cpu_s=1.0, gpu_util_frac=0.75)
    assert measured.due(reader(url), ["alpine"], now_s + 1e4, 9) == []


def test_a_site_that_never_tells_the_rest_is_asked_a_few_times(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    now_s, asked, part = T0_S + 100, 0, MeasuredUse(ready_s=3.0)
    while found := measured.due(reader(url), ["alpine"], now_s, 9):
        measured.put(writer(url), found, [part], now_s, (0,))
        now_s, asked = now_s + 3601, asked + 1
    assert asked == measured.TRIES
    assert measured.use_of(reader(url), [FIRST_WORKLOAD_ID + 1]) == {
        (FIRST_WORKLOAD_ID + 1, 1): (part, 0.0)
    }


def test_a_site_that_is_away_for_too_long_is_asked_no_more(log: Log, url: str) -> None:
    log.write(*life(1), *life(2, T0_S + measured.KEPT_S + 500))
    follow(log, url)
    late_s = T0_S + measured.KEPT_S + 1000
    old, new = measured.due(reader(url), ["alpine"], late_s, 9)
    measured.put(writer(url), [new], [MeasuredUse()], late_s)
    assert measured.due(reader(url), ["alpine"], late_s, 9) == []
    assert old.job.site_job_id == 701


def test_what_was_used_goes_with_its_workload(log: Log, url: str) -> None:
    log.write(*life(1), *life(2))
    follow(log, url)
    first, _ = measured.due(reader(url), ["alpine"], T0_S + 1000, 9)
    measured.put(writer(url), [first], [MeasuredUse(cpu_s=1.0)], T0_S + 1000)
    assert not retention.delete_some(writer(url), T0_S + 1000)
    found = contents(url)
    assert (found["measured"], found["unmeasured"]) == ([], [])


# ---- nothing lost, nothing twice ----


def test_nothing_is_lost_or_doubled_by_a_kill_at_any_statement(
    log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "RECORDS_AT_ONCE", 5)
    log.write(*life(1), *life(2), submitted(5, tasks=3))
    log.compact()
    log.write(*life(3), changed(5, _H.CANCEL_ASKED, by="ada"), *life(9, end=_H.FAILED))
    kills = 0
    while killed_at_statement(kills + 1, lambda engine: HistoryFollower(log.store, engine), url):
        kills += 1
    assert kills > 20
    found = contents(url)
    assert ids(ask(url)) == [5, 1, 2, 3, 9]
    follow(log, url)
    assert contents(url) == found


def killed_at_statement(number: int, make: Callable[[Engine], HistoryFollower], url: str) -> bool:
    """Follow in a process that SIGKILL ends before its statement of this number; was it ended?"""
    child = os.fork()
    if not child:
        os._exit(_follow_until_killed(number, make, url))
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def _follow_until_killed(number: int, make: Callable[[Engine], HistoryFollower], url: str) -> int:
    try:
        engine, seen = writer(url), 0

        def count(*_: object) -> None:
            nonlocal seen
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(engine, "before_cursor_execute", count)
        event.listen(engine, "commit", count)
        brought_up_to_date(make(engine))
    except BaseException:  # whatever it is: this process must not go on as its parent
        return 1
    return 0


def test_two_daemons_that_follow_at_once_write_everything_once(log: Log, url: str) -> None:
    one, other = (HistoryFollower(log.store, writer(url)) for _ in range(2))
    for number in range(1, 9):
        log.write(*life(number))
        first, second = (one, other) if number % 2 else (other, one)
        brought_up_to_date(first)
        brought_up_to_date(second)
    assert ids(ask(url)) == list(range(1, 9))


def test_a_compaction_that_comes_after_the_history_costs_it_nothing(log: Log, url: str) -> None:
    log.write(*life(1), *life(2)[:-1])
    follower = follow(log, url)
    follower.take_all(1.0, lambda: 0.0)
    log.write(Forgotten(at_s=T0_S, ids=(WorkloadId(FIRST_WORKLOAD_ID + 1),)))
    follower.take_all(1.0, lambda: 0.0)
    log.compact()
    log.write(life(2)[-1])
    with capture_logs() as lines:
        brought_up_to_date(follower)
    assert (ids(ask(url)), lines) == ([1, 2], [])
    assert contents(url)["live"] == []


def test_what_was_compacted_before_the_history_had_it_comes_from_the_snapshot(
    log: Log, url: str
) -> None:
    log.write(*life(1), *life(2)[:-1])
    follower = follow(log, url)
    before = ask(url)
    log.write(life(2)[-1], *life(3), submitted(4))
    log.compact()
    log.write(*life(4)[1:])
    with capture_logs() as lines:
        brought_up_to_date(follower)
    assert [line["event"] for line in lines] == ["history_resumes_from_snapshot"]
    assert sorted(ids(ask(url))) == [1, 2, 3, 4]
    assert ask(url)[0] == before[0]  # a snapshot says less than the records did


def test_a_history_may_begin_with_a_log_that_was_compacted(log: Log, url: str) -> None:
    log.write(*life(1), submitted(5, tasks=120), *life(130)[:-1])
    log.compact()
    log.write(life(130)[-1], changed(60, _H.CANCEL_ASKED, by="ada"))
    follow(log, url)
    found = ask(url)
    assert sorted(ids(found)) == [1, 60, 130]
    (task,) = ask(url, jobs=(JobName(FIRST_WORKLOAD_ID + 5, 55),))
    assert (task.id, task.array_index) == (FIRST_WORKLOAD_ID + 60, 55)


def test_a_log_that_cannot_be_caught_up_with_in_time_is_not_to_be_compacted(
    log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "RECORDS_AT_ONCE", 5)
    log.write(*life(1), *life(2), *life(3))
    ticks = iter(range(0, 1000, 10))
    with pytest.raises(NotCompacted, match="catches up"):
        HistoryFollower(log.store, writer(url)).take_all(15.0, lambda: float(next(ticks)))


# ---- questions ----


@pytest.fixture
def asked(log: Log, url: str) -> str:
    """Three users' workloads, one each 100 s; ada's 1, 4 and 7 among them; 5 failed."""
    for number in range(1, 9):
        end = _H.FAILED if number == 5 else _H.COMPLETED
        user = ("eve", "ada", "bob")[number % 3]
        log.write(*life(number, T0_S + 100 * number, end, user))
    log.write(submitted(20, T0_S + 900, tasks=3))
    for number in (20, 21, 22):
        log.write(changed(number, _H.CANCEL_ASKED, T0_S + 950 + number, by="root"))
    follow(log, url)
    return url


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"users": ("ada",)}, [1, 4, 7, 20, 21, 22]),
        ({"users": ("ada", "bob"), "end_s": T0_S + 500}, [1, 2, 4, 5]),
        ({"start_s": T0_S + 780, "sites": ("alpine",)}, [7, 8]),
        ({"start_s": T0_S + 781, "end_s": T0_S + 799}, [7]),  # it ended just then
        ({"tenants": ("vision",), "states": frozenset({"FAILED"})}, [5]),
        ({"states": frozenset({"CANCELLED", "FAILED"})}, [5, 20, 21, 22]),
        ({"states": frozenset({"FAILED"}), "end_s": T0_S + 550}, []),  # it failed after that
        ({"states": frozenset({"RUNNING"}), "start_s": T0_S + 530, "end_s": T0_S + 550}, [5]),
        ({"states": frozenset({"PENDING"}), "start_s": T0_S + 505, "end_s": T0_S + 510}, [5]),
        ({"states": frozenset({"RUNNING"}), "start_s": T0_S + 505, "end_s": T0_S + 510}, []),
        ({"jobs": (JobName(FIRST_WORKLOAD_ID + 20),)}, [20, 21, 22]),
        ({"jobs": (JobName(FIRST_WORKLOAD_ID + 20, 1),)}, [21]),
        ({"jobs": (JobName(FIRST_WORKLOAD_ID + 3), JobName(2**70))}, [3]),
        ({"names": ("train",), "users": ("bob",)}, [2, 5, 8]),
        ({"names": ("nobody's",)}, []),
        ({"names": ("TRAIN",), "tenants": ("Vision",), "users": ("bob",)}, [2, 5, 8]),
        ({"users": ("Bob",)}, []),
    ],
)
def test_a_question_finds_what_it_names(
    asked: str, wanted: dict[str, object], expected: list[int]
) -> None:
    assert ids(ask(asked, **wanted)) == expected


def test_pages_hold_every_row_once_also_of_workloads_that_ended_at_once(log: Log, url: str) -> None:
    for number in range(1, 31):
        log.write(*life(number))
    follow(log, url)
    assert ids(ask(url)) == list(range(1, 31))


# ---- retention, versions, trouble ----


def test_what_is_old_is_deleted_in_steps_with_its_attempts(
    log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEP", 3)
    for number in range(1, 9):
        log.write(*life(number, T0_S + 100 * number))
    follow(log, url)
    steps = 1
    while retention.delete_some(writer(url), T0_S + 600):
        steps += 1
    assert (ids(ask(url)), steps) == ([6, 7, 8], 2)
    assert len(contents(url)["attempts"]) == 3


def test_a_history_of_a_later_release_is_refused_and_left_as_it_is(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    with writer(url).begin() as connection:
        connection.execute(schema.history_version.update().values(version=99))
    before = contents(url)
    for act in (lambda: follow(log, url), lambda: ask(url)):
        with pytest.raises(HistoryError, match="schema 99, of a later release"):
            act()
    assert contents(url) == before


def test_a_history_of_an_earlier_release_is_brought_up_to_date(
    log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(*life(1))
    follow(log, url)
    now = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", now + 1)
    monkeypatch.setitem(
        schema.MIGRATIONS, now, lambda c: c.execute(text("ALTER TABLE attempts ADD COLUMN x INT"))
    )
    follow(log, url)
    follow(log, url)
    with reader(url).connect() as connection:
        assert schema.found_version(connection) == now + 1
        assert connection.execute(text("SELECT x FROM attempts")).all() == [(None,)]


def test_a_history_of_the_first_release_is_asked_whatever_the_case(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    with writer(url).begin() as connection:
        for name in ("tenant", "name"):
            connection.execute(text(f"DROP INDEX workloads_by_{name}"))
            made = f'CREATE INDEX workloads_by_{name} ON workloads ("{name}", over_at_s, id)'
            connection.execute(text(made))
        connection.execute(schema.history_version.update().values(version=1))
    follow(log, url)
    assert ids(ask(url, tenants=("VISION",), names=("Train",))) == [1]
    with reader(url).connect() as connection:
        assert schema.found_version(connection) == schema.VERSION
        plan = "EXPLAIN " if connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
        if plan == "EXPLAIN ":
            connection.execute(text("SET enable_seqscan = off"))
        asks = "SELECT id FROM workloads WHERE lower(name) = lower('x') ORDER BY over_at_s"
        said = connection.execute(text(plan + asks))
        assert "workloads_by_name" in str(said.all())


@pytest.mark.parametrize("found", [2, 6])
def test_a_site_s_attempts_are_found_by_an_index_however_many_are_others(
    log: Log, url: str, found: int
) -> None:
    """In a history that was made with it, and in one of an earlier schema."""
    log.write(*life(1))
    follow(log, url)
    with writer(url).begin() as connection:
        if found == 2:
            schema.unmeasured.drop(connection)
        else:
            connection.execute(text("DROP INDEX unmeasured_by_site"))
        connection.execute(schema.history_version.update().values(version=found))
    follow(log, url)
    engine, asked = reader(url), list[tuple[str, Any]]()

    def note(_c: object, _cursor: object, statement: str, values: Any, *_more: object) -> None:
        if "FROM unmeasured" in statement:
            asked.append((statement, values))

    event.listen(engine, "before_cursor_execute", note)
    measured.due(engine, ["alpine", "boreal"], T0_S + 100, 9)
    event.remove(engine, "before_cursor_execute", note)
    assert len(asked) == 2, "one question for each site, and none about all"
    with engine.connect() as connection:
        explain = "EXPLAIN QUERY PLAN "
        if connection.dialect.name == "postgresql":
            explain = "EXPLAIN "
            for way in ("seqscan", "bitmapscan", "sort"):
                connection.execute(text(f"SET enable_{way} = off"))
        for statement, values in asked:
            plan = str(connection.exec_driver_sql(explain + statement, values).all())
            assert "unmeasured_by_site" in plan
            assert "Sort Key" not in plan
            assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    ("viewer", "expected"),
    [
        (Viewer(user="ada"), [1, 4, 7, 20, 21, 22]),
        (Viewer(user="cat", tenants=frozenset({"vision"})), [1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22]),
        (Viewer(user="cat", tenants=frozenset({"nlp"})), []),
        (Viewer(user=""), []),
    ],
)
def test_nobody_is_shown_what_is_not_theirs_to_see(
    asked: str, viewer: Viewer, expected: list[int]
) -> None:
    assert ids(ask(asked, viewer=viewer)) == expected
    assert ids(ask(asked, viewer=viewer, users=("eve",), names=("train",))) == [
        id_ for id_ in expected if id_ in (3, 6)
    ]


def test_a_follower_goes_on_once_its_database_is_back(log: Log, postgres: PostgresServer) -> None:
    """A server's; tests/unit/history/test_service.py has the troubles of a file."""
    url = postgres.new_database()
    log.write(*life(1))
    follower = follow(log, url)
    log.write(*life(2))
    postgres.stop()
    try:
        with pytest.raises(HistoryError, match="the history's database: "):
            follower.take()
        with pytest.raises(NotCompacted, match="the history is behind the log"):
            follower.take_all(1.0, lambda: 0.0)
    finally:
        postgres.start()
    brought_up_to_date(follower)
    assert ids(ask(url)) == [1, 2]


def test_tables_that_are_gone_are_made_anew_and_what_the_log_has_is_told_again(
    log: Log, url: str
) -> None:
    log.write(*life(1))
    follower = follow(log, url)
    with writer(url).begin() as connection:
        schema.METADATA.drop_all(connection)
    log.write(*life(2))
    with pytest.raises(HistoryError):
        follower.take()
    with capture_logs() as said:
        brought_up_to_date(follower)
    assert ids(ask(url)) == [1, 2]
    assert [line["event"] for line in said] == ["history_begins_anew"]


def test_a_frozen_database_holds_up_no_compaction_and_loses_nothing(
    log: Log, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP: no timeout of the server's runs, and its host still acknowledges what is sent."""
    url = postgres.new_database()
    monkeypatch.setattr(service, "TAKE_ALL_S", 300.0)
    history = service.JobHistory(writer(url), reader(url), log.store, 1e12)
    log.write(*life(1))
    history.take_all()
    log.write(*life(2))
    postgres.freeze()
    try:
        with monkeypatch.context() as short:  # only where it is waited for in vain
            short.setattr(service, "TAKE_ALL_S", 1.0)
            with pytest.raises(NotCompacted, match="did not catch up within 1 s"):
                history.take_all()
            with pytest.raises(NotCompacted, match="does not answer"):
                history.take_all()
    finally:
        postgres.thaw()
    assert history._catch_up is not None
    history._catch_up.exception(30.0)
    history.take_all()
    assert ids(ask(url)) == [1, 2]


def test_an_error_of_the_database_shows_no_secret(log: Log, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    postgres.passfile.write_text(f"127.0.0.1:*:*:*:wrong-{postgres.password}\n")
    try:
        with pytest.raises(HistoryError) as found:
            follow(log, url)
    finally:
        postgres.passfile.write_text(f"127.0.0.1:{postgres.port}:*:*:{postgres.password}\n")
    assert "password authentication failed" in str(found.value)
    assert postgres.password not in str(found.value)
