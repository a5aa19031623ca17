"""Recorded stories of one attempt: the same observations give the same effects, byte for byte.

``FEDERATOR_RECORD_STORIES=1 pytest tests/unit/agent/test_stories.py`` records them anew; the diff
then shows what changed in the agent's decisions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Union

import msgspec
import pytest

from federator.agent.core import AgentCore
from federator.agent.effects import ANSWERS, AgentEffect, Failure, NoteEndings, WriteMark
from federator.agent.journal import MarkIndex
from federator.agent.observations import (
    AgentObservation,
    Done,
    HungUp,
    NotDone,
    Now,
    Ordered,
    Started,
    Woken,
)
from federator.model.site import AttemptReport
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import ToAgent
from tests.fakes.one_attempt import WELCOME, OneAttempt

FOLDER: Final = Path(__file__).parents[2] / "data" / "agent_stories"
SETTLED: Final = "nothing bad happens for a while"
STORIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "launched_run_and_completed": (
            "launch",
            "OpenLease: done",
            "Sbatch: done",
            "MakeSweep: done",
            "the job starts",
            SETTLED,
            "the job ends",
            SETTLED,
        ),
        "refused_by_sbatch": ("launch", "OpenLease: done", "Sbatch: refused", "Release: done"),
        "answer_lost_then_found_by_a_sweep": (
            "launch",
            "OpenLease: done",
            "Sbatch: unheard",
            SETTLED,
        ),
        "never_submitted_and_given_up": ("launch", "OpenLease: done", "Sbatch: never", SETTLED),
        "agent_dies_inside_sbatch_which_lands_late": (
            "launch",
            "OpenLease: done",
            "die after 0",
            "Sbatch: late",
            "a late sbatch lands",
            "launch",
            SETTLED,
        ),
        "ran_and_forgotten_while_no_agent_was_there": (
            "launch",
            "OpenLease: done",
            "Sbatch: unheard",
            "the job starts",
            "the job ends",
            "Slurm forgets the job",
            SETTLED,
        ),
        "cancelled_before_it_is_submitted": ("launch", "cancel", "OpenLease: done", SETTLED),
        "cancelled_where_nothing_was_begun": ("cancel", "Release: done"),
        "evicted_and_killed_at_its_deadline": (
            "launch",
            "OpenLease: done",
            "Sbatch: done",
            "MakeSweep: done",
            "the job starts",
            "SettleLeases: done",
            SETTLED,
            "preempt",
            SETTLED,
        ),
        "asked_for_by_a_queue_that_forgot": (
            "launch",
            "OpenLease: done",
            "Sbatch: never",
            "recover",
            SETTLED,
        ),
    }
)


def told(happenings: tuple[str, ...]) -> bytes:
    """The story of these happenings: one line for each observation."""
    world = OneAttempt(record=True)
    world.first_sweep()
    for name in happenings:
        if name == SETTLED:
            world.settle_down(for_s=65.0)
        else:
            world.options()[name]()
    assert not world.broken
    lines = [
        msgspec.json.encode({"now": now, "observation": seen, "effects": effects})
        for now, seen, effects in world.story
    ]
    return b"\n".join(lines) + b"\n"


def observation_of(said: dict[str, Any]) -> AgentObservation:
    """An observation, from what JSON made of it."""
    plain = {"started": Started, "woken": Woken, "hung_up": HungUp}
    kind = said["observation"]
    if kind in plain:
        return plain[kind]()
    if kind == "ordered":
        message = msgspec.convert(said["message"], ToAgent, strict=False, str_keys=True)
        return Ordered(message=message, strangers=frozenset(said["strangers"]))
    effects: Any = Union[tuple(ANSWERS)]  # noqa: UP007  # of a tuple
    effect: AgentEffect = msgspec.convert(said["effect"], effects, strict=False, str_keys=True)
    if kind == "not_done":
        return NotDone(effect=effect, failure=msgspec.convert(said["failure"], Failure))
    value = msgspec.convert(said["value"], ANSWERS[type(effect)], strict=False, str_keys=True)
    return Done(effect=effect, value=value)


class Replay:
    """Agents that come one after the other, with what each has left on the disk."""

    def __init__(self) -> None:
        self._marks: list[WriteMark] = []
        self._endings: dict[AttemptId, AttemptReport] = {}
        self._core: AgentCore | None = None

    def observe(self, seen: AgentObservation, now: Now) -> list[AgentEffect]:
        if isinstance(seen, Started):
            index = MarkIndex()
            for write in self._marks:
                index.remember(write.attempt, write.mark)
            self._core = AgentCore("alpine", index, self._endings, now, WELCOME)
        assert self._core is not None
        effects = self._core.handle(seen, now)
        for effect in effects:
            if isinstance(effect, WriteMark):
                self._marks.append(effect)
            elif isinstance(effect, NoteEndings):
                self._endings.update({r.attempt: r for r in effect.reports if r.state.ended})
        return effects


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_told_as_it_was_recorded(name: str) -> None:
    path = FOLDER / f"{name}.jsonl"
    story = told(STORIES[name])
    if os.environ.get("FEDERATOR_RECORD_STORIES"):
        FOLDER.mkdir(exist_ok=True)
        path.write_bytes(story)
    assert story == path.read_bytes()


@pytest.mark.parametrize("name", STORIES)
def test_a_recorded_story_replays_to_the_same_effects(name: str) -> None:
    replay = Replay()
    for number, line in enumerate((FOLDER / f"{name}.jsonl").read_bytes().splitlines(), 1):
        said = msgspec.json.decode(line)
        effects = replay.observe(observation_of(said["observation"]), Now(*said["now"]))
        recorded = msgspec.json.encode(said["effects"])
        assert msgspec.json.encode(effects) == recorded, f"line {number}"
