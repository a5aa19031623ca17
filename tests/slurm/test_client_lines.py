"""Programs that are no Python packages, or large ones, by their command lines and expressions.

``clients/replay.py`` is the table of them. Each runs one pipeline at alpine, with links of Slurm's
names first on PATH: a job that ends well, one that fails, one that is cancelled, an array, and a
dependency where the program makes them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.clients.replay import PROGRAMS
from tests.slurm.federation import Running

pytestmark = pytest.mark.slurm

USER, REGION = "vision1", "west"
REPLAY = Path(__file__).parent / "clients" / "replay.py"
RUN = """
cd "$1" && federator shims "$PWD/bin" >&2 && PATH=$PWD/bin:$PATH exec python3 replay.py "$2"
"""
ARRAY = ["ID_0 COMPLETED", "ID_1 COMPLETED", "ID_2 COMPLETED"]


@pytest.fixture
def folder(federation: Running, testbed: StateDir) -> Iterator[str]:
    """A folder that the sites of a region share, as they call it."""
    folder = testbed.shared(REGION) / USER / "replay"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    shutil.copy(REPLAY, folder)
    yield f"/shared/{REGION}/{USER}/replay"
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_reads_what_becomes_of_its_jobs(name: str, folder: str) -> None:
    done = subprocess.run(
        inside.exec_argv(layout.site("alpine"), ["sh", "-c", RUN, "sh", folder, name], user=USER),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    program = PROGRAMS[name]
    expected = dict(zip(("good", "bad", "stopped"), program.ends, strict=True))
    if program.dependency_option:
        expected["after"] = program.ends[0]
    found = json.loads(done.stdout)
    assert found == {"states": {**expected, "array": ARRAY}, "waits": {}}
