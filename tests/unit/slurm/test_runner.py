"""A command runs in exactly its environment, and ends for certain."""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress
from pathlib import Path

import pytest

from federator.errors import SiteUnavailable
from federator.slurm.runner import Completed, SubprocessRunner


def run(*argv: str, stdin: bytes = b"", timeout_s: float = 10.0, **env: str) -> Completed:
    return asyncio.run(SubprocessRunner().run(argv, stdin=stdin, timeout_s=timeout_s, env=env))


def test_streams_and_status_come_back_apart() -> None:
    done = run("/bin/sh", "-c", "cat; echo no >&2; exit 3", stdin=b"in")
    assert done == Completed(exit_status=3, stdout=b"in", stderr=b"no\n")


def test_nothing_of_our_environment_is_passed_on() -> None:
    assert run("/usr/bin/env", A="1").stdout == b"A=1\n"


def test_a_program_that_is_not_there_makes_the_site_unavailable() -> None:
    with pytest.raises(SiteUnavailable, match="cannot run /nonexistent"):
        run("/nonexistent")


def test_a_program_that_does_not_read_its_input_does_no_harm() -> None:
    assert run("/bin/true", stdin=b"x" * 1_000_000).exit_status == 0


def test_at_the_timeout_the_children_end_as_well(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(SiteUnavailable, match=r"no end after 0\.5 s"):
        run("/bin/sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait", timeout_s=0.5)
    child = int(pid_file.read_text())
    assert os.getpid() != child
    with suppress(ProcessLookupError):  # it is gone, and nobody's zombie
        ended, _, _ = select.select([os.pidfd_open(child)], [], [], 10)
        assert ended
