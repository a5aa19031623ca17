"""Shows the plan of where data sets should be that the daemon has: ``federator data plan``."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from federator.cli.client import call
from federator.cli.text import printable, unexpected
from federator.errors import InvalidRequest
from federator.model.data_placement import DataPlacement, DataPlanning, PlannedMove
from federator.wire.client_protocol import ErrorReply
from federator.wire.data_rows import DataPlanCall, DataPlanReply

_GIB: Final = 2**30
_NUMBERS: Final = (
    "made_at_s",
    "expires_at_s",
    "data_sets",
    "jobs",
    "cost_before",
    "cost_after",
    "bound",
    "of_best_frac",
    "waiting",
    "nowhere",
    "move_price",
    "storage_price",
)


def show_plan(most: int, *, as_json: bool) -> None:
    """Print the plan in force, and what was made of it.

    Args:
        most: moves to print.
        as_json: print all of it as JSON.

    Raises:
        InvalidRequest: it may not be seen, or there can be none.
    """
    reply = call(DataPlanCall())
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, DataPlanReply):
        raise unexpected(reply)
    if as_json:
        print(msgspec.json.encode(_document(reply)).decode())
        return
    for line in _lines(reply, most):
        print(printable(line))


def _lines(reply: DataPlanReply, most: int) -> list[str]:
    if reply.planning == DataPlanning.OFF.value:
        return ["data.planning is off in federation.yaml: no plan is made"]
    quota = f"{reply.moved_bytes / _GIB:.1f} of {reply.quota_bytes / _GIB:.1f} GiB begun in 24 h"
    if reply.plan is None:
        return [
            f"no plan is in force ({reply.planning}): does federator planner run? {quota}",
        ]
    plan = reply.plan
    age_min = max(reply.now_s - plan.made_at_s, 0.0) / 60
    gib = sum(move.size_bytes for move in plan.moves) / _GIB
    lines = [
        f"{len(plan.moves)} moves, {gib:.1f} GiB ({reply.planning}; made {age_min:.0f} min ago "
        f"from {plan.data_sets} data sets and {plan.jobs} kinds of jobs); {quota}"
    ]
    progress = (*reply.progress, *((0, 0),) * len(plan.moves))
    shown = zip(plan.moves[:most], progress, strict=False)
    lines += [f"{move.why}{_state(move, *done)}" for move, done in shown]
    if (left := len(plan.moves) - most) > 0:
        lines.append(f"and {left} more")
    if plan.waiting:
        lines.append(f"moves that wait for quota: {plan.waiting}")
    if plan.nowhere:
        lines.append(f"kinds of jobs that can run nowhere even then: {plan.nowhere}")
    return lines + _worth(plan)


def _state(move: PlannedMove, there: int, copied: int) -> str:
    if there == len(move.sets):
        return " [done]"
    if there or copied:
        return f" [{there} of {len(move.sets)} there, {copied} copied now]"
    return ""


def _worth(plan: DataPlacement) -> list[str]:
    if plan.of_best_frac is None or plan.bound is None or not plan.jobs:
        return []
    return [
        f"{100 * plan.of_best_frac:.1f} % of the best possible: cost {plan.cost_before:.4g} -> "
        f"{plan.cost_after:.4g}, and no placement within the quota is below {plan.bound:.4g}"
    ]


def _document(reply: DataPlanReply) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "schema": 1,
        "planning": reply.planning,
        "quota_bytes": reply.quota_bytes,
        "moved_bytes": reply.moved_bytes,
        "now_s": reply.now_s,
        "plan": None,
    }
    plan = reply.plan
    if plan is None:
        return fields
    progress = (*reply.progress, *((0, 0),) * len(plan.moves))
    moves = [
        {
            "sets": [f"{each.name}@{each.version}" for each in move.sets],
            "to": move.to,
            "home": move.home,
            "bytes": move.size_bytes,
            "there": done[0],
            "copied": done[1],
            "why": move.why,
        }
        for move, done in zip(plan.moves, progress, strict=False)
    ]
    numbers = {name: getattr(plan, name) for name in _NUMBERS}
    return fields | {"plan": numbers | {"moves": moves}}
