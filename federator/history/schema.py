"""The tables of the history, and their versions.

``workloads`` and ``attempts`` hold what is over: their rows are written once. ``live`` holds the
rows of what is not, packed; ``log_place`` says up to where the log is in all three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.types import TypeEngine

from federator.errors import HistoryError
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow, MeasuredUse

VERSION: Final = 3
_TYPES: Final[dict[str, TypeEngine[Any]]] = {
    "int": BigInteger(),
    "float": Double(),
    "str": Text(),
}
_NOT_STORED: Final = frozenset({"last", "earlier", "array_tasks"})
_KEYS: Final = frozenset({"id", "attempt"})
_APART: Final = frozenset({"use"})  # in ``measured``

METADATA: Final = MetaData()


def _columns(kind: type, left_out: frozenset[str]) -> list[Column[Any]]:
    """A column for each plain field of a struct, so that neither can lack what the other has."""
    return [
        Column(name, _TYPES[str(form)], nullable=False)
        for name, form in kind.__annotations__.items()
        if name not in left_out
    ]


history_version: Final = Table(
    "history_version",
    METADATA,
    Column("one", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
)
log_place: Final = Table(
    "log_place",
    METADATA,
    Column("one", BigInteger, primary_key=True, autoincrement=False),
    Column("first", BigInteger, nullable=False),
    Column("next", BigInteger, nullable=False),
    Column("crc", BigInteger, nullable=False),
    Column("within_snapshot", Boolean, nullable=False),
    Column("at_s", Double, nullable=False),
)
live: Final = Table(
    "live",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("row", LargeBinary, nullable=False),
)
workloads: Final = Table(
    "workloads",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    *_columns(AccountingRow, _NOT_STORED | _KEYS),
    *_columns(AccountingAttempt, _APART | {"state", "reason"}),
)
attempts: Final = Table(
    "attempts",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    *_columns(AccountingAttempt, _APART | _KEYS),
)
unmeasured: Final = Table(
    "unmeasured",  # attempts whose site is to be asked what they used
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("site", Text, nullable=False),
    Column("site_job_id", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("started_at_s", Double, nullable=False),
    Column("ended_at_s", Double, nullable=False),
    Column("due_at_s", Double, nullable=False),
    Column("tries", BigInteger, nullable=False),
)
measured: Final = Table(
    "measured",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, Double) for name in MeasuredUse.__struct_fields__),
)
_c = workloads.c
INDEXES: Final = (  # one for each kind of question, in the order in which its rows are read
    Index("workloads_by_end", _c.over_at_s, _c.id),
    Index("workloads_by_user", _c.user, _c.over_at_s, _c.id),
    Index("workloads_by_tenant", func.lower(_c.tenant), _c.over_at_s, _c.id),
    Index("workloads_by_site", _c.site, _c.over_at_s, _c.id),
    Index("workloads_by_name", func.lower(_c.name), _c.over_at_s, _c.id),
    Index(
        "workloads_by_array",
        _c.array_id,
        _c.array_index,
        sqlite_where=_c.array_id > 0,
        postgresql_where=_c.array_id > 0,
    ),
    Index("unmeasured_by_due", unmeasured.c.due_at_s),
)


def _whatever_case(connection: Connection) -> None:
    """Accounts and names are found whatever their case."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))  # millions of rows take longer
    for index in INDEXES:
        if index.name in ("workloads_by_tenant", "workloads_by_name"):
            index.drop(connection)
            index.create(connection)


def _with_use(connection: Connection) -> None:
    """What attempts used; of those before it nobody asks."""
    METADATA.create_all(connection, tables=[unmeasured, measured])


MIGRATIONS: Final[dict[int, Callable[[Connection], None]]] = {1: _whatever_case, 2: _with_use}
"""From the version that is the key to the next; each runs in the transaction that notes it."""


def prepare(connection: Connection) -> None:
    """Make the tables, or bring those of an earlier release up to date; in one transaction.

    Raises:
        HistoryError: they are of a later release.
    """
    if not inspect(connection).has_table(history_version.name):
        METADATA.create_all(connection)
        connection.execute(history_version.insert().values(one=1, version=VERSION))
        return
    found = found_version(connection)
    check_version(found)
    for version in range(found, VERSION):
        MIGRATIONS[version](connection)
    if found < VERSION:
        connection.execute(history_version.update().values(version=VERSION))


def found_version(connection: Connection) -> int:
    """The version of the tables that are there; 0: there are none."""
    if not inspect(connection).has_table(history_version.name):
        return 0
    return int(connection.execute(select(history_version.c.version)).scalar_one())


def check_version(found: int) -> None:
    """Raise ``HistoryError`` for tables that this release does not know."""
    if found > VERSION:
        raise HistoryError(
            f"the history has schema {found}, of a later release; this one reads up to {VERSION}: "
            "start the later release"
        )
