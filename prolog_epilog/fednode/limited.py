"""Ends a hook in time, whatever happens: it works in a child that can be left behind.

Reading /proc or the driver's files can block where no signal reaches. The child has no descriptor
of ours, so slurmd, which waits for a hook's output to close, does not wait for a child left behind.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import syslog
import time
from typing import Callable

from fednode import processes

_POLL_S = 0.05
_MAX_BYTES = 65536
_LINE_CHARS = 1000
LOG = "/dev/log"


def tell(name: str, line: str) -> None:
    """Say one line to the system's log, and to slurmd's by way of standard error."""
    _log(name, line)
    with contextlib.suppress(OSError, ValueError):
        print(f"{name}: {line}", file=sys.stderr, flush=True)


def _log(name: str, line: str) -> None:
    """Hand the line to the system's log, unless that would have to be waited for.

    syslog(3) waits for as long as the log's daemon takes nothing, and hooks are told on after
    their limit.
    """
    priority = syslog.LOG_DAEMON | syslog.LOG_NOTICE
    at = time.strftime("%b %e %H:%M:%S")
    message = f"<{priority}>{at} {name}: {line[:_LINE_CHARS]}".encode("utf-8", "replace")
    for kind, end in ((socket.SOCK_DGRAM, b""), (socket.SOCK_STREAM, b"\0")):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as log:
            log.setblocking(False)
            log.connect(LOG)
            log.send(message + end)
            return


def limited(name: str, work: "Callable[[], None]", limit_s: float) -> bool:
    """Do ``work`` in a child for at most ``limit_s``; tells whether it came to its end.

    What goes wrong is told, never raised.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(work, writer)
    os.close(writer)
    deadline = time.monotonic() + limit_s
    said = _said(reader, deadline)
    os.close(reader)
    ended = _ended(child, deadline)
    for line in said.decode("utf-8", "replace").splitlines():
        tell(name, line)
    if not ended:
        tell(name, f"did not end within {limit_s:g} s and was left")
    return ended


def _work(work: "Callable[[], None]", writer: int) -> None:
    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(null, descriptor)
        os.dup2(writer, 2)
        work()
        status = 0
    except BaseException:
        import traceback  # noqa: PLC0415 - slow to import, and seldom needed

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _said(reader: int, deadline: float) -> bytes:
    """Collect what the child says until it ends or ``deadline`` (monotonic) has come."""
    said = b""
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([reader], [], [], left_s)[0]:
            return said
        chunk = os.read(reader, 65536)
        if not chunk:
            return said
        said += chunk[: max(0, _MAX_BYTES - len(said))]


def _ended(child: int, deadline: float) -> bool:
    """Tell whether the child has ended by ``deadline``; else kill it and all that it started.

    On a busy machine it takes a while from its last word to its end.
    """
    bury_until = max(deadline, time.monotonic() + _POLL_S)
    while time.monotonic() < bury_until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(_POLL_S / 20)
    _end(child)
    return False


def _end(child: int) -> None:
    """Kill it and the commands that it runs, each of which leads a session of its own.

    Nothing of a hook, a site's own check least of all, is to go on beside the job.
    """
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGSTOP)  # it starts nothing while we look
    for leader in [*processes.children(child), child]:
        for send in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                send(leader, signal.SIGKILL)
