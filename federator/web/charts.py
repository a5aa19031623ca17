"""Draws curves, columns and a workload's life as SVG paths, as ``heat_map`` draws nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from federator.web.heat_map import Paths, rectangle
from federator.web.story import JobStory
from federator.web.summaries import TenantPast
from federator.wire.status_rows import PassRow

CHART_W: Final = 600
CHART_H: Final = 90
LIFE_H: Final = 18
COLUMNS: Final = 120


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One curve; ``name`` is its class."""

    name: str
    path: str


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over time, of ``CHART_W`` by ``CHART_H``."""

    curves: tuple[Curve, ...]
    top: float  # the value at the upper edge
    began_s: float = 0.0  # Unix time at the left edge, and at the right one
    ended_s: float = 0.0


def past_chart(past: TenantPast, now_s: float) -> Chart:
    """A tenant's GPUs over the last hours: used, borrowed, lent and its quota."""
    rows: dict[str, Sequence[int | None]] = {
        "quota": past.quota,
        "used": past.used,
        "borrowed": past.borrowed,
        "lent": past.lent,
    }
    top = max(1.0, *(float(value or 0) for row in rows.values() for value in row))
    began_s = past.at_s[0] if past.at_s else now_s
    curves = []
    for name, values in rows.items():
        points = [(at_s, v) for at_s, v in zip(past.at_s, values, strict=True) if v is not None]
        if any(v for _, v in points):
            curves.append(Curve(name=name, path=_steps(points, top, (began_s, now_s))))
    return Chart(curves=tuple(curves), top=top, began_s=began_s, ended_s=now_s)


def _steps(points: Iterable[tuple[float, float]], top: float, span: tuple[float, float]) -> str:
    """A curve that keeps each value until the next."""
    began, ended = span
    parts: list[str] = []
    for at, value in points:
        x = round(CHART_W * (at - began) / max(1.0, ended - began))
        y = round(CHART_H - (CHART_H - 2) * min(value, top) / top)
        parts.append(f"H{x}V{y}" if parts else f"M{x} {y}")
    return "".join([*parts, f"H{CHART_W}"])


def pass_chart(passes: Sequence[PassRow]) -> Chart:
    """How long the last passes took, a column each."""
    shown = [row for row in passes if row.ended_s][-COLUMNS:]
    top = max(0.001, *(row.ended_s - row.began_s for row in shown)) if shown else 1.0
    width = CHART_W // COLUMNS
    boxes = []
    for k, row in enumerate(shown, COLUMNS - len(shown)):  # the newest at the right edge
        height = max(1, round((CHART_H - 2) * (row.ended_s - row.began_s) / top))
        boxes.append(rectangle(k * width, CHART_H - height, width - 1, height))
    return Chart(curves=(Curve(name="column", path="".join(boxes)),), top=top)


def life(story: JobStory) -> Paths:
    """A workload from its submission until its end, or now: waiting, starting, running."""
    began = story.job.submitted_at_s
    ended = max(story.ended_at_s or story.now_s, began + 1.0)

    def x(at_s: float) -> int:
        return round(CHART_W * (min(max(at_s, began), ended) - began) / (ended - began))

    drawn: dict[str, list[str]] = {"waits": [rectangle(0, 0, CHART_W, LIFE_H)]}
    for each in story.attempts:
        left = each.ended_at_s or ended
        started = each.started_at_s or left
        if each.awarded_at_s and x(started) > x(each.awarded_at_s):
            box = rectangle(x(each.awarded_at_s), 0, x(started) - x(each.awarded_at_s), LIFE_H)
            drawn.setdefault("starting", []).append(box)
        if each.started_at_s:
            box = rectangle(x(started), 0, max(1, x(left) - x(started)), LIFE_H)
            drawn.setdefault("runs", []).append(box)
    paths = tuple((name, "".join(boxes)) for name, boxes in drawn.items())
    return Paths(width=CHART_W, height=LIFE_H, paths=paths)
