"""Reasons for which a drain, a cordon, or the end of one is refused; and drills of leaving."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class DrainRefusalCode(Enum):
    """Each names what stands against it; see ``DrainRefusal`` for the numbers."""

    UNKNOWN_SITE = "unknown site"
    UNKNOWN_NODES = "unknown nodes"  # the site has no such nodes: ``nodes``
    DRAINED = "drained already"  # since ``since_s``, by ``by``, for ``reason``
    NOT_DRAINED = "not drained"
    IN_CONTACT = "in contact"  # up since ``since_s``: it is not gone
    JUST_LEFT = "just left"  # it may be back at once; ``earliest_s``: when it can be written off
    WRITTEN_OFF = "written off already"  # as ``DRAINED``
    TOO_SOON = "deadline too soon"  # the earliest is ``earliest_s``


class DrainRefusal(Struct, frozen=True, kw_only=True):
    """One cause, with its numbers; those that it does not name are empty or 0."""

    code: DrainRefusalCode
    nodes: tuple[str, ...] = ()
    since_s: float = 0.0  # Unix time, as the next
    earliest_s: float = 0.0
    by: str = ""
    reason: str = ""
    cordon: bool = False


class LeaveDrill(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the federation left a site to see how fast it can; it is back there since.

    ``took_s``: from the order until nothing of it was there. ``workloads``: that it had there then.
    ``wrong``: why it did not leave altogether; "": it did.
    """

    took_s: float = 0.0
    workloads: int = 0
    wrong: str = ""


class DatedDrill(Struct, frozen=True, kw_only=True):
    """A leave drill, and when it was over (Unix time)."""

    at_s: float
    drill: LeaveDrill
