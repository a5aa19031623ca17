"""Promises over the lifecycle table and the ids that travel with it."""

from __future__ import annotations

import pytest

from federator.model.lifecycle import (
    AT_SITE,
    TERMINAL,
    TRANSITIONS,
    Effect,
    InvalidTransition,
    WorkloadEvent,
    WorkloadState,
    step,
)

LIVE = [s for s in WorkloadState if s not in TERMINAL]


def reachable_from(start: WorkloadState) -> set[WorkloadState]:
    found, frontier = {start}, [start]
    while frontier:
        state = frontier.pop()
        for (here, _), edge in TRANSITIONS.items():
            if here is state and edge.to not in found:
                found.add(edge.to)
                frontier.append(edge.to)
    return found


@pytest.mark.parametrize("state", LIVE)
def test_any_live_workload_can_be_cancelled(state: WorkloadState) -> None:
    if state is WorkloadState.CANCELLING:
        return  # it is being cancelled
    edge = step(state, WorkloadEvent.CANCEL_ASKED)
    assert WorkloadState.CANCELLED in reachable_from(edge.to)


@pytest.mark.parametrize("state", [s for s in WorkloadState if s in AT_SITE])
def test_cancelling_what_a_site_may_hold_tells_the_site(state: WorkloadState) -> None:
    if state is not WorkloadState.CANCELLING:
        assert Effect.CANCEL in step(state, WorkloadEvent.CANCEL_ASKED).effects


def test_every_state_is_reachable() -> None:
    assert reachable_from(WorkloadState.PENDING) == set(WorkloadState)


@pytest.mark.parametrize("state", LIVE)
def test_every_live_state_can_come_to_an_end(state: WorkloadState) -> None:
    assert reachable_from(state) & TERMINAL


@pytest.mark.parametrize("happening", list(WorkloadEvent))
def test_every_happening_is_legal_somewhere(happening: WorkloadEvent) -> None:
    assert any(h is happening for _, h in TRANSITIONS)


def test_the_ends_are_slurms_ends() -> None:
    assert {s.value for s in TERMINAL} == {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}


def test_only_an_award_sends_a_workload_to_a_site() -> None:
    for (state, happening), edge in TRANSITIONS.items():
        if state not in AT_SITE and edge.to in AT_SITE:
            assert happening is WorkloadEvent.AWARDED
            assert Effect.LAUNCH in edge.effects


def test_whoever_leaves_a_site_makes_a_pass_due() -> None:
    for (state, happening), edge in TRANSITIONS.items():
        if state in AT_SITE and edge.to not in AT_SITE:
            assert Effect.RANK_AGAIN in edge.effects, (state, happening)


@pytest.mark.parametrize("state", list(WorkloadState))
def test_a_site_that_lost_a_launched_workload_ends_it(state: WorkloadState) -> None:
    told_to_leave = state is WorkloadState.PREEMPTING  # so it comes back to the queue
    unknown_yet = state is WorkloadState.AWARDED  # ask the site
    if state in AT_SITE and not told_to_leave and not unknown_yet:
        assert step(state, WorkloadEvent.LOST).to in TERMINAL


def test_an_unlisted_transition_names_state_happening_and_what_is_legal() -> None:
    with pytest.raises(InvalidTransition, match=r"'started' is not legal in PENDING.*'awarded'"):
        step(WorkloadState.PENDING, WorkloadEvent.STARTED)


@pytest.mark.parametrize("state", [s for s in WorkloadState if s in TERMINAL])
@pytest.mark.parametrize("happening", list(WorkloadEvent))
def test_nothing_happens_after_the_end(state: WorkloadState, happening: WorkloadEvent) -> None:
    with pytest.raises(InvalidTransition):
        step(state, happening)
