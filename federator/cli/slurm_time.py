"""Reads the times that users give as Slurm's commands do: ``now-2days``, ``2026-11-01T12:00``."""

from __future__ import annotations

import re
import time
from typing import Final

from federator.cli.text import printable
from federator.errors import InvalidRequest

DAY_S: Final = 86_400
_UNITS: Final = (
    ("seconds", 1),
    ("minutes", 60),
    ("hours", 3600),
    ("days", DAY_S),
    ("weeks", 7 * DAY_S),
)
_CLOCKS: Final = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
_DAYS: Final = {"today": 0, "tomorrow": 1}
_NOW: Final = re.compile(r"now(?:\s*([+-])\s*([0-9]{1,9})\s*([a-z]*))?", re.ASCII)
_UNIX: Final = re.compile(r"uts([0-9]{1,12})", re.ASCII)
_CLOCK: Final = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?\s*(?P<half>am|pm)?"
)
_CLOCK_ALONE: Final = re.compile(_CLOCK, re.ASCII)
_DATES: Final = tuple(
    re.compile(rf"{date}(?:[t\s-]{_CLOCK})?", re.ASCII)
    for date in (
        r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})",
        r"(?P<month>[0-9]{1,2})/(?P<day>[0-9]{1,2})(?:/(?P<year>[0-9]{2}|[0-9]{4}))?",
        r"(?P<month>[0-9]{1,2})\.(?P<day>[0-9]{1,2})(?:\.(?P<year>[0-9]{2}|[0-9]{4}))?",
        r"(?P<month>[0-9]{2})(?P<day>[0-9]{2})(?P<year>[0-9]{2})?",
    )
)


def parsed_time(text: str, now_s: float, *, to_come: bool = False) -> float:
    """Read a time, in the local time zone.

    Args:
        text: ``now``, ``now-2days``, ``today``, ``noon``, ``HH:MM[:SS][AM|PM]`` (of today),
            ``MMDD[YY]``, ``MM/DD[/YY]``, ``MM.DD[.YY]`` or ``YYYY-MM-DD``, each date with a clock
            behind ``T`` or ``-`` if need be, or ``uts`` and Unix time.
        now_s: Unix time.
        to_come: a clock without its day, or a day without its year, that has passed means the next
            one, as for ``--begin``.

    Returns:
        Unix time.

    Raises:
        InvalidRequest: it is none of these.
    """
    words = text.strip().lower()
    found = _of_words(words, now_s, to_come=to_come)
    if found is None:
        found = _of_digits(words, now_s, to_come=to_come)
    if found is None:
        raise InvalidRequest(f"Invalid time specification (pos=0): {printable(text[:60])}")
    return found


def midnight(now_s: float) -> float:
    """The beginning of a time's day."""
    return _at(now_s)


def _of_words(words: str, now_s: float, *, to_come: bool) -> float | None:
    if (match := _UNIX.fullmatch(words)) is not None:
        return float(match[1])
    if words in _CLOCKS:
        at_s = _at(now_s, hour=_CLOCKS[words])
        return _at(now_s, days=1, hour=_CLOCKS[words]) if to_come and at_s < now_s else at_s
    if words in _DAYS:
        return _at(now_s, days=_DAYS[words])
    match = _NOW.fullmatch(words)
    if match is None:
        return None
    sign, count, unit = match.groups()
    if sign is None:
        return now_s
    length_s = next((s for name, s in _UNITS if name.startswith(unit)), None)
    return None if length_s is None else now_s + int(f"{sign}{count}") * length_s


def _of_digits(words: str, now_s: float, *, to_come: bool) -> float | None:
    match = _CLOCK_ALONE.fullmatch(words)
    if match is None:
        match = next((m for date in _DATES if (m := date.fullmatch(words)) is not None), None)
    if match is None:
        return None
    given = match.groupdict()
    today = time.localtime(now_s)
    year = int(given.get("year") or today.tm_year)
    date = (
        year + 2000 if year < 100 else year,
        int(given.get("month") or today.tm_mon),
        int(given.get("day") or today.tm_mday),
    )
    clock = [int(given[name] or 0) for name in ("hour", "minute", "second")]
    if given["half"] is not None:
        if not 1 <= clock[0] <= 12:
            return None
        clock[0] = clock[0] % 12 + 12 * (given["half"] == "pm")
    at_s = _checked(date, (clock[0], clock[1], clock[2]))
    if not to_come or at_s is None or at_s >= now_s or given.get("year"):
        return at_s
    next_year = (date[0] + 1, date[1], date[2])
    tomorrow = time.localtime(_at(now_s, days=1))[:3]
    return _checked(next_year if "day" in given else tomorrow, (clock[0], clock[1], clock[2]))


def _checked(date: tuple[int, int, int], clock: tuple[int, int, int]) -> float | None:
    """Unix time; None where a calendar or a clock has no such reading."""
    try:
        at_s = time.mktime((*date, *clock, 0, 0, -1))
    except (OverflowError, ValueError):
        return None
    shown = time.localtime(at_s)
    hour_is_left_out = clock[1:] == (shown.tm_min, shown.tm_sec)  # when summer time begins
    return at_s if date == shown[:3] and clock[0] < 24 and hour_is_left_out else None


def _at(now_s: float, days: int = 0, hour: int = 0) -> float:
    today = time.localtime(now_s)
    return time.mktime((today.tm_year, today.tm_mon, today.tm_mday + days, hour, 0, 0, 0, 0, -1))
