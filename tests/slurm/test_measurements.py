"""The measurements on real Slurm that docs/results.md names run as it says, for a short time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.fakes.shown_blocks import ROOT, shown_commands

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize(
    ("name", "prints"),
    [
        ("bench_epilog", "cedar, Python 3.14: watch, one look"),
        ("bench_job_submit", "submission in slurmctld (sdiag), us"),
        ("bench_preemption", "order → start, times the federation's"),
    ],
)
def test_a_measurement_runs_as_the_page_says(testbed: StateDir, name: str, prints: str) -> None:
    (command,) = shown_commands(Path("docs/results.md").as_posix(), f"python -m tests.bench.{name}")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", command],
        cwd=ROOT,
        env=os.environ | {"PATH": programs, "FEDERATOR_BENCH": "quick"},
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert prints in done.stdout
