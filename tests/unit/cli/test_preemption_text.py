"""Evictions are put into words that say what they cost, and only what is true."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from federator.cli import explain
from federator.cli.preemption_text import gpu_time, preemption_lines
from federator.cli.queue_table import render
from federator.wire.client_protocol import QueueRow
from federator.wire.queue_rows import PreemptionRow

WINNER = 2**32 + 7


def said(now_s: float = 100.0, **fields: Any) -> dict[str, str]:
    return dict(preemption_lines(PreemptionRow(**fields), now_s))


def test_where_nothing_was_evicted_nothing_is_said() -> None:
    assert said() == {}
    assert list(preemption_lines(None, 0.0)) == []


def test_who_must_leave_is_told_for_whom_and_how_long_it_has() -> None:
    words = said(preemptions=1, evicted_for=WINNER, leave_by_s=190.0)
    assert words == {
        "Leaving": f"for {WINNER}; killed in 1 min 30 s unless it has left before",
        "Evicted": f"1 time, for {WINNER}; lost 0 GPU-s so far",
    }
    assert said(190.5, evicted_for=WINNER, leave_by_s=190.0)["Leaving"].endswith(
        "its grace is over"
    )


def test_a_copy_that_is_made_ahead_stands_beside_where_it_saved() -> None:
    copied = "a copy is at cedar"
    assert said(copied_ahead=copied) == {"Checkpoint": copied}
    assert said(copied_ahead=copied, saved_at="alpine") == {
        "Checkpoint": f"saved at alpine; {copied}"
    }


def test_who_must_leave_at_its_own_time_limit_is_told_so() -> None:
    words = said(leave_by_s=110.0, at_limit=True)
    assert words == {"Leaving": "at its time limit; killed in 10 s unless it has left before"}


def test_a_victim_is_told_how_often_it_went_what_it_lost_and_where_its_checkpoint_is() -> None:
    words = said(preemptions=3, evicted_for=WINNER, lost_gpu_s=72.0, saved_at="cedar")
    assert words == {
        "Evicted": f"3 times, last for {WINNER}; lost 72 GPU-s so far",
        "Checkpoint": "saved at cedar",
    }


def test_a_winner_is_told_whom_it_displaces_and_what_that_destroyed() -> None:
    assert said(victims=(11, 12), evictions=2, destroyed_gpu_s=7200.0) == {
        "Victims": "11, 12",
        "Made leave": "2 workloads, which lost 2.0 GPU-h in all",
    }
    assert said(victims=tuple(range(10)))["Victims"] == "0, 1, 2, 3, 4 and 5 more"


@pytest.mark.parametrize(
    ("seen", "p95_s", "words"),
    [
        (1, 7.2, "at most 8 s, odd ones apart, by 1 save of jobs of this name"),
        (40, inf, "longer than the grace, by 40 saves of jobs of this name"),
    ],
)
def test_how_long_its_kind_saves_is_told_and_never_as_less(
    seen: int, p95_s: float, words: str
) -> None:
    assert said(saves_seen=seen, save_p95_s=p95_s) == {"Save time": words}


@pytest.mark.parametrize(
    ("gpu_s", "text"),
    [(0.0, "0 GPU-s"), (3599.0, "3599 GPU-s"), (3600.0, "1.0 GPU-h"), (9e6, "2,500.0 GPU-h")],
)
def test_gpu_time_is_in_seconds_up_to_an_hour(gpu_s: float, text: str) -> None:
    assert gpu_time(gpu_s) == text


def test_fsqueue_why_and_explain_say_it_of_whatever_runs() -> None:
    row = QueueRow(
        id=2**32,
        name="n",
        user="u",
        tenant="bio",
        priority=7,
        state="PREEMPTING",
        attempt=1,
        submitted_at_s=0.0,
        preemption=PreemptionRow(preemptions=1, evicted_for=WINNER, leave_by_s=130.0),
    )
    queue = render([row], 100.0, header=False, why=True).splitlines()
    leaving = f"for {WINNER}; killed in 30 s unless it has left before"
    assert queue[1].strip() == f"leaving: {leaving}"
    assert leaving in explain.render(row, 100.0)
    assert len(render([row], 100.0, header=False, why=False).splitlines()) == 1


def test_a_gang_is_told_what_moves_for_it_and_a_mover_where_it_goes_on() -> None:
    words = said(moves=3, moved_gpus=12, waits_s=7200.0, moves_lose_gpu_s=1860.0)
    assert words == {
        "Moves": "starts when 3 jobs of 12 GPUs have moved; saves about 2 h of waiting for "
        "1860 GPU-s of lost work"
    }
    assert said(goes_on_at="gpu3")["Goes on"] == "at node gpu3, which is held for it"


def test_what_one_does_not_see_is_not_named() -> None:
    words = said(preemptions=1, evicted_for_hidden=True, leave_by_s=190.0)
    assert words["Leaving"].startswith("for another job; killed in ")
    assert "for another job" in words["Evicted"]
    assert said(victims=(11,), victims_hidden=2)["Victims"] == "11 and 2 others"
    assert said(victims_hidden=1)["Victims"] == "1 other"
