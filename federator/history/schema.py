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
    and_,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeEngine

from federator.errors import HistoryError
from federator.model.local_record import LocalRecord
from federator.usage.days import DIMENSIONS, MEASURES
from federator.usage.supply import SUPPLIED
from federator.wire.accounting_rows import (
    AccountingAttempt,
    AccountingRow,
    AttemptFacts,
    MeasuredUse,
)

VERSION: Final = 10
_TYPES: Final[dict[str, TypeEngine[Any]]] = {
    "int": BigInteger(),
    "float": Double(),
    "str": Text(),
    "bool": BigInteger(),
}
_NOT_STORED: Final = frozenset({"last", "earlier", "array_tasks"})
_KEYS: Final = frozenset({"id", "attempt"})
OWNER: Final = ("tenant", "user", "project", "family")
"""Columns of ``attempts``: its workload's, as they were when it ended."""
_APART: Final = frozenset({"use", "use_due_at_s", "facts"})
"""In ``measured``, in ``unmeasured``, and in columns of ``attempts``."""

METADATA: Final = MetaData()


def _columns(kind: type, left_out: frozenset[str], added: bool = False) -> list[Column[Any]]:
    """A column for each plain field of a struct, so that neither can lack what the other has.

    ``added``: by a migration, so that rows that are there need a value.
    """
    return [
        Column(name, _TYPES[str(form)], nullable=False, server_default=_empty(str(form), added))
        for name, form in kind.__annotations__.items()
        if name not in left_out
    ]


def _empty(form: str, added: bool) -> str | None:
    return ("" if form == "str" else "0") if added else None


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
    # for reports of usage: whose it was, what the log tells beside, and whether it is in usage_days
    *(Column(name, Text, nullable=False, server_default="") for name in OWNER),
    *_columns(AttemptFacts, frozenset(), added=True),
    Column("counted", BigInteger, nullable=False, server_default="0"),
)
usage_days: Final = Table(
    "usage_days",  # sums of all attempts that are ``counted``; see ``federator.usage.days``
    METADATA,
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, Text, primary_key=True) for name in DIMENSIONS),
    *(Column(name, BigInteger, nullable=False, server_default="0") for name in MEASURES),
    sqlite_with_rowid=False,
)
site_job_ids: Final = Table(
    "site_job_ids",  # the last job id that a site is known to have given
    METADATA,
    Column("site", Text, primary_key=True),
    Column("job_id", BigInteger, nullable=False),
)
supply: Final = Table(
    "supply",  # what a site has had of a GPU type, from a time on
    METADATA,
    Column("site", Text, primary_key=True),
    Column("gpu_type", Text, primary_key=True),
    Column("since_s", Double, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in SUPPLIED),
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
attempts_and_use: Final = attempts.outerjoin(
    measured, and_(attempts.c.id == measured.c.id, attempts.c.attempt == measured.c.attempt)
)
"""Each attempt, beside what its site has told that it used, if it has."""
local_jobs: Final = Table(
    "local_jobs",  # stays of the sites' own jobs, where those are watched
    METADATA,
    Column("site", Text, primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("submitted_at_s", Double, primary_key=True),
    Column("restarts", BigInteger, primary_key=True, autoincrement=False),
    *_columns(LocalRecord, frozenset({"job_id", "submitted_at_s", "restarts", "held_by"})),
    Column("held_by", Text, nullable=False, server_default=""),
    Column("seen_at_s", Double, nullable=False),  # when that was told
    Column("unsure_s", Double, nullable=False),  # its end may be so much earlier
)
local_watch: Final = Table(
    "local_watch",  # times in which a site's own jobs were watched
    METADATA,
    Column("site", Text, primary_key=True),
    Column("since_s", Double, primary_key=True),
    Column("until_s", Double, nullable=False),
)
local_sites: Final = Table(
    "local_sites",  # the nodes that a watched site last told of, packed
    METADATA,
    Column("site", Text, primary_key=True),
    Column("capacity", LargeBinary, nullable=False),
)
LOCAL: Final = (local_jobs, local_watch, local_sites)
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
    Index("local_jobs_by_submission", local_jobs.c.submitted_at_s),
    Index("unmeasured_by_due", unmeasured.c.due_at_s),
    Index("unmeasured_by_site", unmeasured.c.site, unmeasured.c.due_at_s, unmeasured.c.id),
    Index("attempts_by_end", attempts.c.ended_at_s, attempts.c.started_at_s, attempts.c.id),
    Index(
        "attempts_uncounted",
        attempts.c.id,
        sqlite_where=attempts.c.counted == 0,
        postgresql_where=attempts.c.counted == 0,
    ),
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


def _add_columns(connection: Connection, table: Table) -> None:
    """Those of a table that is there that it lacks."""
    there = {each["name"] for each in inspect(connection).get_columns(table.name)}
    for column in table.columns:
        if column.name not in there:
            form = CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {form}"))


def _with_usage(connection: Connection) -> None:
    """Sums of usage; those of the attempts before it are made later, some at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
    for table in (attempts, measured):
        _add_columns(connection, table)
    METADATA.create_all(connection, tables=[usage_days, supply])
    for index in INDEXES:
        if index.name in ("attempts_by_end", "attempts_uncounted"):
            index.create(connection, checkfirst=True)


def _with_local_jobs(connection: Connection) -> None:
    """Records of the sites' own jobs."""
    METADATA.create_all(connection, tables=list(LOCAL))


def _with_words(connection: Connection) -> None:
    """Slurm's word for why a site's own job waited; of those before it none is known."""
    _add_columns(connection, local_jobs)


def _with_due_by_site(connection: Connection) -> None:
    """A site's own attempts are found, however many others wait for sites that are away."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
    for index in INDEXES:
        if index.name == "unmeasured_by_site":
            index.create(connection, checkfirst=True)


def _with_swings(connection: Connection) -> None:
    """How GPUs swing, and what ranks do in a step; of attempts before it nothing is known."""
    _add_columns(connection, measured)


def _with_job_ids(connection: Connection) -> None:
    """The last job id of each site; of attempts before it none is known."""
    METADATA.create_all(connection, tables=[site_job_ids])
    for table in (attempts, usage_days):
        _add_columns(connection, table)


def _with_ends_by_accounts(connection: Connection) -> None:
    """When attempts ended by their sites' accounts; of those before it that is not known."""
    _add_columns(connection, measured)


MIGRATIONS: Final[dict[int, Callable[[Connection], None]]] = {
    1: _whatever_case,
    2: _with_use,
    3: _with_usage,
    4: _with_local_jobs,
    5: _with_words,
    6: _with_due_by_site,
    7: _with_swings,
    8: _with_job_ids,
    9: _with_ends_by_accounts,
}
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


def check_ready(connection: Connection) -> None:
    """Raise ``HistoryError`` unless the tables are of this release."""
    found = found_version(connection)
    check_version(found)
    if found < VERSION:
        raise HistoryError(
            "the history's tables are not those of this release yet: its daemon makes them so"
        )
