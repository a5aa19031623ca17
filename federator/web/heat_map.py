"""Draws nodes as SVG: numbers and class names only, so that no inline style is needed.

All rectangles of one use are one path: a site of 1,000 nodes has a few hundred elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from federator.cli.text import printable
from federator.web.fleet import USES, FleetNode, FleetRack, GpuUse, by_rack

NODE_W: Final = 30
NODE_H: Final = 16
GAP: Final = 4
IN_A_ROW: Final = 24  # nodes of one rack; more go on in the next row
USE_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "owner": "within quota",
        "guest": "over quota (guest)",
        "local": "local jobs",
        "claimed": "kept for a claim",
        "free": "free",
        "out": "out of service",
    }
)
LABEL_W: Final = 96
STRIP_H: Final = 24
BAR_W: Final = 1000


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """A drawing: its size, and one path for each use."""

    width: int
    height: int
    paths: tuple[tuple[str, str], ...]  # class name, path


class NodeBox(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one node in a map."""

    node: FleetNode
    kind: str  # class names
    title: str
    x: int
    y: int


class RackLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a rack and its place."""

    name: str
    y: int


class NodeMap(msgspec.Struct, frozen=True, kw_only=True):
    """The racks of a site below each other, each a row of nodes."""

    drawing: Paths
    boxes: tuple[NodeBox, ...]
    labels: tuple[RackLabel, ...]


def node_map(nodes: Sequence[FleetNode]) -> NodeMap:
    """Place and draw the nodes of one site."""
    y, boxes, labels = GAP, [], []
    widest = 1
    for rack, among in by_rack(nodes).items():
        labels.append(RackLabel(name=rack or "no rack", y=y + NODE_H - GAP))
        for first in range(0, len(among), IN_A_ROW):
            row = among[first : first + IN_A_ROW]
            widest = max(widest, len(row))
            boxes += [
                NodeBox(
                    node=node,
                    kind=f"box {node.state}{' limping' * node.limping}",
                    title=title(node),
                    x=LABEL_W + k * (NODE_W + GAP),
                    y=y,
                )
                for k, node in enumerate(row)
            ]
            y += NODE_H + GAP
    drawn: dict[str, list[str]] = {}
    for box in boxes:
        _draw(drawn, box.node.gpus, box.x, box.y)
    width = LABEL_W + widest * (NODE_W + GAP)
    drawing = Paths(width=width, height=max(y, NODE_H), paths=_joined(drawn))
    return NodeMap(drawing=drawing, boxes=tuple(boxes), labels=tuple(labels))


def title(node: FleetNode) -> str:
    """A node in one line."""
    limping = ", limping" if node.limping else ""
    reason = f"; {node.reason}" if node.reason else ""
    return printable(f"{node.name}: {node.state}{limping}; {use_text(node.gpus)}{reason}")


def use_text(use: GpuUse) -> str:
    """What GPUs do, in words."""
    parts = [f"{number:,} {USE_WORDS[name]}" for name, number in use.parts()]
    return ", ".join(parts) or "no GPUs"


def _draw(drawn: dict[str, list[str]], use: GpuUse, x: int, y: int) -> None:
    """One node: its GPUs side by side, those of one use as one rectangle."""
    total, done = use.total, 0
    for name, number in use.parts():
        left, right = x + NODE_W * done // total, x + NODE_W * (done + number) // total
        drawn.setdefault(name, []).append(rectangle(left, y, right - left, NODE_H))
        done += number


def rack_strip(racks: Sequence[FleetRack], most: int) -> Paths:
    """The racks of a site beside each other, each a column; several in one where there are many."""
    together = max(1, -(-len(racks) // most))
    columns = [racks[k : k + together] for k in range(0, len(racks), together)]
    drawn: dict[str, list[str]] = {}
    for k, column in enumerate(columns):
        totals = {use: sum(getattr(rack.gpus, use) for rack in column) for use in USES}
        total = sum(totals.values())
        bottom = 0
        for use, number in totals.items():
            low = STRIP_H * bottom // max(1, total)
            high = STRIP_H * (bottom + number) // max(1, total)
            if high > low:
                box = rectangle(6 * k, STRIP_H - high, 5, high - low)
                drawn.setdefault(use, []).append(box)
            bottom += number
    return Paths(width=max(6, 6 * len(columns)), height=STRIP_H, paths=_joined(drawn))


def bar(use: GpuUse) -> Paths:
    """One bar: all GPUs, by use."""
    drawn: dict[str, list[str]] = {}
    done = 0
    for name, number in use.parts():
        left = BAR_W * done // use.total
        right = BAR_W * (done + number) // use.total
        drawn[name] = [rectangle(left, 0, max(1, right - left), 10)]
        done += number
    return Paths(width=BAR_W, height=10, paths=_joined(drawn))


def rectangle(x: int, y: int, w: int, h: int) -> str:
    """One rectangle, as a part of a path."""
    return f"M{x} {y}h{w}v{h}h-{w}z"


def _joined(drawn: dict[str, list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((use, "".join(drawn[use])) for use in USES if use in drawn)
