"""A rank is put into words that are true, short and right in number."""

from __future__ import annotations

from typing import Any

import pytest

from federator.cli.rank_text import (
    counted,
    credit_text,
    duration,
    ordinal,
    position_text,
    priority_text,
    rank_text,
    standing_text,
)
from federator.wire.queue_rows import QueueRank, ShortfallRow


def rank(**changes: Any) -> QueueRank:
    base: dict[str, Any] = {
        "policy": "mast",
        "ranked_at_s": 0.0,
        "position": 17,
        "of": 4012,
        "priority": 2,
        "tenant_priority": 2,
        "within_quota": True,
    }
    return QueueRank(**{**base, **changes})


def over(**numbers: Any) -> QueueRank:
    base: dict[str, Any] = {
        "tenant": "vision",
        "unit": "GPUs",
        "held": 60,
        "promised": 0,
        "asked": 8,
        "quota": 64,
    }
    short = ShortfallRow(**{**base, **numbers})
    return rank(priority=7, within_quota=False, shortfall=short)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (111, "111th"),
        (122, "122nd"),
        (1013, "1,013th"),
        (100_003, "100,003rd"),
    ],
)
def test_a_place_is_an_ordinal_number(number: int, text: str) -> None:
    assert ordinal(number) == text


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (1, "GPUs", "1 GPU"),
        (0, "GPUs", "0 GPUs"),
        (2, "h100 GPUs", "2 h100 GPUs"),
        (1, "h100 GPUs", "1 h100 GPU"),
        (1024, "CPUs", "1,024 CPUs"),
        (1, "nodes", "1 node"),
    ],
)
def test_a_unit_agrees_with_its_number(number: int, unit: str, text: str) -> None:
    assert counted(number, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (45, "45 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (25_920, "7 h 12 min"),
        (3605, "1 h"),
        (86_400, "1 d"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_position_is_told_with_how_many_wait() -> None:
    assert position_text(rank()) == "17th of 4,012"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (rank(), "priority 2, tenant vision's"),
        (
            rank(priority=5, asked_priority=5),
            "priority 5: within quota, its user asked for priority 5 at most "
            "(tenant vision's is 2)",
        ),
        (
            over(),
            "priority 7: over quota: vision holds 60 of 64 GPUs, this one asks for 8",
        ),
        (
            over(held=0, asked=72),
            "priority 7: over quota: it asks for 72 GPUs, more than the whole quota of vision, "
            "64 GPUs",
        ),
        (
            over(tenant="research", unit="h100 GPUs", held=0, promised=1, asked=1, quota=1),
            "priority 7: over quota: research holds 0 of 1 h100 GPU, 1 promised to "
            "others, this one asks for 1",
        ),
        (
            over(unit="CPUs", held=1100, asked=0, quota=1024),
            "priority 7: over quota: vision holds 1,100 of 1,024 CPUs",
        ),
        (
            rank(priority=7, within_quota=False, shortfall=ShortfallRow()),
            "priority 7: tenant vision has no quota",
        ),
        (rank(priority=7, within_quota=False), "priority 7: over quota"),
        (
            rank(policy="fifo", by_quota=False, priority=3, within_quota=False),
            "priority 3; fifo orders by priority, then submission",
        ),
        (rank(policy="later", by_quota=False, priority=3, within_quota=False), "priority 3"),
    ],
)
def test_a_priority_is_told_with_its_reason(asked: QueueRank, text: str) -> None:
    assert priority_text(asked, "vision") == text


def test_a_credit_is_told_with_its_terms() -> None:
    shown = rank(
        credit=31.2,
        age_term=7.2,
        fair_share_term=24.0,
        waited_s=25_920.0,
        per_hour_waited=1.0,
        age_cap_h=168.0,
    )
    assert credit_text(shown, "vision") == (
        "credit 31.20 = 7.20 for 7 h 12 min of waiting (1 an hour, at most 168 h) "
        "+ 24.00 fair share (vision used 0.0 % of all) - 0.00 nice"
    )


def test_the_terms_of_a_credit_add_up_as_they_are_shown() -> None:
    shown = rank(
        credit=9.508,
        age_term=0.004,
        fair_share_term=10.004,
        nice_term=0.5,
        waited_s=14.4,
        per_hour_waited=0.5,
        age_cap_h=1000.0,
        usage_share_frac=0.58316,
    )
    assert credit_text(shown, "nlp") == (
        "credit 9.50 = 0.00 for 14 s of waiting (0.5 an hour, at most 1000 h) "
        "+ 10.00 fair share (nlp used 58.3 % of all) - 0.50 nice"
    )


def test_the_price_of_not_being_evicted_is_told_where_it_is_paid() -> None:
    shown = rank(credit=22.0, fair_share_term=24.0, non_preemptible_term=2.0)
    text = credit_text(shown, "vision")
    assert text.startswith("credit 22.00 = ")
    assert text.endswith("- 0.00 nice - 2.00 for not being evicted")


def test_all_of_a_rank_is_one_line() -> None:
    text = rank_text(rank(), "vision")
    assert text.startswith("17th of 4,012; priority 2, tenant vision's; credit 0.00 = ")


def test_first_come_first_served_has_no_credit_to_tell_of() -> None:
    fifo = rank(policy="fifo", by_quota=False, position=1, of=1, priority=3, within_quota=False)
    assert rank_text(fifo, "vision") == (
        "1st of 1; priority 3; fifo orders by priority, then submission"
    )


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (
            {"within_quota": True, "awarded_priority": 2, "awarded_within_quota": True},
            "awarded at priority 2, within quota, with credit 31.20; still so",
        ),
        (
            {"within_quota": True, "awarded_priority": 7},
            "awarded at priority 7, over quota, with credit 31.20; now priority 2, within quota",
        ),
        (
            {"within_quota": False, "priority": 7},
            "now priority 7, over quota; awarded by an older release, which kept no standing",
        ),
        (
            {"within_quota": False, "priority": 7, "awarded_priority": 7, "away": True},
            "a guest, at priority 7: this site is not its tenant's home",
        ),
        ({"policy": "fifo", "by_quota": False, "awarded_priority": 3}, "awarded at priority 3"),
    ],
)
def test_a_standing_is_told_as_it_was_and_as_it_is(now: dict[str, Any], text: str) -> None:
    assert standing_text(rank(position=0, of=0, credit=31.2, **now)) == text
