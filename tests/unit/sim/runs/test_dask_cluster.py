"""A Dask cluster does runs as this process would; what it cannot do is said in one line."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.errors import InvalidRequest
from federator.sim.runs import dask_cluster
from federator.sim.runs.base import RunFailure, outcomes
from federator.sim.runs.dask_cluster import DaskCluster, perform_there
from federator.sim.runs.kept import code_digest
from tests.fakes.runs import squares

pytestmark = pytest.mark.slow

SCHEDULER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
                      processes=True) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""
RUNS = """
import sys
from federator.sim.runs.base import outcomes
from federator.sim.runs.dask_cluster import DaskCluster
from federator.sim.runs.executors import InProcess
from tests.fakes.runs import squares
if __name__ == "__main__":
    runs = squares([3, 13, 1, 14, 2])
    assert list(outcomes(runs, DaskCluster(sys.argv[1]))) == list(outcomes(runs, InProcess()))
    assert list(outcomes([], DaskCluster(sys.argv[1]))) == []
    print("equal")
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers, in processes of their own."""
    (tmp_path / "scheduler.py").write_text(SCHEDULER)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "scheduler.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
    ) as child:
        assert child.stdout is not None
        yield child.stdout.readline().decode().strip()
        child.communicate()  # the end of its input is the end of it


def test_a_cluster_gives_what_one_process_gives(scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "runs.py").write_text(RUNS)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "runs.py"), scheduler],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.stdout == "equal\n", done.stderr


def test_a_worker_with_other_code_gives_no_result() -> None:
    (run,) = squares([3])
    assert perform_there(run, code_digest()) != perform_there(run, "other")
    assert perform_there(run, "other") == RunFailure(
        name="square 3", reason="the worker has other code of Federator, or other libraries"
    )


def test_an_address_where_nobody_is_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_ANSWER_WITHIN_S", 0.5)
    for address in ("tcp://127.0.0.1:1", "no address at all"):
        with pytest.raises(InvalidRequest, match=f"--dask: {address}: no scheduler answers: "):
            list(outcomes(squares([1]), DaskCluster(address)))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.util.find_spec("distributed") is not None
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidRequest, match=r"--dask: needs distributed.*federator\[dask\]"):
        list(outcomes(squares([1]), DaskCluster("tcp://127.0.0.1:1")))
