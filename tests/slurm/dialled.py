"""A federation of which one site dials, from one login node or from two."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from federator.testbed import inside, layout
from tests.slurm.daemons_host import DaemonsHost
from tests.slurm.federation import Running, at
from tests.slurm.login_nodes import OTHER

SITE = "alpine"
PLACE = "/tmp/tests-dial"  # at the site: the key, the pinned host key, agent.yaml
_SERVICE = f"/opt/federator/bin/federator agent --dial --config {PLACE}/agent.yaml"
_AS_FEDERATOR = "setpriv --reuid=federator --regid=federator --init-groups"
_BEGIN_ELSEWHERE = f"""
unshare --uts sh -c 'hostname {OTHER}; exec {_AS_FEDERATOR} {_SERVICE}' \
  </dev/null >{PLACE}/said 2>&1 &
"""
_END_ALL = f"""
for file in "$1"/dial.*; do kill "$(cat "$file")"; done
rm -rf {PLACE}
"""


class Dialled(Running):
    """A federation of which one site dials.

    Args:
        folder: for its files.
        both: from a second login node as well, which only root can make.
    """

    def __init__(self, folder: Path, *, both: bool = False) -> None:
        super().__init__(folder, pass_interval_s=10.0)
        settings = yaml.safe_load(self.config.read_text())
        del settings["sites"][SITE]["ssh"]
        settings["sites"][SITE]["connect"] = "outbound"
        self.config.write_text(yaml.safe_dump(settings))
        self.host: DaemonsHost | None = None
        self._both = both
        self._dialler: subprocess.Popen[bytes] | None = None
        self._state_dir = ""

    def spawn(self) -> None:
        """Start the daemon; the first time, the site's service as well."""
        super().spawn()
        if self.host is None:
            self.host = DaemonsHost(self.folder / "host", self.folder / "daemon.sock", SITE)
            self._dial(self.host)

    def _dial(self, host: DaemonsHost) -> None:
        """Start the site's service, as an admin sets it up."""
        settings = yaml.safe_load(at(SITE, "cat", layout.AGENT_CONFIG))
        self._state_dir = settings["state_dir"]
        daemon = {"host": host.address, "port": host.port}
        paths = {"key": f"{PLACE}/key", "known_hosts": f"{PLACE}/known_hosts"}
        settings["daemons"] = [daemon | paths]
        files = {
            "key": host.key,
            "known_hosts": host.known_hosts,
            "agent.yaml": yaml.safe_dump(settings),
        }
        make = f"rm -rf {PLACE} {self._state_dir}/dial.*; umask 077; mkdir {PLACE}"
        at(SITE, "sh", "-c", make, user="federator")
        for name, text in files.items():
            put = ("sh", "-c", f"umask 077; cat >{PLACE}/{name}")
            at(SITE, *put, user="federator", stdin=text)
        self._dialler = subprocess.Popen(
            inside.exec_argv(layout.site(SITE), _SERVICE.split(), user="federator")
        )

    def start(self) -> None:
        """Start the daemon, wait for every site, and have the second login node stand by."""
        super().start()
        if self._both and not self.dialler(OTHER):
            at(SITE, "sh", "-c", _BEGIN_ELSEWHERE)

    def dialler(self, host: str) -> int:
        """The process id of the service on a login node; 0: it was not started."""
        said = at(SITE, "sh", "-c", f"cat {self._state_dir}/dial.{host} || true")
        return int(said or 0)

    def became(self, host: str, what: str) -> int:
        """How often a login node's dialling had this outcome."""
        lines = [line for line in self.log().splitlines() if '"site_dialled"' in line]
        return sum(f'"host": "{host}"' in line and f'"became": "{what}"' in line for line in lines)

    def tidy(self) -> None:
        """End the site's services first: they would start one agent after the other."""
        try:
            if self._dialler is not None:
                at(SITE, "sh", "-c", _END_ALL, "sh", self._state_dir)
                self._dialler.wait(60)
        finally:
            if self.host is not None:
                self.host.close()
            super().tidy()

    def ups(self) -> int:
        """How often a channel to the site came up."""
        lines = self.log().splitlines()
        return sum('"site_up"' in line and f'"{SITE}"' in line for line in lines)
