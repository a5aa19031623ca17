"""``federator web`` as a process: it gives way to the daemon on the same host."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from federator.web.command import NICE

GIVES_WAY = """
import os, sys
from federator.web.command import give_way
os.nice(int(sys.argv[1]) - os.getpriority(os.PRIO_PROCESS, 0))
give_way()
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.parametrize(("before", "after"), [(0, NICE), (NICE + 5, NICE + 5)])
def test_the_page_goes_after_the_daemon_and_raises_nothing(before: int, after: int) -> None:
    before = max(before, os.getpriority(os.PRIO_PROCESS, 0))  # only root may raise it
    said = subprocess.run(
        [sys.executable, "-c", GIVES_WAY, str(before)], capture_output=True, text=True, check=True
    )
    assert int(said.stdout) == max(before, after)
