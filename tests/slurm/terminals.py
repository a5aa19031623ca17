"""Users at terminals of a site: what they type, see and close."""

from __future__ import annotations

import json
from typing import Final

from federator.testbed import inside, layout
from tests.slurm.federation import Row, Running, federation_jobs, within

# Runs a command on a terminal of its own, as a user's window does: types, and resizes it.
_WINDOW: Final = """
import fcntl, json, os, pty, re, select, signal, struct, sys, termios, time
command, acts = json.loads(sys.argv[1])
began_s = shown_s = time.monotonic()
pid, fd = pty.fork()
if not pid:
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # ignored by tests in the background
    os.execvp(command[0], command)
def size(rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
size(33, 111)
seen, shown, until = b"", b"", time.monotonic() + 220
while time.monotonic() < until:
    if acts and re.search(acts[0][0].encode(), seen, re.S):
        _, kind, what = acts.pop(0)
        seen = b""
        if kind == "close":
            os.close(fd)
            break
        size(*what) if kind == "size" else os.write(fd, what.encode())
    if select.select([fd], [], [], 0.05)[0]:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        seen, shown, shown_s = seen + part, shown + part, time.monotonic()
else:
    os.kill(pid, 9)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps([status, shown.decode(), shown_s - began_s]))
"""


def shell(site: str, command: str, user: str = "vision1") -> inside.Executed:
    return inside.execute(layout.site(site), ("bash", "-c", command), user=user)


def window(
    site: str, command: str, *acts: tuple[str, str, object], user: str = "vision1"
) -> tuple[int, str]:
    """What a command on a terminal shows, and its exit status.

    Args:
        acts: a pattern that is waited for, ``type`` and text, ``size`` and rows, columns, or
            ``close``, as of a window.
    """
    status, shown, _ = timed_window(site, command, *acts, user=user)
    return status, shown


def timed_window(
    site: str, command: str, *acts: tuple[str, str, object], user: str = "vision1"
) -> tuple[int, str, float]:
    """The same, and after how many seconds it shows the last of that."""
    words = json.dumps([["bash", "-c", command], acts])
    argv = ("python3", "-c", _WINDOW, words)
    done = inside.execute(layout.site(site), argv, user=user)
    assert done.exit_status == 0, done.stderr
    status, shown, shown_s = json.loads(done.stdout)
    return status, shown, shown_s


def begun(federation: Running, name: str, state: str) -> Row:
    """The live job of a name, once it is in a state."""

    def look() -> list[Row]:
        return [r for r in federation.rows() if (r["name"], r["state"]) == (name, state)]

    (row,) = within(30, look)
    return row


def alive(site: str) -> list[str]:
    jobs = federation_jobs(site)
    return [job["JobId"] for job in jobs if job["JobState"] in ("RUNNING", "PENDING")]
