"""Lending in words: from whom until when, or why not."""

from __future__ import annotations

import time

import pytest

from federator.cli.lending_text import decision_text, lending_lines
from federator.model.lending import LendingDecision, LoadForecast
from federator.model.reason import Reason, ReasonCode
from federator.wire.status_rows import LendingRow

UNTIL_S = 1_795_010_700.0


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


LENT = LendingDecision(
    owners={"vision": 8, "": 2},
    until_s=UNTIL_S,
    window_s=3600.0,
    planned_at_s=UNTIL_S - 3600,
)


def test_a_decision_names_the_lenders_the_end_and_the_plan() -> None:
    assert decision_text(LENT) == (
        "8 GPUs lent from vision, 2 GPUs of no quota until 14:05, predicted free for 60 min "
        "(plan of 13:05)"
    )


def test_advice_says_that_nothing_follows_or_why_it_would_have_been_held() -> None:
    advised = LendingDecision(owners={"vision": 8}, until_s=UNTIL_S, window_s=300.0, advisory=True)
    assert decision_text(advised).endswith("free for 5 min; by advice, nothing follows from it")
    kept = Reason(code=ReasonCode.KEPT, needed=8, free=2, unit="GPUs", more_in_s=43_200.0)
    held = LendingDecision(held=kept, advisory=True)
    assert decision_text(held) == (
        "would have been held: needs 8 GPUs that nobody gives back before it ends; owners are "
        "expected to leave 2 free for 12.0 h"
    )


def test_the_state_is_one_line_and_one_for_each_forecast_that_is_off() -> None:
    assert list(lending_lines(LendingRow(mode="off"), 0.0)) == ["off"]
    assert list(lending_lines(LendingRow(mode="on"), 0.0)) == [
        "on; no plan has come: nothing that cannot be evicted is lent"
    ]
    (expired,) = lending_lines(LendingRow(mode="advisory", expires_at_s=5.0), 9.0)
    assert expired.startswith("advisory; the last plan has expired: ")
    row = LendingRow(
        mode="on",
        made_at_s=UNTIL_S - 300,
        expires_at_s=UNTIL_S + 600,
        windows_s=(300.0, 3600.0),
        usable_gpus=(24, -3),
        forecasts=(
            LoadForecast(tenant="nlp", new_gpus=(0, 0)),
            LoadForecast(
                tenant="vision",
                gpu_type="h100",
                new_gpus=(0, 8),
                off=(False, True),
                kept=(20, 12),
                promises=(20, 20),
            ),
        ),
    )
    assert list(lending_lines(row, UNTIL_S)) == [
        "on; plan of 14:00, 10 min left; GPUs to lend now: 24 for 5 min, 0 for 60 min",
        "  vision (h100) lends nothing for 60 min: 12 of its last 20 forecasts held",
    ]
