"""Measures an hour of shadow mode beside the work of three sites' own users.

    python -m tests.bench.bench_shadow_hour --folder DIR [--on 20] [--off 4] [--rounds 3]

Needs the testbed, idle. Three users submit at each site, a job every few seconds, of one to
sixteen GPUs, some with a dependency, begin time, array or licence, and look at the queue once a
second. Spans without a daemon and with one, whose sites are all in shadow mode, take turns, in
minutes; all of them are one record in DIR, of which ``federator shadow report`` is printed at the
end. The table is that of ``bench_shadow_load``. Below it stand the requests that change something
at a site, by sdiag, beside the users' submissions, and the lines of sudo's log. Asserts nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from federator.testbed import inside, layout
from tests.bench.bench_shadow_load import SITES, Work, at, everywhere, shadowing, span, table

_EVERY_S: Final = {"alpine": 8, "boreal": 10, "cedar": 14}  # between two submissions
_PLACE: Final = "/tmp/bench-load"  # at a site: what ends the load, and its count
_SUDO_LOG: Final = "/var/log/sudo-of-bench"
_LOGGED: Final = "/etc/sudoers.d/zz-bench"
_LOAD: Final = r"""
RANDOM=$1; last=; turn=0
users=(localuser vision1 nlp1 bio1)
accounts=(local vision nlp bio)
gpus=(1 1 2 4 8)
submit() {
  local who=$((RANDOM % 4)) gpu=${gpus[RANDOM % 5]} runs=$((40 + RANDOM % 260)) more=() id
  [ $((RANDOM % 10)) -gt 0 ] || more+=(--nodes=2)
  [ "$last" = "" ] || [ $((RANDOM % 20)) -gt 0 ] || more+=(--dependency=afterany:$last)
  [ $((RANDOM % 30)) -gt 0 ] || more+=(--begin=now+60)
  [ $((RANDOM % 30)) -gt 0 ] || more+=(--array=1-3%2)
  [ $((RANDOM % 30)) -gt 0 ] || more+=(--licenses=matlab:1)
  [ $((RANDOM % 12)) -eq 0 ] || more+=(--gres=gpu:$gpu)
  id=$(runuser -u ${users[who]} -- sbatch --parsable --partition=local --chdir=/tmp \
    --output=/dev/null --account=${accounts[who]} "${more[@]}" \
    --time=$((1 + runs * (2 + RANDOM % 4) / 60)) \
    --wrap="sleep $runs" 2>>PLACE/errors) && echo $id >>PLACE/submitted && last=$id
}
for k in $(seq 30); do submit; done
until [ -e PLACE/end ]; do
  runuser -u localuser -- squeue --noheader >/dev/null
  [ $((turn++ % $2)) -gt 0 ] || submit
  sleep 1
done
""".replace("PLACE", _PLACE)
_WRITES: Final = re.compile(
    r"^\s+(REQUEST_\w*(?:SUBMIT|UPDATE|KILL|CANCEL|CREATE|DELETE|REQUEUE|SUSPEND|STEP|ALLOCAT"
    r"|RECONFIGURE|SHUTDOWN|SIGNAL|SET|MODIFY|TOP_JOB|REBOOT|TAKEOVER|CRONTAB|BURST)\w*)"
    r"\s+\(\s*\d+\)\s+count:(\d+)",
    re.MULTILINE,
)


@contextmanager
def users(seed: int) -> Iterator[None]:
    """The work of the sites' own users."""
    fresh = f"rm -rf {_PLACE}; mkdir {_PLACE}; chmod 755 {_PLACE}"
    everywhere(lambda site: at(site, "sh", "-c", fresh))

    def work(number: int, site: str) -> None:
        words = ("bash", "-c", _LOAD, "load", str(seed + number), str(_EVERY_S[site]))
        subprocess.run(inside.exec_argv(layout.site(site), words), check=False)

    threads = [threading.Thread(target=work, args=each) for each in enumerate(SITES)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        everywhere(lambda site: at(site, "touch", f"{_PLACE}/end"))
        for thread in threads:
            thread.join()


@contextmanager
def logged_sudo() -> Iterator[None]:
    """Each call of sudo at a site is a line of its log."""
    rule = f'Defaults logfile="{_SUDO_LOG}"'
    words = f"rm -f {_SUDO_LOG}; echo '{rule}' >{_LOGGED}; chmod 440 {_LOGGED}; touch {_SUDO_LOG}"
    everywhere(lambda site: at(site, "sh", "-c", words))
    try:
        yield
    finally:
        everywhere(lambda site: at(site, "rm", "-f", _LOGGED, _SUDO_LOG))


def writes(site: str) -> dict[str, int]:
    """Requests that change something, of whoever, up to now; what users submitted is the last."""
    found = {name: int(count) for name, count in _WRITES.findall(at(site, "sdiag"))}
    own = at(site, "sh", "-c", f"cat {_PLACE}/submitted | wc -l")
    return dict(sorted(found.items())) | {"submitted by its users": int(own)}


def changes(before: dict[str, dict[str, int]]) -> str:
    """A line for each site: what was asked for since, and what users submitted of it."""
    lines = []
    for site in SITES:
        now = writes(site)
        grown = {name: count - before[site].get(name, 0) for name, count in now.items()}
        told = ", ".join(f"{name} {count}" for name, count in grown.items() if count)
        sudo = at(site, "sh", "-c", f"wc -l <{_SUDO_LOG}").strip()
        ours = at(site, "sh", "-c", "scontrol -o show jobs | grep -c 'Comment=fed:' || true")
        lines.append(f"{site}: {told}; lines of sudo {sudo}; jobs of the federation {ours.strip()}")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--on", type=float, default=20.0)
    parser.add_argument("--off", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=24)
    options = parser.parse_args()
    without: list[dict[str, Work]] = []
    beside: list[dict[str, Work]] = []
    options.folder.mkdir(parents=True)
    running = shadowing(options.folder, 10.0)
    with logged_sudo(), users(options.seed):
        time.sleep(60)
        before = {site: writes(site) for site in SITES}
        for _ in range(options.rounds):
            without.append(span(60 * options.off))
            print(f"without\n{table(without[-1:], without[-1:])}", flush=True)
            running.start()
            try:
                beside.append(span(60 * options.on))
            finally:
                running.stop()
            print(f"with\n{table(without[-1:], beside[-1:])}", flush=True)
            print(f"so far\n{table(without, beside)}\n{changes(before)}", flush=True)
    config = ("--config", str(running.config))
    print(running.run("federator", "shadow", "report", *config).stdout)
    everywhere(lambda site: at(site, "sh", "-c", "scancel --partition=local"))


if __name__ == "__main__":
    main()
