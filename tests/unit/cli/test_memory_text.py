"""Amounts of memory, as squeue and sacct of 22.05, 24.11 and 26.05 wrote them on the testbed."""

from __future__ import annotations

import pytest

from federator.cli.memory_text import memory_text


@pytest.mark.parametrize(
    ("mib", "shown"),
    [
        (0, "0"),
        (1, "1M"),
        (512, "512M"),
        (1024, "1G"),
        (1280, "1280M"),
        (1500, "1500M"),
        (1536, "1.50G"),
        (2000, "2000M"),
        (3072, "3G"),
        (64_000, "62.50G"),
        (102_400, "100G"),
        (1_048_576, "1T"),
        (1_572_864, "1.50T"),
    ],
)
def test_a_larger_unit_is_taken_where_halves_of_it_are_enough(mib: int, shown: str) -> None:
    assert memory_text(mib) == shown


@pytest.mark.parametrize(
    ("mib", "unit", "shown"),
    [(4096, "M", "4096M"), (2000, "G", "1.95G"), (4096, "G", "4G"), (1536, "K", "1572864K")],
)
def test_a_unit_that_is_asked_for_is_taken_in_any_case(mib: int, unit: str, shown: str) -> None:
    assert memory_text(mib, unit) == shown


def test_mebibytes_stay_where_nothing_is_converted() -> None:
    assert memory_text(102_400, convert=False) == memory_text(102_400, "G", convert=False)
    assert memory_text(102_400, convert=False) == "102400M"
