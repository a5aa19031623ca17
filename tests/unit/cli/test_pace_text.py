"""How fast a job is, in words."""

from __future__ import annotations

import pytest
from msgspec import structs

from federator.cli.pace_text import pace_text
from federator.wire.queue_rows import PaceRow

SLOW = PaceRow(speed="slow", factor=1.34, others=5, gain_s=7200.0, cost_s=660.0)
HEAD = "take 1.34 times as long as in 5 runs of its kind elsewhere"


@pytest.mark.parametrize(
    ("stays", "cost_s", "ends"),
    [
        ("", 660.0, "a move costs 11 min, so it moves"),
        ("", 7200.0, "a move costs 2.0 h, so it stays"),
        (
            "it is to leave anyhow",
            660.0,
            "a move costs 11 min; it stays, for it is to leave anyhow",
        ),
    ],
)
def test_a_slow_job_is_told_with_what_it_loses_and_why_it_stays(
    stays: str, cost_s: float, ends: str
) -> None:
    row = structs.replace(SLOW, cost_s=cost_s, stays=stays)
    assert pace_text(row) == f"{HEAD}; would lose 2.0 h by its nodes until its end; {ends}"


def test_of_another_job_its_speed_alone_is_told() -> None:
    assert pace_text(PaceRow(speed="normal", factor=1.0, others=3)) == (
        "take 1.00 times as long as in 3 runs of its kind elsewhere"
    )
