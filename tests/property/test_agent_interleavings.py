"""At most one incarnation: every order of a few happenings, with deaths between any two effects.

A happening is an order, the end of something under way (done, failed, done unheard, late), a death
after so many effects, a step of the job, or time that passes. After each order of happenings
nothing bad happens any more, and every promise must hold.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import pytest

from federator.agent import attempt_table, steps
from federator.agent.attempt_table import Act, AttemptEdge, AttemptEvent, AttemptState
from federator.agent.effects import AgentEffect, WriteMark
from federator.agent.journal import JournalStep
from tests.fakes.one_attempt import OneAttempt

HAPPENINGS: Final = int(os.environ.get("FEDERATOR_INTERLEAVINGS", "4"))
LAUNCHED: Final = ("launch", "OpenLease: done")


def played(happenings: Sequence[str], *, accounts: bool) -> OneAttempt:
    """The site after these."""
    world = OneAttempt(accounts=accounts)
    world.first_sweep()
    for name in happenings:
        world.options()[name]()
    return world


def broken_by(
    count: int, start: Sequence[str] = (), *, accounts: bool = True, most: int = 10**9
) -> tuple[int, list[str]]:
    """How many states so many happenings lead to, and those orders that break a promise.

    Orders that lead to a state that was seen are not followed further. It ends at ``most`` breaks.
    """
    seen: set[bytes] = set()
    settled: dict[bytes, float] = {}
    broken: list[str] = []
    level: list[tuple[str, ...]] = [tuple(start)]
    for _ in range(count):
        following: list[tuple[str, ...]] = []
        for path in level:
            for name in played(path, accounts=accounts).options():
                world = played((*path, name), accounts=accounts)
                state = world.fingerprint()
                if state in seen:
                    continue
                seen.add(state)
                following.append((*path, name))
                world.settle_down(settled=settled)
                if world.broken:
                    broken.append(f"{world.broken}: {', '.join((*path, name))}")
                    if len(broken) >= most:
                        return len(seen), broken
        level = following
    return len(seen), broken


@pytest.mark.parametrize("start", [(), LAUNCHED], ids=["from nothing", "from sbatch on"])
@pytest.mark.parametrize("accounts", [True, False], ids=["slurmdbd", "no slurmdbd"])
def test_no_order_of_happenings_breaks_a_promise(start: tuple[str, ...], accounts: bool) -> None:
    states, broken = broken_by(HAPPENINGS, start, accounts=accounts)
    assert not broken
    assert states > 500


# ---- it would be noticed ----


def _without_looking(patch: pytest.MonkeyPatch) -> None:
    """An sbatch without an answer counts as one that made no job."""
    _row(
        patch, AttemptState.SUBMITTING, AttemptEvent.UNANSWERED, AttemptState.GIVING_UP, Act.GIVE_UP
    )


def _with_its_lease(patch: pytest.MonkeyPatch) -> None:
    """It is given up while an sbatch that is still on its way can start it."""
    _row(patch, AttemptState.SUBMITTING, AttemptEvent.UNANSWERED, AttemptState.VOID, Act.ANSWER)


def _without_asking_hooks(patch: pytest.MonkeyPatch) -> None:
    _row(
        patch, AttemptState.ASKING_HOOKS, AttemptEvent.BOUND, AttemptState.WITHDRAWING, Act.WITHDRAW
    )


def _without_an_intent(patch: pytest.MonkeyPatch) -> None:
    """Sbatch is called before anything on the disk says so."""

    def carry_out(self: OneAttempt, effect: AgentEffect) -> None:
        if isinstance(effect, WriteMark) and effect.mark.step is JournalStep.INTENT:
            self.durable = effect.number
        else:
            real(self, effect)

    real = OneAttempt._carry_out
    patch.setattr(OneAttempt, "_carry_out", carry_out)


def _row(
    patch: pytest.MonkeyPatch,
    state: AttemptState,
    event: AttemptEvent,
    to: AttemptState,
    act: Act,
) -> None:
    table = {**attempt_table.ATTEMPT_TRANSITIONS, (state, event): AttemptEdge(to, (act,))}
    patch.setattr(steps, "ATTEMPT_TRANSITIONS", table)


@pytest.mark.parametrize(
    "plant", [_without_looking, _with_its_lease, _without_asking_hooks, _without_an_intent]
)
def test_a_planted_bug_breaks_a_promise(plant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)  # type: ignore[operator]
    _, broken = broken_by(5, LAUNCHED, accounts=False, most=1)
    assert broken
