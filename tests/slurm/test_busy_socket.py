"""One user's commands, however many, keep no other user waiting, at a site's own socket."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from federator.testbed import layout
from tests.slurm.federation import Running, at

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
SOCKET = "/run/federator/agent.sock"
ENOUGH = "/tmp/enough-connects"
QUICK_S = 1.0
LOOP = f"""
import os, socket, time
until = time.monotonic() + 900
kept = []
while time.monotonic() < until and not os.path.exists({ENOUGH!r}):
    peer = socket.socket(socket.AF_UNIX)
    peer.setblocking(False)
    try:
        peer.connect({SOCKET!r})
        kept.append(peer)
    except OSError:
        pass
    if len(kept) > 400:
        kept.clear()
"""

PYTHON = ("env", "PYTHONPATH=/opt/federator/lib", "python3", "-c")
ASK = """
import time
from federator.cli.client import call
from federator.wire.client_protocol import SitesCall
began_s = time.monotonic()
call(SitesCall())
print(time.monotonic() - began_s)
"""
AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
from federator.cli.client import call
from federator.wire.client_protocol import SitesCall, SitesReply
with ThreadPoolExecutor(200) as pool:
    replies = list(pool.map(lambda _: call(SitesCall()), range(200)))
print(sum(isinstance(reply, SitesReply) for reply in replies), "answers")
"""


def command(site: str, user: str, *words: str) -> list[str]:
    return ["docker", "exec", "-u", user, layout.site(site).container, *words]


@contextmanager
def connect_loops(site: str, user: str) -> Iterator[None]:
    at(site, "rm", "-f", ENOUGH)
    loops = [
        subprocess.Popen(command(site, user, "python3", "-c", LOOP), stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    try:
        time.sleep(2.0)  # they are at it
        yield
        assert all(loop.poll() is None for loop in loops)
    finally:
        at(site, "touch", ENOUGH)
        for loop in loops:
            loop.wait(200)
        at(site, "rm", ENOUGH)


@pytest.mark.parametrize("site", SITES)
def test_two_hundred_commands_of_a_user_at_once_all_succeed(federation: Running, site: str) -> None:
    done = subprocess.run(
        command(site, "vision1", *PYTHON, AT_ONCE),
        capture_output=True,
        text=True,
        check=False,
        timeout=480,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "200 answers\n"


@pytest.mark.parametrize("site", SITES)
def test_a_loop_of_connects_of_one_user_locks_no_other_out(federation: Running, site: str) -> None:
    with connect_loops(site, "vision2"):
        took: list[float] = []
        while sum(s < QUICK_S for s in took) < 3 and len(took) < 12:  # others use the machine
            done = subprocess.run(
                command(site, "vision1", *PYTHON, ASK),
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
            )
            assert done.returncode == 0, done.stderr
            took.append(float(done.stdout))
        assert sorted(took)[2] < QUICK_S, took
