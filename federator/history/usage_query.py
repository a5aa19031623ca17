"""Answers what was used in a time, from the history alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    case,
    func,
    literal,
    literal_column,
    or_,
    select,
)

from federator.errors import InvalidRequest
from federator.history import schema, supply
from federator.history.database import snapshot
from federator.history.usage_sums import live_uses, uses_of
from federator.history.values import word
from federator.model.prices import PriceList
from federator.model.viewer import Viewer
from federator.usage.days import (
    DAY_MS,
    HELD_AT,
    MEASURES,
    Key,
    Sums,
    add_up,
    difference,
)
from federator.usage.report import UsageFound, with_prices
from federator.usage.rows import BY
from federator.usage.supply import CellKey, Supplied, supplied
from federator.wire.accounting_rows import AccountingRow
from federator.wire.usage_messages import UsageCall

_U: Final = schema.usage_days.c
_READ_BY: Final = Key._fields[:5]  # the table is in the order of all of them
_READ_FOR_EACH: Final = 4  # rows for each sum that is wanted
_LAUNCHING_AT: Final = MEASURES.index("launching_gpu_ms")
_decode: Final = msgspec.msgpack.Decoder(AccountingRow).decode


class UsageQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: whole days (UTC); an empty tuple asks for any."""

    first_day: int  # since 1970
    end_day: int  # the first that is not asked for
    columns: tuple[str, ...]  # of ``days.Key``, by which the sums are wanted
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    viewer: Viewer | None = None  # who asks; None: one who sees all
    periods: tuple[int, ...] = ()  # their first days: sums by day are by these instead


def find(engine: Engine, question: UsageQuestion, most: int | None = None) -> UsageFound:
    """Answer a question, by one state of the history: an attempt may end meanwhile.

    Args:
        engine: of one who reads.
        question: what is asked.
        most: sums by its columns; None: as many as there are.

    Raises:
        InvalidRequest: there are more.
        HistoryError: the database cannot be read, or is of another release.
    """
    with snapshot(engine) as connection:
        schema.check_ready(connection)
        place = connection.execute(select(schema.log_place.c.at_s)).scalar_one_or_none()
        at_s = float(place or 0.0)
        running = _running(connection, question, at_s)
        start_ms = question.first_day * DAY_MS
        end_ms = max(start_ms, min(question.end_day * DAY_MS, round(at_s * 1000)))
        return UsageFound(
            columns=question.columns,
            sums=_grouped(connection, question, running, most),
            supply=_supply(connection, question, start_ms, end_ms),
            held=_held(connection, question, running),
            start_s=start_ms / 1000,
            end_s=end_ms / 1000,
            at_s=at_s,
            uncounted=_uncounted(connection),
        )


def _grouped(
    connection: Connection, question: UsageQuestion, running: Sums, most: int | None
) -> dict[tuple[str | int, ...], list[int]]:
    """The sums by the columns that are wanted.

    Rows come in the order of ``_READ_BY``: in groups by those columns the database need not sort
    them, which takes most of its time.
    """
    wanted = question.columns
    names = _READ_BY if set(wanted) <= set(_READ_BY) else wanted
    columns: list[ColumnElement[Any]] = [_U[name] for name in names]
    if "day" in wanted and names is not _READ_BY:
        columns[names.index("day")] = _period_column(question.periods)
    sums = [func.sum(_U[name]) for name in MEASURES]
    query = select(*columns, *sums).where(*_wanted(question)).group_by(*columns)
    read = None if most is None else most * _READ_FOR_EACH
    if read is not None:
        query = query.limit(read + 1)
    at, width = [names.index(name) for name in wanted], len(columns)
    found: dict[tuple[str | int, ...], list[int]] = {}
    for count, row in enumerate(connection.execute(query), 1):
        _add(found, _key(question, [row[k] for k in at]), row[width:])
        if most is not None and read is not None and (count > read or len(found) > most):
            raise InvalidRequest(
                f"more than {most} sums; ask for fewer days, tenants, users or sites, or by less"
            )
    for of, values in running.items():
        if _is_wanted(of, question):
            _add(found, _key(question, [getattr(of, name) for name in wanted]), values)
    return found


def _key(question: UsageQuestion, values: list[Any]) -> tuple[str | int, ...]:
    """Of a sum, with the first day of its period in place of its day."""
    if question.periods:
        at = question.columns.index("day")
        values[at] = question.periods[bisect_right(question.periods, values[at]) - 1]
    return tuple(values)


def _period_column(periods: tuple[int, ...]) -> ColumnElement[int]:
    """Its numbers are text: PostgreSQL takes two parameters for two expressions to group by."""
    if not periods:
        return _U.day
    first: list[ColumnElement[int]] = [literal_column(str(int(day))) for day in periods]
    return case(*((_U.day < end, day) for day, end in pairwise(first)), else_=first[-1])


def _add(
    found: dict[tuple[str | int, ...], list[int]],
    key: tuple[str | int, ...],
    values: Iterable[int],
) -> None:
    mine = found.get(key)
    if mine is None:
        found[key] = list(map(int, values))
        return
    for k, value in enumerate(values):
        mine[k] += int(value)


