"""Runs a command that may hang, flood its output, or never die, and returns its output.

A command that waits for a broken GPU can be stuck in the kernel, where no signal reaches it. It is
killed at its time limit and then left behind: nothing here ever waits for it.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from typing import IO, Dict, List, NamedTuple, Optional, Sequence

MAX_BYTES = 1 << 20  # of standard output, and as much again of standard error
_POLL_S = 0.02
_BURY_S = 0.2  # how long a killed command is waited for
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Ran(NamedTuple):
    """The outcome of a command.

    ``status`` is its exit status (minus the signal's number if one ended it), or None if it could
    not be started or did not end in time; ``trouble`` then says why, and is "" otherwise.
    """

    status: "Optional[int]"
    out: str
    err: str
    trouble: str = ""
    timed_out: bool = False


def environment(extra: "Optional[Dict[str, str]]" = None) -> "Dict[str, str]":
    """Return the environment of what we start: nothing of the job's, but Slurm's configuration."""
    chosen = {"PATH": _PATH, "LC_ALL": "C"}
    if "SLURM_CONF" in os.environ:
        chosen["SLURM_CONF"] = os.environ["SLURM_CONF"]
    chosen.update(extra or {})
    return chosen


def run(
    argv: "Sequence[str]",
    timeout_s: float,
    extra_env: "Optional[Dict[str, str]]" = None,
    max_bytes: int = MAX_BYTES,
) -> Ran:
    """Run ``argv`` in a session of its own for at most ``timeout_s`` and return what it printed.

    More than ``max_bytes`` of either output is read and thrown away. Never raises for what the
    command does, or for its being absent.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=environment(extra_env),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Ran(None, "", "", f"{argv[0]}: {getattr(error, 'strerror', None) or error}")
    try:
        streams = _read(process, time.monotonic() + timeout_s, max_bytes)
        out, err = (bytes(part).decode("utf-8", "replace") for part in streams)
    finally:
        ended = _end(process)
    if not ended:
        trouble = f"{argv[0]} did not end within {timeout_s:g} s"
        return Ran(None, out, err, trouble, True)
    return Ran(process.returncode, out, err)


def _read(process: "subprocess.Popen[bytes]", deadline: float, max_bytes: int) -> "List[bytearray]":
    """Collect both outputs until the command has ended or ``deadline`` (monotonic) has come."""
    streams = [bytearray(), bytearray()]
    with selectors.DefaultSelector() as selector:
        for number, pipe in enumerate(_pipes(process)):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, streams[number])
        while selector.get_map():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            # What the command left running may hold the pipes open: its own end is enough.
            over = process.poll() is not None
            ready = selector.select(0 if over else min(left_s, _POLL_S))
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk[: max(0, max_bytes - len(key.data))])
            if over and not ready:
                break
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S / 10)  # it closed its outputs first
    return streams


def _pipes(process: "subprocess.Popen[bytes]") -> "List[IO[bytes]]":
    return [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]


def _end(process: "subprocess.Popen[bytes]") -> bool:
    """Kill what still runs, whole session; tells whether the command had ended by itself."""
    ended = process.poll() is not None
    if not ended:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        bury_until = time.monotonic() + _BURY_S
        while process.poll() is None and time.monotonic() < bury_until:
            time.sleep(_POLL_S / 4)
        if process.returncode is None:
            process.returncode = -signal.SIGKILL  # stuck in the kernel: it is left behind
    for pipe in _pipes(process):
        pipe.close()
    return ended
