"""A gate in front of a site's sbatch: the moment between order and sbatch, held for a test.

The helper that the federation's sudo rule names is put aside, and a wrapper takes its place. It
stops every submission as a slow sbatch would, and hands it on when the test opens the gate: with
as much time to call sbatch as a new one has, however long it stood here. Cancels and signals pass.
Nothing in the product knows of it.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from federator.slurm.helper_client import START_WITHIN_S
from federator.testbed.layout import HELPER
from tests.slurm.federation import at

FOLDER: Final = PurePosixPath("/tmp/federator-gate")  # in the container
ASIDE: Final = f"{HELPER}.aside"
LONGEST_S: Final = 80  # who waits longer gives up, as a helper does whose sbatch hangs

# Each one that waits leaves its process id in a file that is called as its attempt.
_WRAPPER: Final = f"""#!/bin/bash
request=$(mktemp "{FOLDER}/request.XXXXXX") && cat >"$request" && exec 3<"$request" || exit 70
if grep -q '"op": *"sbatch"' "$request"; then
  attempt=$(grep -o 'fed:[0-9]*:[0-9]*' "$request" | head -n 1)
  echo $$ >"{FOLDER}/$attempt"
  while [ ! -e "{FOLDER}/open" ] && ((SECONDS < {LONGEST_S})); do
    sleep 0.05
  done
  if [ ! -e "{FOLDER}/open" ]; then
    rm -f "{FOLDER}/$attempt"
    exit 70
  fi
  start_by_s=$(($(date +%s) + {START_WITHIN_S:.0f})).0
  sed -i 's/"start_by_s": *[0-9.]*/"start_by_s": '"$start_by_s/" "$request" && exec 3<"$request"
  rm -f "{FOLDER}/$attempt"
fi
rm -f "$request"
exec {ASIDE} <&3
"""
_RESTORE: Final = f"""
[ -e {ASIDE} ] || exit 0
touch {FOLDER}/open
for waiting in {FOLDER}/fed:*; do
  for turn in $(seq 20); do
    [ -e "$waiting" ] && kill -0 "$(cat "$waiting")" 2>/dev/null || break
    sleep 0.05
  done
done
mv -f {ASIDE} {HELPER} && rm -rf {FOLDER}
"""
_CLOSE: Final = f"""
mkdir -p {FOLDER} && chmod 1777 {FOLDER} && rm -f {FOLDER}/*
[ -e {ASIDE} ] || cp -p {HELPER} {ASIDE}
cat >{HELPER}.gate && chmod 0755 {HELPER}.gate && mv -f {HELPER}.gate {HELPER}
"""


def restore(site: str) -> None:
    """Let all pass and put the helper back; harmless where there is no gate."""
    at(site, "sh", "-ec", _RESTORE)


class Gate:
    """The gates of one test."""

    def __init__(self) -> None:
        self._sites: list[str] = []

    def close(self, *sites: str) -> None:
        for site in sites:
            self._sites.append(site)
            at(site, "sh", "-ec", _CLOSE, stdin=_WRAPPER)

    def open(self, *sites: str) -> None:
        """Let those who wait go on, and all who come."""
        for site in sites:
            at(site, "touch", f"{FOLDER}/open")

    def held(self, site: str) -> dict[str, int]:
        """Process ids of those who wait, by attempt ("fed:7:1")."""
        text = at(site, "sh", "-c", f"cd {FOLDER} && grep -H . fed:* 2>/dev/null || true")
        pairs = [line.rsplit(":", 1) for line in text.splitlines()]
        return {attempt: int(pid) for attempt, pid in pairs}

    def remove(self) -> None:
        for site in self._sites:
            restore(site)
        self._sites.clear()
