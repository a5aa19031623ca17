"""Keeps every order away from sites in shadow mode, at the core's only door.

No pass asks such a site to bid, so none should award anything there. What else makes orders, such
as an attempt that the log does not know, a cancel or a repeated launch, does not know of modes:
therefore all commands go by here.
"""

from __future__ import annotations

from collections.abc import Iterable

from federator.model.message import Command, LaunchAt, Note, PreemptAt, SendTo
from federator.model.site_message import Ask
from federator.sched.state.rules import Rules


def without_orders(commands: Iterable[Command], rules: Rules) -> list[Command]:
    """The commands; in place of each order to a site in shadow mode a note for the operator.

    No pass asks such a site to bid: what asks one in mode advisory is a ``--test-only`` job.
    """
    if not rules.shadow:
        return list(commands)
    return [
        _noted(command)
        if isinstance(command, SendTo | LaunchAt | PreemptAt)
        and command.site in rules.shadow
        and not (command.site in rules.advisory and _is_question(command))
        else command
        for command in commands
    ]


def _is_question(command: Command) -> bool:
    return isinstance(command, SendTo) and isinstance(command.message, Ask)


def _noted(command: SendTo | LaunchAt | PreemptAt) -> Note:
    what = command.message if isinstance(command, SendTo) else command
    fields: dict[str, object] = {"site": command.site, "order": type(what).__name__}
    attempt = getattr(what, "attempt", None)
    if attempt is not None:
        fields["attempt"] = str(attempt)
    return Note(event="shadow_order_dropped", fields=fields)