def _held(
    connection: Connection, question: UsageQuestion, running: Sums
) -> dict[CellKey, tuple[int, int]]:
    """The time that anybody's attempts held, and waited to start, whoever asks."""
    cell = [_U.day, _U.site, _U.partition, _U.gpu_type]  # as the rows are in order
    held = sum((_U[MEASURES[k]] for k in HELD_AT[1:]), _U[MEASURES[HELD_AT[0]]])
    sums = [func.sum(held), func.sum(_U[MEASURES[_LAUNCHING_AT]])]
    query = select(*cell, *sums).where(*_in_time(question), *_at_sites(question)).group_by(*cell)
    found: dict[CellKey, tuple[int, int]] = {}
    for day, site, _, gpu_type, held_ms, launching_ms in connection.execute(query):
        place = CellKey(day, site, gpu_type)
        a, b = found.get(place, (0, 0))
        found[place] = (a + int(held_ms), b + int(launching_ms))
    for of, values in running.items():
        if question.sites and of.site not in question.sites:
            continue
        place = CellKey(of.day, of.site, of.gpu_type)
        a, b = found.get(place, (0, 0))
        more = sum(values[k] for k in HELD_AT)
        found[place] = (a + more, b + values[_LAUNCHING_AT])
    return found


def _running(connection: Connection, question: UsageQuestion, at_s: float) -> Sums:
    """What attempts that are not over have come to, by the time up to which the history goes."""
    query = select(schema.live).where(has_attempt(connection))
    live: Mapping[int, AccountingRow] = {
        id_: _decode(row) for id_, row in connection.execute(query)
    }
    holding = {id_: use for id_, row in live.items() if (use := live_uses(row, at_s)) is not None}
    ended = uses_of(connection, holding)
    window = (question.first_day * DAY_MS, question.end_day * DAY_MS)
    before: Sums = {}
    after: Sums = {}
    for id_, use in holding.items():
        add_up(before, ended.get(id_, ()), *window)
        add_up(after, [*ended.get(id_, ()), use], *window)
    return difference(after, before)


def has_attempt(connection: Connection) -> ColumnElement[bool]:
    """Leaves out, where the rows lie, most of what waits: a packed row names only what it has."""
    row, name = schema.live.c.row, literal(msgspec.msgpack.encode("last"), LargeBinary)
    if connection.dialect.name == "postgresql":
        return func.position(name.op("IN")(row)) > 0
    return func.instr(row, name) > 0


def _supply(
    connection: Connection, question: UsageQuestion, start_ms: int, end_ms: int
) -> dict[CellKey, Supplied]:
    sites = sorted(map(word, question.sites))
    rows = supply.within(connection, start_ms / 1000, end_ms / 1000, sites)
    return supplied(rows, start_ms, end_ms)


def _uncounted(connection: Connection) -> int:
    query = select(func.count()).where(schema.attempts.c.counted == 0)
    return int(connection.execute(query).scalar_one())


def _in_time(question: UsageQuestion) -> list[ColumnElement[bool]]:
    return [_U.day >= question.first_day, _U.day < question.end_day]


def _at_sites(question: UsageQuestion) -> list[ColumnElement[bool]]:
    return [_U.site.in_(sorted(map(word, question.sites)))] if question.sites else []


def _wanted(question: UsageQuestion) -> list[ColumnElement[bool]]:
    found = [*_in_time(question), *_at_sites(question)]
    if question.tenants:
        found.append(_U.tenant.in_(sorted(map(word, question.tenants))))
    if question.users:
        found.append(_U.user.in_(sorted(map(word, question.users))))
    if question.viewer is not None:
        viewer = question.viewer
        tenants = sorted(map(word, viewer.tenants))
        found.append(or_(_U.user == word(viewer.user), _U.tenant.in_(tenants)))
    return found


def _is_wanted(of: Key, question: UsageQuestion) -> bool:
    if question.viewer is not None and not question.viewer.sees(of.user, of.tenant):
        return False
    named = (
        (of.tenant, question.tenants),
        (of.user, question.users),
        (of.site, question.sites),
    )
    return all(not names or name in map(word, names) for name, names in named)


def question_of(
    call: UsageCall, viewer: Viewer | None, prices: PriceList | None = None
) -> UsageQuestion:
    """The question that a call asks.

    Args:
        call: as it came.
        viewer: who asks; None: one who sees all.
        prices: by which the sums are to be priced.

    Raises:
        InvalidRequest: its end is before its start, or it asks by what there is not.
    """
    first = int(min(max(call.start_s, 0.0), 1e11) * 1000) // DAY_MS
    end = -(-int(min(max(call.end_s, 0.0), 1e11) * 1000) // DAY_MS)
    if call.end_s < call.start_s:
        raise InvalidRequest("Start time requested is after end time")
    unknown = [name for name in call.by if name not in BY.values()]
    if unknown:
        raise InvalidRequest(f"unknown column {unknown[0][:40]!r}")
    end = max(end, first + 1)
    periods = prices.periods(first, end) if prices is not None else ()
    return UsageQuestion(
        first_day=first,
        end_day=end,
        columns=with_prices(call.by, dated=bool(periods)),
        periods=() if "day" in call.by else periods,
        tenants=call.tenants,
        users=call.users,
        sites=call.sites,
        viewer=viewer,
    )
