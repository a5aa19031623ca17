"""The end of a program whose reader has gone, as in ``fsqueue | head -1``."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def flush() -> None:
    """Write out what is printed, so that a failure shows here and not while Python ends.

    Raises:
        BrokenPipeError: nobody reads it any more.
    """
    # Closed by whoever started us, or by an agent, whose channel it was.
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def end_by_sigpipe() -> NoReturn:
    """End as any program does that writes to a closed pipe: quietly, killed by SIGPIPE.

    Python ignores that signal, and it must: a socket whose other end is gone would raise it, too.
    """
    import signal  # noqa: PLC0415  # seldom needed

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # what is still in the buffer goes there
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(128 + signal.SIGPIPE)  # it is blocked
