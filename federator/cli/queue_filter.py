"""Rows that options of squeue and scancel leave, by what the rows say."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from federator.cli.flags import Given
from federator.cli.queue_columns import Shown, elapsed_s
from federator.cli.text import listed, me_by
from federator.errors import InvalidRequest
from federator.wire.client_protocol import QueueRow

_Test = Callable[[QueueRow], bool]
_TIME: Final = re.compile(
    r"(?:([0-9]{1,6})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?", re.ASCII
)


def filtered(
    rows: Sequence[QueueRow],
    now_s: float,
    given: Given,
    nodes: Collection[str] | None,
    caller: str = "",
) -> Iterator[QueueRow]:
    """The rows that an fsqueue command line asks for.

    Args:
        rows: of the answer.
        now_s: the daemon's clock.
        given: the command line.
        nodes: ``--nodelist``; None: it was not given.
        caller: of the answer.

    Raises:
        InvalidRequest: a time is none.
    """
    tests = list(_tests(given, nodes, now_s, me_by(caller)))
    return (row for row in rows if all(test(row) for test in tests))


def check(given: Given) -> None:
    """Raise ``InvalidRequest`` where a time is none, before anything is asked."""
    for name in ("running-over", "running-under"):
        if (text := given.get(name)) is not None:
            _seconds(text)


def _tests(given: Given, nodes: Collection[str] | None, now_s: float, me: str) -> Iterator[_Test]:
    names = {name.lower() for name in listed(given.get("name"))}
    accounts = {name.lower() for name in listed(given.get("accounts"))}
    qos = {name.lower() for name in listed(given.get("qos"))}
    partitions = set(listed(given.get("partitions")))
    if names:
        yield lambda row: row.name.lower() in names
    if accounts:
        yield lambda row: row.tenant.lower() in accounts
    if qos:
        yield lambda row: option_of(row, "qos").lower() in qos
    if partitions:
        yield lambda row: not partitions.isdisjoint(partitions_of(row))
    if nodes is not None:
        yield lambda row: not set(nodes).isdisjoint(row.node_names)
    reservations, licenses = given.get("reservation"), given.get("licenses")
    if reservations is not None:
        yield lambda row: asks_for(row, "reservation", reservations)
    if licenses is not None:
        yield lambda row: asks_for(row, "licenses", licenses)
    if "notme" in given:
        yield lambda row: row.user != me
    yield from _by_time(given, now_s)


def asks_for(row: QueueRow, option: str, names: str) -> bool:
    """Whether a job asks for one of these, of whatever site and however many."""
    words = {word for part in listed(option_of(row, option)) for word in re.split("[:=]", part)}
    return not words.isdisjoint(listed(names))


def _by_time(given: Given, now_s: float) -> Iterator[_Test]:
    over, under = given.get("running-over"), given.get("running-under")
    for text, is_over in ((over, True), (under, False)):
        if text is None:
            continue
        limit_s = _seconds(text)

        def runs(row: QueueRow, limit_s: float = limit_s, is_over: bool = is_over) -> bool:
            passed = elapsed_s(Shown(row, now_s)) >= limit_s
            return row.state == "RUNNING" and passed is is_over

        yield runs


def _seconds(text: str) -> float:
    """Read minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS.

    Raises:
        InvalidRequest: it is none of these.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"Invalid time limit specification: {text!r}")
    days, parts = match[1], [int(part) for part in match.groups()[1:] if part is not None]
    scale = (3600, 60, 1) if days is not None or len(parts) == 3 else (60, 1)
    return int(days or 0) * 86_400.0 + sum(n * s for n, s in zip(parts, scale, strict=False))


def option_of(row: QueueRow, name: str) -> str:
    """An sbatch option of a row with details; "": it was not given."""
    return row.details.options.get(name, "") if row.details is not None else ""


def partitions_of(row: QueueRow) -> tuple[str, ...]:
    """The partitions of a row with details."""
    return row.details.partitions if row.details is not None else ()
