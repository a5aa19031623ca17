"""Who enters a container by its namespaces finds what ``docker exec`` would give them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from federator.errors import SiteUnavailable
from federator.testbed import entry, inside
from federator.testbed.entry import Entry, entry_argv, entry_to
from federator.testbed.layout import SITES

PASSWD = "root:x:0:0:root:/root:/bin/bash\nnlp1:x:2003:2004::/home/nlp1:/bin/bash\n"


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(PASSWD)
    monkeypatch.setattr(Entry, "root", tmp_path)
    return Entry(pid=7, began="1", environment={"HOSTNAME": "alpine"})


def test_a_user_has_their_ids_groups_home_and_name(container: Entry) -> None:
    found = entry_argv(container, ["sbatch", "a b.sh"], "nlp1")
    assert found is not None
    argv, environment = found
    become = argv[argv.index("--") + 1 :]
    assert become[:4] == ["setpriv", "--reuid=2003", "--regid=2004", "--init-groups"]
    assert become[4:] == ["sbatch", "a b.sh"]
    assert f"--wd={container.root}/home/nlp1" in argv
    assert environment["USER"] == environment["LOGNAME"] == "nlp1"
    assert environment["HOME"] == "/home/nlp1"


def test_root_needs_no_name(container: Entry) -> None:
    found = entry_argv(container, ["id"], None)
    assert found is not None
    argv, environment = found
    assert argv[-2:] == ["--", "id"]
    assert environment["HOME"] == "/root"
    assert "USER" not in environment


def test_nothing_of_our_own_environment_is_there(
    container: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    found = entry_argv(container, ["env"], "nlp1")
    assert found is not None
    assert set(found[1]) == {"PATH", "HOSTNAME", "USER", "LOGNAME", "HOME"}


def test_whom_the_container_does_not_know_does_not_enter(container: Entry) -> None:
    assert entry_argv(container, ["id"], "nobody-there") is None


def test_a_container_that_was_started_again_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry, "_known", {})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/nsenter")
    mine = Entry(pid=os.getpid(), began=entry._began(os.getpid()))
    looks = iter([Entry(pid=os.getpid(), began="of another process"), mine])
    monkeypatch.setattr(entry, "_look", lambda _container: next(looks))
    assert entry_to("c") is None
    assert entry_to("c") == mine
    assert entry_to("c") == mine  # without a look


def test_who_is_not_root_goes_by_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert entry_to("c") is None


def test_a_command_that_takes_too_long_is_ended_with_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = f"sleep 60.{os.getpid()}"  # not of another run on this machine
    argv = ["sh", "-c", f"{own} & echo $!; wait"]
    monkeypatch.setattr(inside, "_cheapest_argv", lambda *_: (argv, None))
    with pytest.raises(SiteUnavailable, match="did not end"):
        inside.execute(SITES[0], ["sleep", "60"], timeout_s=0.3)  # it would wait for the pipe
    left = subprocess.run(["pgrep", "-f", f"^{own}$"], capture_output=True, check=False)
    assert left.stdout == b""


def test_what_a_command_leaves_behind_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["sh", "-c", "sleep 61 & echo $!"]
    monkeypatch.setattr(inside, "_cheapest_argv", lambda *_: (argv, None))
    done = inside.execute(SITES[0], ["slurmctld"], timeout_s=30)
    os.kill(int(done.stdout), signal.SIGKILL)
