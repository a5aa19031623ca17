"""Estimated starts in words, and as JSON; never one without its interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any, Final

from federator.cli.text import counted, span
from federator.model.start_estimate import HelpKind, NoEstimate, StartEstimate, StartHelp
from federator.wire.status_rows import StartsClassRow, StartsRow

MOST_CLASSES: Final = 8
_DAY_S: Final = 86_400.0

_WHY_NONE: Final[Mapping[str, str]] = MappingProxyType(
    {
        NoEstimate.NOT_WAITING.value: "it does not wait for its start",
        NoEstimate.MAY_NOT_START.value: "it may not start as things are",
        NoEstimate.NO_GPUS.value: "it asks for no GPUs, and only GPUs are counted",
        NoEstimate.LICENSES.value: "others hold the site's licences that it asks for",
        NoEstimate.NO_PLACE.value: "no site that is there could hold it",
        NoEstimate.TOO_LATE.value: "it may well wait longer than half a day",
        NoEstimate.TOO_WIDE.value: "the interval would be too wide to say anything",
        NoEstimate.TOO_DEEP.value: "too many come before it",
        NoEstimate.UNTRIED.value: "too few starts have been seen to know how good it would be",
        NoEstimate.NOT_YET.value: "it is being made; ask again in a minute",
    }
)

_CHANGES: Final[Mapping[str, Callable[[int], str]]] = MappingProxyType(
    {
        HelpKind.FEWER_NODES.value: lambda nodes: f"with {counted(nodes, 'node')}",
        HelpKind.FEWER_GPUS.value: lambda gpus: f"with {counted(gpus, 'GPU')} in all",
        HelpKind.ANY_GPU_TYPE.value: lambda _: "with any type of GPU",
        HelpKind.ANY_PARTITION.value: lambda _: "in any partition",
        HelpKind.LESS_TIME.value: lambda minutes: f"with a time limit of {minutes} min",
        HelpKind.LESS_MEMORY.value: lambda mib: f"with {mib} MiB of memory on each node",
    }
)


def start_text(start: StartEstimate, now_s: float) -> str:
    """``estimated start: between 14:05 and 15:20 (90 %), likely 14:20``."""
    if start.none:
        return f"no estimate of its start: {_WHY_NONE.get(start.none, start.none)}"
    return f"estimated start: {interval_text(start, now_s)}"


def interval_text(start: StartEstimate, now_s: float) -> str:
    """``between 14:05 and 15:20 (90 %), likely 14:20``; with dates where one is not today's."""
    low, likely, high = (
        clock_text(at_s, now_s) for at_s in (start.earliest_s, start.likely_s, start.latest_s)
    )
    return f"between {low} and {high} ({start.frac:.0%}), likely {likely}".replace("%", " %")


def range_text(start: StartEstimate, now_s: float) -> str:
    """``14:05-15:20``, for a column."""
    return f"{clock_text(start.earliest_s, now_s)}-{clock_text(start.latest_s, now_s)}"


def clock_text(at_s: float, now_s: float) -> str:
    """The time of day on this host's clock; the date before it unless it is today's."""
    at, now = time.localtime(at_s), time.localtime(now_s)
    same = (at.tm_year, at.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("%H:%M" if same else "%m-%dT%H:%M", at)


def start_lines(start: StartEstimate | None, now_s: float) -> Iterator[tuple[str, str]]:
    """The lines of ``federator explain``: the estimate, and how good those before it were."""
    if start is None or start.none == NoEstimate.NOT_WAITING.value:
        return
    text = start_text(start, now_s)
    yield (
        "Start",
        text.removeprefix("estimated start: ").replace("no estimate of its start", "no estimate"),
    )
    if start.latest:
        held = f"of the latest estimates {start.hit_frac:.0%} held"
        if start.latest_alike:
            alike = f"{start.hit_frac_alike:.0%} of {start.latest_alike}"
            held += f"; of those of its size and quota class {alike}"
        yield "", held.replace("%", " %")


def help_lines(
    helps: Sequence[StartHelp], now_s: float, *, untried: bool = False
) -> Iterator[tuple[str, str]]:
    """The lines of ``federator explain``: changes that would have it start sooner."""
    if untried:
        yield "Would help", "not tried: there was no time for it; ask again in a minute"
    for label, one in zip(chain(("Would help",), repeat("")), helps, strict=False):
        words = _CHANGES.get(one.kind)
        what = one.kind if words is None else words(one.amount)
        sooner = f", about {span(one.sooner_s)} sooner" if one.sooner_s else ""
        yield label, f"{what}: {interval_text(one.start, now_s)}{sooner}"


def hits_text(row: StartsRow) -> str:
    """How good estimates were, for ``federator status``."""
    if not row.judged:
        return "no estimate has been judged yet"
    if not row.latest:
        return f"{row.judged} intervals judged, none of them shown"
    return (
        f"{row.hit_frac:.0%} of the latest {row.latest} intervals held, {row.frac:.0%} aimed at; "
        f"{row.judged} judged"
    ).replace("%", " %")


def class_lines(rows: Sequence[StartsClassRow]) -> Iterator[str]:
    """How good those of each class were, for ``federator status``: the worst first."""
    for row in sorted(rows, key=lambda row: row.hit_frac)[:MOST_CLASSES]:
        what = "1 GPU" if row.gpus == "1" else f"{row.gpus} GPUs"
        yield f"{what} {row.quota} quota: {row.hit_frac:.0%} of {row.latest}".replace("%", " %")
    if len(rows) > MOST_CLASSES:
        yield f"and {counted(len(rows) - MOST_CLASSES, 'class', 'es')} of which more held"


def start_json(start: StartEstimate | None) -> dict[str, Any] | None:
    """As JSON; times are Unix times. None: nothing was estimated."""
    if start is None:
        return None
    if start.none:
        return {"none": start.none}
    return {
        "earliest_s": start.earliest_s,
        "likely_s": start.likely_s,
        "latest_s": start.latest_s,
        "frac": start.frac,
        "made_at_s": start.made_at_s,
    }
