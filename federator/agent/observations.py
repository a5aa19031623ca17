"""The observations that reach an agent's core: orders, answers to its effects, and time."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from federator.agent.effects import AgentEffect, Failure
from federator.model.tagged import Message


class Now(NamedTuple):
    """The time of an observation, by two clocks."""

    unix_s: float  # may be set back and forth
    elapsed_s: float  # never is


class AgentObservation(msgspec.Struct, frozen=True, kw_only=True, tag_field="observation"):
    """Base of all observations."""


class Ordered(AgentObservation, frozen=True, kw_only=True, tag="ordered"):
    """The daemon sent a message.

    ``strangers``: those of an ``Ask``'s users who have no account here.
    """

    message: Message
    strangers: frozenset[str] = frozenset()


class Done(AgentObservation, frozen=True, kw_only=True, tag="done"):
    """An effect was carried out; ``value`` has the type that ``effects.ANSWERS`` says."""

    effect: AgentEffect
    value: Any = None


class NotDone(AgentObservation, frozen=True, kw_only=True, tag="not_done"):
    """An effect was not carried out, or nobody knows."""

    effect: AgentEffect
    failure: Failure


class Woken(AgentObservation, frozen=True, kw_only=True, tag="woken"):
    """The time of the last ``WakeAt`` has come."""


class SettingsChanged(AgentObservation, frozen=True, kw_only=True, tag="settings_changed"):
    """Partitions or reservations of the site are others than the last sweep shows."""


class Started(AgentObservation, frozen=True, kw_only=True, tag="started"):
    """The daemon was accepted: begin."""


class HungUp(AgentObservation, frozen=True, kw_only=True, tag="hung_up"):
    """The channel has ended: finish what was begun, begin nothing."""
