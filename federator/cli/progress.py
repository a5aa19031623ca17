"""A progress bar on stderr, for commands that take a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_JUDGED_OVER_S: Final = 3600.0  # the time left is judged by the speed since then


@contextmanager
def progress_bar(name: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar if stderr is a terminal, otherwise nothing; called with what was done since.

    It shows the share that is done, the time since the start, and the time that is left at the
    speed so far.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes longer than many a replay
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, speed_estimate_period=_JUDGED_OVER_S
    ) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.advance(task, done)


def since_last(advance: Callable[[float], None]) -> Callable[[float], None]:
    """Called with all that is done, where ``advance`` wants what was done since."""
    before = 0.0

    def tell(frac: float) -> None:
        nonlocal before
        advance(frac - before)
        before = frac

    return tell
