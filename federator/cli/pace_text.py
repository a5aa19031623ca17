"""Puts into words how fast a job is beside its like."""

from __future__ import annotations

from federator.cli.text import span
from federator.wire.queue_rows import PaceRow


def pace_text(pace: PaceRow) -> str:
    """Say how long its steps take, and what moving off slow nodes would bring."""
    said = f"take {pace.factor:.2f} times as long as in {pace.others} runs of its kind elsewhere"
    if pace.speed != "slow":
        return said
    lost = f"would lose {span(pace.gain_s)} by its nodes until its end; a move costs "
    said = f"{said}; {lost}{span(pace.cost_s)}"
    if pace.gain_s <= pace.cost_s:
        return f"{said}, so it stays"
    return f"{said}; it stays, for {pace.stays}" if pace.stays else f"{said}, so it moves"
