"""Opens the database that ``history.url`` names: SQLite, or PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Table,
    and_,
    case,
    create_engine,
    event,
    or_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from federator.errors import ConfigError, HistoryError
from federator.model.mappings import NOTHING

ANSWER_S: Final = 20.0  # that a database has for one statement
_CONNECT_S: Final = 5
_LOOK_EVERY: Final = 10_000  # steps of a statement, whether it has taken too long
_LOCK_S: Final = 5.0
_ROWS_AT_ONCE: Final = 5_000  # in one statement


def open_writer(url: str) -> Engine:
    """The engine of the one who writes; nothing is connected yet.

    Raises:
        ConfigError: its driver is not installed.
    """
    if not url.startswith("sqlite:"):
        return _postgres(url)
    path = Path(url.removeprefix("sqlite://"))
    engine = create_engine(
        "sqlite://",
        creator=lambda: _sqlite(path),
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=_LOCK_S,
        hide_parameters=True,
    )
    # From its first statement on, so that nobody else writes between what is read and written.
    event.listen(engine, "begin", lambda of: of.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def open_reader(url: str) -> Engine:
    """The engine of those who only read; nothing is connected yet.

    Raises:
        ConfigError: its driver is not installed.
    """
    if not url.startswith("sqlite:"):
        return _postgres(url)
    path = Path(url.removeprefix("sqlite://"))

    def connect() -> sqlite3.Connection:
        db = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, timeout=_LOCK_S, check_same_thread=False
        )
        until_s = time.monotonic() + ANSWER_S
        db.set_progress_handler(lambda: time.monotonic() > until_s, _LOOK_EVERY)
        return db

    return create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)


def _sqlite(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # what users do is theirs
    db = sqlite3.connect(path, timeout=_LOCK_S, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL")
    # As durable as the log, which is compacted once the history has it.
    db.execute("PRAGMA synchronous=FULL")
    return db


def _postgres(url: str) -> Engine:
    arguments: dict[str, Any] = {
        "connect_timeout": _CONNECT_S,
        "application_name": "federator",
        "keepalives_idle": 10,
        "tcp_user_timeout": int(ANSWER_S * 1000),
        "options": f"-c statement_timeout={ANSWER_S:.0f}s -c lock_timeout={_LOCK_S:.0f}s",
    }
    try:
        return create_engine(
            make_url(url).set(drivername="postgresql+psycopg"),
            connect_args=arguments,
            pool_size=2,
            max_overflow=2,
            pool_timeout=_LOCK_S,
            pool_pre_ping=True,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            "history.url names PostgreSQL, whose driver is not installed: install "
            "federator[postgresql]"
        ) from error


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """A connection, whose changes count all or none.

    Raises:
        HistoryError: the database failed, or cannot be reached; whether the changes count is not
            known then.
    """
    with explained(), engine.begin() as connection:
        yield connection


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection of which every statement reads the database as it was at the first.

    Raises:
        HistoryError: the database failed, or cannot be reached.
    """
    with explained(), engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        else:
            connection.exec_driver_sql("BEGIN")  # by itself the driver begins at a change
        yield connection


@contextmanager
def explained() -> Iterator[None]:
    """Raise what a database says as ``HistoryError``, in one line and without any value."""
    try:
        yield
    except SQLAlchemyError as error:
        raise HistoryError(_in_one_line(getattr(error, "orig", None) or error)) from error
    except (OSError, sqlite3.Error) as error:
        raise HistoryError(_in_one_line(error)) from error


def _in_one_line(error: BaseException) -> str:
    said = str(error).strip().split("\n")[0]
    return f"the history's database: {said or type(error).__name__}"


def put_rows(
    connection: Connection,
    table: Table,
    rows: Iterator[dict[str, Any]],
    *,
    replace: bool,
    kept: Mapping[str, Collection[str]] = NOTHING,
) -> None:
    """Insert rows, given by column; in place of those with the same key, or where there is none.

    ``kept``: in these columns of text "" replaces nothing, and one of the values given none but
    another of them.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    if replace:
        others: dict[str, ColumnElement[Any]] = {
            c.name: statement.excluded[c.name] for c in table.columns if c.name not in keys
        }
        for name, weak in kept.items():
            was, new = table.c[name], statement.excluded[name]
            strong = and_(*(was != word for word in weak))
            stays = or_(new == "", and_(or_(*(new == word for word in weak)), strong))
            others[name] = case((stays, was), else_=new)
        statement = statement.on_conflict_do_update(index_elements=keys, set_=others)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=keys)
    for some in chunks(rows, _ROWS_AT_ONCE):
        connection.execute(statement, some)


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The items, so many at a time."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
