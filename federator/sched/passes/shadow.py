"""Keeps every order away from sites in shadow mode, at the core's only door.

No pass asks such a site to bid, so none should award anything there. What else makes orders, such
as an attempt that the log does not know, a cancel or a repeated launch, does not know of modes:
therefore all commands go by here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from federator.model.message import Command, LaunchAt, Note, PreemptAt, SendTo
from federator.model.workload import SiteName


def without_orders(commands: Iterable[Command], shadow: Collection[SiteName]) -> list[Command]:
    """The commands; in place of each order to a site in shadow mode a note for the operator."""
    if not shadow:
        return list(commands)
    return [
        _noted(command)
        if isinstance(command, SendTo | LaunchAt | PreemptAt) and command.site in shadow
        else command
        for command in commands
    ]


def _noted(command: SendTo | LaunchAt | PreemptAt) -> Note:
    what = command.message if isinstance(command, SendTo) else command
    fields: dict[str, object] = {"site": command.site, "order": type(what).__name__}
    attempt = getattr(what, "attempt", None)
    if attempt is not None:
        fields["attempt"] = str(attempt)
    return Note(event="shadow_order_dropped", fields=fields)
