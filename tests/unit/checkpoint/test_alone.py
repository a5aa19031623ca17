"""The package runs in the users' Python: old, and with nothing else of federator beside it."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import federator
from federator import checkpoint

FOLDER = Path(checkpoint.__file__).parent
SOURCES = sorted([*FOLDER.glob("*.py"), Path(federator.__file__)])
USE = """
import sys
sys.path.insert(0, sys.argv[1])
from federator.checkpoint import Checkpointer
with Checkpointer(directory=sys.argv[2]) as ckpt:
    before = ckpt.latest()
    ckpt.save(before.step + 1 if before else 0, lambda: {"weights": [1.0, 2.0]})
    print(ckpt.latest().step, sorted(name for name in sys.modules if name.startswith("federator")))
"""
MODULES = [
    "federator",
    "federator.checkpoint",
    "federator.checkpoint.checkpointer",
    "federator.checkpoint.files",
    "federator.checkpoint.job",
    "federator.checkpoint.lease",
    "federator.checkpoint.phases",
    "federator.checkpoint.ranks",
    "federator.checkpoint.state_files",
    "federator.checkpoint.step_times",
    "federator.checkpoint.warning",
]


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A folder with nothing of federator but this package."""
    (tmp_path / "lib" / "federator").mkdir(parents=True)
    shutil.copy(federator.__file__, tmp_path / "lib" / "federator")
    shutil.copytree(FOLDER, tmp_path / "lib" / "federator" / "checkpoint")
    return tmp_path / "lib"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_syntax_is_that_of_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("version", ["", "3.8", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_it_works_alone_in_an_isolated_interpreter(
    alone: Path, tmp_path: Path, version: str
) -> None:
    """With the Python that runs the tests, and with others where they are installed."""
    python = shutil.which(f"python{version}") if version else sys.executable
    if (
        python is None
        or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"python{version} is not here")
    for step in (0, 1):
        argv = [python, "-I", "-W", "error", "-c", USE, str(alone), str(tmp_path / "ckpt")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (f"{step} {MODULES}\n", "")
