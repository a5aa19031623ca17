"""What do commands that replay have in common? Their files, a bar, and how they print a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from federator.errors import InvalidRequest


def spare_inputs(jobs_out: Path | None, *inputs: Path) -> None:
    """Refuse to write over what is read."""
    for path in inputs:
        if jobs_out is not None and jobs_out.exists() and jobs_out.samefile(path):
            raise InvalidRequest(f"--jobs-out: {jobs_out}: is the input {path}; name another file")


@contextmanager
def text_file(path: Path | None) -> Iterator[TextIO | None]:
    """Open before the replay, so that a mistake in the name costs no time."""
    if path is None:
        yield None
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise InvalidRequest(f"--jobs-out: {path}: cannot be written: {error.strerror}") from error


@contextmanager
def progress_bar(jobs: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr if that is a terminal; otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes longer than many a replay
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=jobs)
        yield lambda count: bar.advance(task, count)


def slurm_span(time_s: float) -> str:
    """``[days-]hours:minutes:seconds``, as Slurm prints times."""
    minutes, seconds = divmod(round(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' * bool(days)}{hours:02}:{minutes:02}:{seconds:02}"
