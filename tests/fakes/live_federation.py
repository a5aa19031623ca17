"""A whole federation on this machine without Slurm: the real daemon, and three simulated sites.

Commands run against it as users type them: in a shell, as processes. Those of users connect to the
agent of the site ``alpine`` and are ``vision1``; those of admins (``federator``, but for its
``data``) connect to the daemon, where whoever runs the tests is an operator.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.fakes.live_daemon import USER

ROOT: Final = Path(__file__).parents[2]
SITES: Final = {"alpine": "a100", "boreal": "a100", "cedar": "h100"}
STARTS_WITHIN_S: Final = 300.0
FURNISHED_WITHIN_S: Final = 100.0
A_SHELL_LASTS_S: Final = 400.0
ENDS_WITHIN_S: Final = 30.0  # of SIGTERM, or of SIGKILL
ALL_S: Final = STARTS_WITHIN_S + FURNISHED_WITHIN_S + A_SHELL_LASTS_S + 2 * ENDS_WITHIN_S
"""One test waits for no more, be it the first and the last one of its file."""
AS_ADMIN: Final = """\
pip() { echo "pip $*"; }
federator() {
    case $1 in
    experiment) command federator "$@" --quick ;;
    data) command federator "$@" ;;
    *) FEDERATOR_SOCKET="$DAEMON" command federator "$@" ;;
    esac
}
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
"""


def settings(folder: Path) -> dict[str, Any]:
    """federation.yaml: the names that documents use."""
    return {
        "federation": "demo",
        "store": f"sqlite:///{folder}/queue.db",
        "socket": str(folder / "daemon.sock"),
        "regions": {"west": {"shared": "/shared/west"}, "east": {"shared": "/shared/east"}},
        "gpus": {name: {"mem_gib": 80, "nvlink": True} for name in ("a100", "h100")},
        "mail": {"command": ["/bin/true"], "sender": "federator@example.org"},
        "policy": {"preemption": {"budget_frac": 1.0, "grace_s": 5}},
        "sites": {
            name: {
                "region": "west" if name == "alpine" else "east",
                "command": [name, gpu_type],  # see ``live_daemon``
                "partitions": ["gpu"],
                "poll_interval_s": 1,
            }
            for name, gpu_type in SITES.items()
        },
        "storage": {
            "west-flash": {"mounts": {"alpine": str(folder / "lustre/fed")}},
            "east-disk": {"mounts": dict.fromkeys(("boreal", "cedar"), str(folder / "gpfs/data"))},
        },
        "tenants": {
            "vision": {"priority": 2, "quota": {"gpus": 64}, "users": [USER, "ada"]},
            "nlp": {"priority": 3, "quota": {"gpus": 32}, "users": ["nlp1"]},
        },
    }


@dataclass(frozen=True)
class LiveFederation:
    """A daemon that runs, and the folder in which commands are typed."""

    folder: Path
    desk: Path

    @property
    def config(self) -> Path:
        """Its federation.yaml."""
        return self.folder / "federation.yaml"

    def shell(
        self, script: str, lasts_s: float = A_SHELL_LASTS_S
    ) -> subprocess.CompletedProcess[str]:
        """Run commands in one shell, until the first that fails; a test fails that waits longer."""
        try:
            return subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", AS_ADMIN + script],
                cwd=self.desk,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=lasts_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            daemon = (self.folder / "daemon.log").read_text()
            raise AssertionError(f"after {lasts_s:g} s still runs: {script}\n{daemon}") from None

    def _environment(self) -> Mapping[str, str]:
        programs = Path(sys.executable).parent
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FEDERATOR_", "SLURM_"))}
        return kept | {
            "PATH": f"{programs}:{kept.get('PATH', '/usr/bin:/bin')}",
            "PYTHONPATH": str(ROOT),
            "FEDERATOR_SOCKET": str(self.folder / "alpine" / "agent.sock"),
            "DAEMON": str(self.folder / "daemon.sock"),
            "HOME": str(self.desk),
            "FEDERATOR_BENCH": "quick",
        }


@contextlib.contextmanager
def live_federation(folder: Path) -> Iterator[LiveFederation]:
    """Have a daemon with three sites, all of them up."""
    desk = folder / "desk"
    desk.mkdir()
    running = LiveFederation(folder, desk)
    running.config.write_text(yaml.safe_dump(settings(folder)))
    with (folder / "daemon.log").open("w") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.live_daemon", str(folder)],
            cwd=ROOT,
            stderr=log,
        )
        try:
            _wait_for_sites(running, daemon)
            yield running
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(ENDS_WITHIN_S)


def _wait_for_sites(running: LiveFederation, daemon: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + STARTS_WITHIN_S
    log = running.folder / "daemon.log"
    while log.read_text().count('"event": "site_up"') < len(SITES):
        assert daemon.poll() is None, log.read_text()
        assert time.monotonic() < until_s, log.read_text()
        time.sleep(0.1)
