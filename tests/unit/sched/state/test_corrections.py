"""Corrections of promised ends."""

from __future__ import annotations

import pytest

from federator.model.workload import TenantName
from federator.sched.state.corrections import AGES_S, Corrections, age_of
from federator.sched.state.recent_runs import kinds_of

KINDS = kinds_of((TenantName("vision"), "vision1", "train"), 8)
OTHERS = kinds_of((TenantName("speech"), "speech1", "eval"), 1)


def test_nothing_is_corrected_before_a_promise_was_judged() -> None:
    assert Corrections().factor(KINDS, 0, 0) == 1.0


def test_a_broken_promise_makes_later_ones_longer_and_a_kept_one_shorter() -> None:
    corrections = Corrections()
    corrections.broke(KINDS, 0, 0)
    longer = corrections.factor(KINDS, 0, 0)
    assert longer > 1.0
    corrections.held(KINDS, 0, 0, took_back=None, counts=True)
    assert 1.0 < corrections.factor(KINDS, 0, 0) < longer


def test_a_promise_that_only_seemed_broken_leaves_nothing_behind() -> None:
    corrections = Corrections()
    step = corrections.broke(KINDS, 0, 0)
    corrections.held(KINDS, 0, 0, took_back=step, counts=False)
    assert corrections.factor(KINDS, 0, 0) == pytest.approx(1.0)


def test_all_kinds_share_a_part_of_a_correction_and_ages_share_none() -> None:
    corrections = Corrections()
    corrections.broke(KINDS, 0, 0)
    assert 1.0 < corrections.factor(OTHERS, 3, 0) < corrections.factor(KINDS, 0, 0)
    assert corrections.factor(KINDS, 0, 1) == 1.0


def test_what_was_saved_is_restored() -> None:
    corrections, restored = Corrections(), Corrections()
    corrections.broke(KINDS, 1, 2)
    restored.restore(*corrections.saved())
    assert restored.saved() == corrections.saved()
    assert restored.broke(KINDS, 1, 2) == corrections.broke(KINDS, 1, 2)


def test_an_age_is_reached_at_its_time() -> None:
    assert [age_of(at_s) for at_s in AGES_S] == list(range(len(AGES_S)))
    assert age_of(AGES_S[1] - 1) == 0
