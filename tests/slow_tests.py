"""Writes tests/slow.txt: the unit tests that ``./test fast`` leaves out, as they were measured.

    PYTEST_ADDOPTS="--durations=0 --durations-min=0.2" ./test unit -n 2 >run.log
    PYTHONPATH=. .venv/bin/python tests/slow_tests.py run.log

A test is listed if one of its cases, with what it sets up, took SLOW_S or longer; it is slow with
all of them. Tests that are marked ``slow`` where they stand need no line.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

PAGE = Path(__file__).parent / "slow.txt"
SLOW_S = 0.3  # of wall time, two processes at work
_LINE = re.compile(r"(?:^|\s)([\d.]+)s (?:call|setup|teardown) +tests/(unit/\S+\.py::\w+)(.*)$")


def names() -> frozenset[str]:
    """The tests that are listed, e.g. ``unit/cli/test_top.py::test_it_runs``."""
    return frozenset(PAGE.read_text(encoding="utf-8").split())


def slow_in(lines: list[str]) -> list[str]:
    """The tests of a log that took too long, by name."""
    took: defaultdict[tuple[str, str], float] = defaultdict(float)
    for line in lines:
        if (found := _LINE.search(line.rstrip())) is not None:
            took[found[2], found[3]] += float(found[1])
    return sorted({name for (name, _), seconds in took.items() if seconds >= SLOW_S})


if __name__ == "__main__":
    log = [line for path in sys.argv[1:] for line in Path(path).read_text("utf-8").splitlines()]
    PAGE.write_text("".join(f"{name}\n" for name in slow_in(log)), encoding="utf-8")
