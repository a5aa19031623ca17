"""The history's thread: it follows, it goes on after trouble, and nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from federator.errors import HistoryError, NotCompacted, StoreError
from federator.history import database, query, service
from federator.history.database import open_reader, open_writer
from federator.history.query import HistoryQuestion
from federator.history.service import JobHistory, open_history
from federator.history.usage_query import UsageQuestion
from federator.model.event import Changed, EpochBegan, LogRecord, Submitted, encode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import FIRST_WORKLOAD_ID
from federator.store.chain import LogPlace
from federator.store.memory import MemoryStore
from federator.usage.report import with_prices
from tests.fakes.build import draft

NOW_S = 1e11  # in no test anything is old
PATIENCE_S = 60.0  # none of it is waited for unless a test fails


def ended(at_s: float = NOW_S) -> list[LogRecord]:
    return [
        EpochBegan(at_s=at_s, epoch=1),
        Submitted(at_s=at_s, draft=draft(), first_id=FIRST_WORKLOAD_ID, key="key"),
        Changed(
            at_s=at_s, workload=FIRST_WORKLOAD_ID, happening=WorkloadEvent.CANCEL_ASKED, by="eve"
        ),
    ]


class Keeper:
    """A history in a folder, and steps of its thread that a test can wait for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = folder / "history.db"
        self.store = MemoryStore()
        self.store.lead(0)
        url = f"sqlite://{self.path}"
        self.history = JobHistory(open_writer(url), open_reader(url), self.store, 1000 * 86_400.0)
        self._steps, self._stepped = 0, threading.Condition()
        follower = self.history._follower
        take = follower.take

        def stepwise() -> bool:
            try:
                return take()
            finally:
                with self._stepped:
                    self._steps += 1
                    self._stepped.notify_all()

        monkeypatch.setattr(follower, "take", stepwise)
        for name in ("POLL_S", "FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
            monkeypatch.setattr(service, name, 0.001)
        monkeypatch.setattr(service, "TAKE_ALL_S", PATIENCE_S)

    def after_steps(self, count: int) -> None:
        """Wait until the thread has taken so many more; all but the last are wholly done then."""
        with self._stepped:
            ends = self._steps + count
            assert self._stepped.wait_for(lambda: self._steps >= ends, PATIENCE_S)

    def write(self, *events: LogRecord) -> None:
        self.store.append([encode_event(event) for event in events])

    def rows(self) -> list[int]:
        page = asyncio.run(self.history.page(HistoryQuestion(), None, 10))
        return [row.id for row in page.rows]


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    made = Keeper(tmp_path, monkeypatch)
    yield made
    made.history.stop()
    if made.history._thread is not None:
        made.history._thread.join(PATIENCE_S)


def test_what_is_logged_comes_into_the_history_by_itself(keeper: Keeper) -> None:
    keeper.history.start()
    keeper.write(*ended())
    keeper.after_steps(3)
    assert keeper.rows() == [FIRST_WORKLOAD_ID]
    assert keeper.history.at_s == NOW_S


def test_trouble_is_told_once_and_when_it_is_over(keeper: Keeper) -> None:
    keeper.path.mkdir()
    with capture_logs() as lines:
        keeper.history.start()
        keeper.write(*ended())
        keeper.after_steps(4)
        keeper.path.rmdir()
        keeper.after_steps(4)
    assert [line["event"] for line in lines] == ["history_behind", "history_again"]
    assert keeper.rows() == [FIRST_WORKLOAD_ID]


def test_a_compaction_does_not_wait_for_a_database_in_trouble(keeper: Keeper) -> None:
    keeper.path.mkdir()
    keeper.history.start()
    keeper.write(*ended())
    keeper.after_steps(2)
    with pytest.raises(NotCompacted, match="the history is behind the log: the history's database"):
        keeper.history.take_all()
    keeper.path.rmdir()
    keeper.after_steps(3)
    keeper.history.take_all()
    assert keeper.rows() == [FIRST_WORKLOAD_ID]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreError("log.db: cannot read"), "the history is behind the log: log.db: cannot read"),
        (KeyError("id"), "the history failed; the daemon's log says how"),
    ],
)
def test_no_failure_of_the_history_ends_the_daemon_that_would_compact_its_log(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(_place: object) -> NoReturn:
        raise error

    monkeypatch.setattr(keeper.store, "read_on", fail)
    with pytest.raises(NotCompacted) as found:
        keeper.history.take_all()
    assert str(found.value) == said


def test_a_compaction_waits_a_bounded_time_for_a_database_that_hangs(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "TAKE_ALL_S", 0.01)
    goes_on, read_on = threading.Event(), keeper.store.read_on

    def hang(place: LogPlace | None) -> Iterator[tuple[LogPlace, bytes]]:
        assert goes_on.wait(PATIENCE_S)
        return read_on(place)

    monkeypatch.setattr(keeper.store, "read_on", hang)
    keeper.write(*ended())
    with pytest.raises(NotCompacted, match="did not catch up within"):
        keeper.history.take_all()
    with pytest.raises(NotCompacted, match="does not answer"):  # at once, while the first hangs
        keeper.history.take_all()
    goes_on.set()
    assert keeper.history._catch_up is not None
    keeper.history._catch_up.result(PATIENCE_S)
    assert keeper.rows() == [FIRST_WORKLOAD_ID]


def test_a_question_to_a_database_that_hangs_is_given_up(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.history.take_all()
    monkeypatch.setattr(service, "ANSWER_S", 0.01)
    goes_on = threading.Event()
    monkeypatch.setattr(query, "page", lambda *_: goes_on.wait(PATIENCE_S))

    async def asked() -> None:
        try:
            await keeper.history.page(HistoryQuestion(), None, 10)
        finally:
            goes_on.set()

    with pytest.raises(HistoryError, match="does not answer"):
        asyncio.run(asked())


def test_what_is_old_is_deleted_by_itself(keeper: Keeper) -> None:
    keeper.write(*ended(at_s=1e6))
    keeper.history.take_all()
    assert keeper.rows() == [FIRST_WORKLOAD_ID]
    keeper.history.start()
    keeper.after_steps(3)
    assert keeper.rows() == []


def test_a_history_that_is_no_database_is_an_error_of_one_line(keeper: Keeper) -> None:
    keeper.path.write_text("no database " * 100)
    with pytest.raises(HistoryError, match=r"^the history's database: file is not a database$"):
        keeper.history._follower.take()


def test_a_question_that_takes_too_long_is_given_up(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.history.take_all()
    monkeypatch.setattr(database, "ANSWER_S", -1.0)
    endless = "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n) SELECT max(k) FROM n"
    reader = open_reader(f"sqlite://{keeper.path}")
    with (
        pytest.raises(HistoryError, match="interrupted"),
        database.explained(),
        reader.connect() as connection,
    ):
        connection.exec_driver_sql(endless)


def test_a_report_is_made_where_nobody_waits_for_it(keeper: Keeper) -> None:
    """Its work grows with what is asked for; the daemon's turns must not wait for that."""
    keeper.history.start()
    keeper.write(*ended())
    keeper.after_steps(2)
    question = UsageQuestion(first_day=0, end_day=1, columns=with_prices(("user",)))
    made = keeper.history.usage(question, 10, lambda found: (found, threading.current_thread()))
    found, where = asyncio.run(made)
    assert (dict(found.sums), where.name.partition("_")[0]) == ({}, "history-read")


def test_a_new_history_is_readable_by_its_owner_alone(keeper: Keeper) -> None:
    keeper.history.take_all()
    assert keeper.path.stat().st_mode & 0o777 == 0o600


def test_no_history_is_opened_where_none_is_wanted() -> None:
    assert open_history("none", "sqlite:////var/lib/queue.db", 10.0) is None
    assert open_history("", "memory:", 10.0) is None
