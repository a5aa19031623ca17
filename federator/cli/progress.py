"""A progress bar on stderr, for commands that take a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(name: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar if stderr is a terminal, otherwise nothing; called with what was done since."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes longer than many a replay
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.advance(task, done)
