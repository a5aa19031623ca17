"""Has processes of this release and of the one before it meet: each imports a tree of its own.

Both run by this interpreter and with its libraries. Of the release before, the tree comes out of
Git: of the newest tag before this commit, or of the commit in ``tests/data/previous_release`` while
there is no tag.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import yaml

from tests.fakes import slurm_programs

REPOSITORY: Final = Path(__file__).parents[2]
NAMED: Final = REPOSITORY / "tests" / "data" / "previous_release"
SITE: Final = "alpine"
USER: Final = "nobody"  # who is at every host, and is not the account of a test
LASTS_S: Final = 600.0  # with the rest less than pytest's patience: see test_mixed_releases.py
ENDS_WITHIN_S: Final = 60.0  # at least, even if the time is over
GIT_LASTS_S: Final = 60.0
START: Final = """
import sys
import federator
tree, programs, *sys.argv[1:] = sys.argv[1:]
assert federator.__file__.startswith(tree), (federator.__file__, tree)
if programs:
    from federator.slurm import client, helper_client
    client.ENVIRONMENT["PATH"] = programs
    helper_client.HELPER = (programs + "/sudo", "-n", "-u")
program, *sys.argv[1:] = sys.argv[1:]
from importlib import import_module
import_module("federator.cli." + program).main()
"""


class NoSuchCommit(Exception):
    """Git has no earlier release to give: there is no repository, or it is a shallow one."""


def _git(*arguments: str) -> bytes:
    # Whose repository it is does not matter: nothing that it configures is run.
    argv = ("git", "-c", "safe.directory=*", "-C", str(REPOSITORY), *arguments)
    try:
        return subprocess.run(argv, check=True, capture_output=True, timeout=GIT_LASTS_S).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        raise NoSuchCommit(said.decode(errors="replace").strip()) from error


def previous_release() -> str:
    """The newest tag before this commit, or else the commit that is named."""
    try:
        return _git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^").decode().strip()
    except NoSuchCommit:
        return NAMED.read_text().split()[-1]


def unpack_previous(folder: Path, *paths: str) -> Path:
    """Write the package of the release before into ``folder``, and return that.

    Args:
        folder: is there.
        paths: what else of that release's tree.

    Raises:
        NoSuchCommit: Git does not have it.
    """
    packed = _git("archive", "--format=tar", previous_release(), "federator", *paths)
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class MixedFederation:
    """A daemon and one site, whose Slurm is that of ``slurm_programs``, as processes.

    Args:
        folder: takes log, journal, sockets and what they say.
        lasts_s: all that is waited for has so long from now on; then the test fails.
    """

    def __init__(self, folder: Path, lasts_s: float = LASTS_S) -> None:
        self.folder = folder
        self._lasts_s = lasts_s
        self._until_s = time.monotonic() + lasts_s
        self.slurm = folder / "slurm"
        slurm_programs.install(self.slurm)
        (folder / "start.py").write_text(START)
        (folder / "agent").mkdir()
        agent = {"site": SITE, "socket": str(folder / "site.sock")}
        agent["state_dir"] = str(folder / "agent")
        (folder / "agent.yaml").write_text(yaml.safe_dump(agent))
        self.log = folder / "daemon.log"
        self.store = f"sqlite:///{folder}/queue.db"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, daemon: Path, agent: Path) -> None:
        """Start a daemon of the tree ``daemon``, which starts its agent from the tree ``agent``."""
        self._configure(agent)
        self.log.unlink(missing_ok=True)
        self._process = self._daemon(daemon)
        self._await(lambda: '"site_up"' in self._said(), lambda: "the site is not up")

    def _await(self, attempt: Callable[[], bool], what: Callable[[], str]) -> None:
        """Ask until it is so; the test fails if it is not before the federation's time is over.

        Half of the time at most is spent on asking, which takes CPU from what is waited for.
        """
        asked_s = time.monotonic()
        while not attempt():
            assert asked_s < self._until_s, self._late(what())
            time.sleep(max(0.05, time.monotonic() - asked_s))
            asked_s = time.monotonic()

    def _left_s(self) -> float:
        return max(0.0, self._until_s - time.monotonic())

    def _late(self, what: str) -> str:
        said = self.log.read_text() if self.log.exists() else ""
        return f"{what}, {self._lasts_s:g} s after the test began; the daemon said: {said}"

    def _said(self) -> str:
        assert self._process is not None
        said = self.log.read_text()
        assert self._process.poll() is None, said
        assert '"link_fault"' not in said, said
        return said

    def start_in_vain(self, daemon: Path, agent: Path) -> tuple[int, str]:
        """Start a daemon that ends by itself; its exit status and what it said last."""
        self._configure(agent)
        self.log.unlink(missing_ok=True)
        self._process = self._daemon(daemon)
        try:
            status = self._process.wait(self._left_s())
        except subprocess.TimeoutExpired:
            raise AssertionError(self._late("the daemon runs")) from None
        return status, self.log.read_text().splitlines()[-1]

    def _configure(self, agent: Path) -> None:
        command = ["env", f"PYTHONPATH={agent}", *self._argv(agent, self.slurm, "main")]
        site = {
            "region": "west",
            "command": [*command, "agent", "--config", str(self.folder / "agent.yaml")],
            "partitions": ["fed"],
            "poll_interval_s": 0.5,
        }
        config = {
            "federation": "mixed",
            "store": self.store,
            "socket": str(self.folder / "daemon.sock"),
            "policy": {"name": "mast", "pass_interval_s": 1},
            "regions": {"west": {"shared": str(self.folder)}},
            "gpus": {"a100": {"mem_gib": 80, "nvlink": True, "weight": 1.0}},
            "sites": {SITE: site},
            "tenants": {"vision": {"quota": {"gpus": 16}, "users": [USER]}},
        }
        (self.folder / "federation.yaml").write_text(yaml.safe_dump(config))

    def _argv(self, tree: Path, programs: Path | str, program: str) -> list[str]:
        start = str(self.folder / "start.py")
        return [sys.executable, "-P", start, str(tree), str(programs), program]

    def _daemon(self, tree: Path) -> subprocess.Popen[bytes]:
        config = str(self.folder / "federation.yaml")
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self._argv(tree, "", "main"), "daemon", "--config", config],
                env={**os.environ, "PYTHONPATH": str(tree)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """End the daemon in order, and with it its agent."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(max(ENDS_WITHIN_S, self._left_s()))
            finally:
                process.kill()
                process.wait()

    # ---- commands ----

    def run(self, tree: Path, program: str, *arguments: str, at_site: bool = False) -> str:
        """What a command of a tree prints, called at the daemon's host or at the site."""
        socket = self.folder / ("site.sock" if at_site else "daemon.sock")
        try:
            done = subprocess.run(
                [*self._argv(tree, "", program), *arguments],
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(tree),
                    "FEDERATOR_SOCKET": str(socket),
                },
                input="#!/bin/sh\ntrue\n",
                text=True,
                capture_output=True,
                check=False,
                timeout=self._left_s(),
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(self._late(f"{program} {arguments} runs")) from None
        assert done.returncode == 0, (done.stderr, self.log.read_text())
        return done.stdout

    def submit(self, tree: Path, *options: str) -> str:
        """The id of a job with two GPUs."""
        asked = ("--parsable", f"--uid={USER}", "--gres=gpu:2", "--time=5", *options)
        return self.run(tree, "fsbatch", *asked).strip()

    def rows(self, tree: Path) -> Mapping[str, Mapping[str, Any]]:
        """As ``fsqueue -t all --json`` at the site, by id."""
        said = self.run(tree, "fsqueue", "-t", "all", "--json", at_site=True)
        rows = json.loads(said)["jobs"]
        return {str(row["id"]): row for row in rows}

    def await_states(self, tree: Path, states: Mapping[str, str]) -> None:
        """Wait until jobs, by id, are in these states."""

        seen: dict[str, str] = {}

        def reached() -> bool:
            self._said()
            rows = self.rows(tree)
            seen.update((id_, rows[id_]["state"]) for id_ in states)
            return seen == states

        self._await(reached, lambda: f"{seen} and not {states}")

    def let_end(self) -> None:
        """What runs at the site completes, and what comes later."""
        (self.slurm / "go").touch()
