"""The words of reports, and the figures that follow from their sums."""

from __future__ import annotations

import pytest

from federator.usage import classes, rows
from federator.usage.rows import UsageRow, columns_of


def test_the_names_of_the_light_module_are_those_of_the_classes() -> None:
    assert tuple(each.value for each in classes.HELD) == rows.HELD_NAMES
    assert tuple(each.value for each in classes.FREE) == rows.FREE_NAMES
    assert len({*classes.HELD, *classes.FREE}) == len(classes.TimeClass)


def test_words_of_by_name_columns_once() -> None:
    assert columns_of(["account", "gpu-type", "tenant"]) == ("tenant", "gpu_type")
    with pytest.raises(ValueError, match="'colour' is none of tenant, account"):
        columns_of(["colour"])


def test_the_three_utilisations() -> None:
    """Allocated of the supply; compute and productive of what is known of."""
    sums = {
        "unknown_gpu_ms": 500,
        "productive_gpu_ms": 300,
        "restore_gpu_ms": 100,
        "watched_gpu_ms": 400,
        "busy_gpu_ms": 100,
    }
    row = UsageRow(sums=sums, supply_gpu_ms=1800)
    assert (row.allocated_frac, row.compute_frac, row.productive_frac) == (0.5, 0.25, 0.75)
    empty = UsageRow()
    assert (empty.allocated_frac, empty.compute_frac, empty.productive_frac) == (None, None, None)
