"""Times that users give: every form that Slurm's commands take, in the local time zone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from federator.cli.slurm_time import midnight, parsed_time
from federator.errors import InvalidRequest


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


NOON = "2026-11-23 12:00:00"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", NOON),
        ("NOW-1days", "2026-11-22 12:00:00"),
        ("now-2hours", "2026-11-23 10:00:00"),
        ("now-90", "2026-11-23 11:58:30"),
        ("now-1w", "2026-11-16 12:00:00"),
        ("now + 5 minutes", "2026-11-23 12:05:00"),
        ("today", "2026-11-23 00:00:00"),
        ("tomorrow", "2026-11-24 00:00:00"),
        ("midnight", "2026-11-23 00:00:00"),
        ("noon", NOON),
        ("teatime", "2026-11-23 16:00:00"),
        ("13:05", "2026-11-23 13:05:00"),
        ("1:05:09pm", "2026-11-23 13:05:09"),
        ("12:00AM", "2026-11-23 00:00:00"),
        ("1101", "2026-11-01 00:00:00"),
        ("110125", "2025-11-01 00:00:00"),
        ("11/01", "2026-11-01 00:00:00"),
        ("11/01/25-10:30", "2025-11-01 10:30:00"),
        ("11.01.2025", "2025-11-01 00:00:00"),
        ("2026-11-01", "2026-11-01 00:00:00"),
        ("2026-11-01T08:09", "2026-11-01 08:09:00"),
        ("2026-11-01T08:09:10", "2026-11-01 08:09:10"),
        ("1970-01-02-00:00:01", "1970-01-02 00:00:01"),
        ("2026-07-01T12:00:00", "2026-07-01 12:00:00"),  # in summer time
        ("2026-03-29T02:30:00", "2026-03-29 03:30:00"),  # there was no such hour
    ],
)
def test_a_time_is_read_as_slurm_reads_it(text: str, meant: str) -> None:
    assert parsed_time(text, at(NOON)) == at(meant)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("11:00", "2026-10-25 11:00:00"),
        ("13:00", "2026-10-24 13:00:00"),
        ("midnight", "2026-10-25 00:00:00"),
        ("teatime", "2026-10-24 16:00:00"),
        ("10/23", "2027-10-23 00:00:00"),
        ("10/25-08:00", "2026-10-25 08:00:00"),
        ("2026-10-23", "2026-10-23 00:00:00"),
        ("now+1hour", "2026-10-24 13:00:00"),
    ],
)
def test_a_time_to_come_is_the_next_one(text: str, meant: str) -> None:
    assert parsed_time(text, at("2026-10-24 12:00:00"), to_come=True) == at(meant)


def test_unix_time_may_be_given() -> None:
    assert parsed_time("uts1760000000", 0.0) == 1_760_000_000.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "never",
        "now-",
        "now-1fortnight",
        "25:00",
        "12:60",
        "13:00pm",
        "0:30am",
        "2026-02-30",
        "2026-13-01",
        "2026-11-01T24:00",
        "99/99",
        "uts",
        "1\0",
        "now-9999999999days",
        "\u0967\u0968:00",
    ],
)
def test_what_is_no_time_is_refused_in_slurm_s_words(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Invalid time specification \(pos=0\): "):
        parsed_time(text, at(NOON))


def test_a_day_begins_at_midnight_also_when_the_clocks_change() -> None:
    assert midnight(at("2026-10-25 23:00:00")) == at("2026-10-25 00:00:00")
