"""What the quickstart says of the auctions that its jobs went through; and Dask's workers."""

from __future__ import annotations

import importlib.util
import io
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from federator.cli.queue_columns import COLUMNS
from federator.model.score import Score

EXAMPLES = Path(__file__).parents[2] / "examples"


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def quickstart() -> ModuleType:
    return loaded(EXAMPLES / "quickstart.py")


def test_the_quickstart_names_each_term_of_a_score(quickstart: ModuleType) -> None:
    scores = {"alpine": list(Score(locality_cost=28.0, gpu_worth=8.0)), "boreal": list(Score())}
    said = quickstart.why_there({"site": "boreal", "offers": scores, "refusals": {}})
    assert said == "boreal won: alpine bid locality cost 28, gpu worth 8; boreal bid a perfect fit"


def test_in_a_narrow_terminal_the_quickstart_asks_for_columns_that_have_a_place(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0, stdout="a table\n")

    monkeypatch.setattr(quickstart, "run", run)
    for width in (80, 120):
        assert quickstart.table_of(Console(width=width), ["7", "8"]) == "a table"
    ((*_, fields, _, ids), wide) = asked
    assert (ids, wide) == ("7,8", ("fsqueue", "-t", "all", "-j", "7,8"))
    columns = dict(field.split(":") for field in fields.split(","))
    known = {column.name.lower() for column in COLUMNS}
    assert {name.lower() for name in columns} <= known
    assert sum(map(int, columns.values())) <= 80


def test_the_quickstart_shows_what_a_command_printed_as_it_stands(quickstart: ModuleType) -> None:
    printed = io.StringIO()
    row = "alpine [west]  " + "up " * 40
    quickstart.show(Console(file=printed, width=80), row)
    assert printed.getvalue() == f"{row}\n"


# Stands for ``federator web``: it listens where it is asked to, until it is ended.
PAGE = """#!{python}
import os, socket, sys
if os.path.basename(os.getcwd()) == "refused":
    sys.exit("Error: wrong configuration")
host, port = sys.argv[sys.argv.index("--listen") + 1].split(":")
door = socket.create_server((host, int(port)))
while True:
    door.accept()
"""


def started_page(
    folder: Path, first_port: int, *, but: str = ""
) -> subprocess.CompletedProcess[str]:
    """What ``./quickstart --keep`` does for its page, if it begins at a port; ended afterwards.

    ``but``: functions of bash that take the place of its own.
    """
    page = folder / ".venv" / "bin" / "federator"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE.format(python=sys.executable))
    page.chmod(0o755)
    text = (EXAMPLES.parent / "quickstart").read_text()
    wanted = re.findall(r"^(?:answers|start_page)\(\) .*?\}$", text, re.MULTILINE | re.DOTALL)
    assert [f.partition("(")[0] for f in wanted] == ["answers", "start_page"]
    functions = "\n".join([*wanted, but]).replace("first=8410", f"first={first_port}")
    end = 'kill "$(cat "$state/web.pid")" 2>/dev/null || true'
    return subprocess.run(
        ["bash", "-euc", f'state={folder}\n{functions}\npage=$(start_page); {end}; echo "$page"'],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_quickstart_takes_the_next_port_where_another_program_has_that_of_the_page(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        done = started_page(tmp_path, taken)
    assert done.returncode == 0, done.stderr
    said, *_ = done.stderr.splitlines()
    assert said == f"another program listens at port {taken} of this machine"
    address = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", done.stdout)
    assert address is not None, done.stdout
    assert taken < int(address[1]) < taken + 20


def test_the_quickstart_says_so_where_no_port_is_free(tmp_path: Path) -> None:
    done = started_page(tmp_path, 8410, but="answers() { true; }")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("another program listens at port") == 20
    assert done.stdout == "none, ports 8410 to 8429 of this machine are taken\n"
    assert not (tmp_path / "web.log").exists()


def test_the_quickstart_gives_no_address_of_a_page_that_does_not_start(tmp_path: Path) -> None:
    folder = tmp_path / "refused"
    done = started_page(folder, 8410)
    assert done.returncode == 0, done.stderr
    assert f"the page did not start; see {folder}/web.log" in done.stderr
    assert done.stdout == f"none, see {folder}/web.log\n"


class SlurmCluster:
    """Stands for that of dask-jobqueue, which is not installed for tests: keeps its options."""

    def __init__(self, **options: object) -> None:
        self.options = options


def test_dask_workers_are_submitted_by_the_federations_own_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = ModuleType("dask_jobqueue.slurm")
    library.SLURMJob = type("SLURMJob", (), {"submit_command": "sbatch"})  # type: ignore[attr-defined]
    library.SLURMCluster = SlurmCluster  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_jobqueue", ModuleType("dask_jobqueue"))
    monkeypatch.setitem(sys.modules, "dask_jobqueue.slurm", library)
    example = loaded(EXAMPLES / "dask" / "cluster.py")
    job = example.FederationCluster.job_cls
    scripts = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())["project"]["scripts"]
    assert {job.submit_command, job.cancel_command} <= set(scripts)
    assert issubclass(job, library.SLURMJob)
    assert example.cluster(memory="8GB").options["memory"] == "8GB"
