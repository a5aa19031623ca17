"""The table of an attempt's states: what it promises whatever the order of events."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from federator.agent.attempt_table import (
    ATTEMPT_TRANSITIONS,
    HAS_JOB,
    OUTCOMES,
    SEARCHED,
    SHOWN,
    Act,
    AttemptEvent,
    AttemptState,
)

BEGINS = (AttemptState.UNKNOWN, AttemptState.INTENT, AttemptState.SUBMITTED, AttemptState.VOID)


def reachable(
    starts: Iterable[AttemptState], without: AttemptState | None = None
) -> set[AttemptState]:
    """The states that some events lead to, on ways that avoid one."""
    found, left = set(starts), list(starts)
    while left:
        state = left.pop()
        for (at, _), edge in ATTEMPT_TRANSITIONS.items():
            if at is state and edge.to not in found and edge.to is not without:
                found.add(edge.to)
                left.append(edge.to)
    return found


def test_every_state_is_reached_from_what_an_agent_begins_with() -> None:
    assert reachable(BEGINS) == set(AttemptState)


def test_every_act_is_some_rows() -> None:
    assert {act for edge in ATTEMPT_TRANSITIONS.values() for act in edge.acts} == set(Act)


def test_every_event_has_rows() -> None:
    assert {event for _, event in ATTEMPT_TRANSITIONS} == set(AttemptEvent)


@pytest.mark.parametrize("state", AttemptState)
def test_a_sweep_may_show_an_attempt_in_every_state(state: AttemptState) -> None:
    assert all((state, event) in ATTEMPT_TRANSITIONS for event in SHOWN)


def test_sbatch_is_called_from_one_state_alone_which_no_attempt_comes_back_to() -> None:
    rows = [key for key, edge in ATTEMPT_TRANSITIONS.items() if Act.SUBMIT in edge.acts]
    assert rows == [(AttemptState.LEASING, AttemptEvent.LEASED)]
    after = reachable([AttemptState.SUBMITTING], without=AttemptState.UNKNOWN)
    assert AttemptState.LEASING not in after


def test_what_has_a_job_is_never_given_up() -> None:
    assert AttemptState.VOID not in reachable(HAS_JOB, without=AttemptState.UNKNOWN)


def test_what_is_given_up_is_never_submitted_and_has_a_job_only_to_evict_it() -> None:
    after = reachable([AttemptState.VOID], without=AttemptState.EVICTING)
    assert after == {AttemptState.VOID, AttemptState.GIVING_UP}
    assert AttemptState.LEASING not in reachable([AttemptState.VOID])


@pytest.mark.parametrize("state", SEARCHED)
def test_a_search_ends_in_a_job_at_any_time_and_void_only_without_a_lease(
    state: AttemptState,
) -> None:
    assert all(ATTEMPT_TRANSITIONS[state, event].to in HAS_JOB for event in SHOWN)
    given_up = {key for key, edge in ATTEMPT_TRANSITIONS.items() if Act.GIVE_UP in edge.acts}
    late = (AttemptState.ACCOUNTING, AttemptState.CONFIRMING)  # after WITHDRAWING
    assert all(at in late for at, _ in given_up if at in SEARCHED)


@pytest.mark.parametrize("state", OUTCOMES)
def test_whoever_asks_is_answered_once_the_outcome_is_known(state: AttemptState) -> None:
    assert ATTEMPT_TRANSITIONS[state, AttemptEvent.SETTLE].acts == (Act.ANSWER,)
