"""Measures what an agent in shadow mode adds to the work of three real slurmctlds.

    python -m tests.bench.bench_shadow_load [--jobs 200] [--seconds 120] [--rounds 2] [--poll 10]

Needs the testbed, idle. A local user has 1-GPU jobs queued at each site and looks at the queue once
a second, with a small job each time: that is the site's own load. Spans without a daemon and with
one, whose sites are all in shadow mode, take turns. ``sdiag`` says how many RPCs the agent's
account sent and how long slurmctld worked on them; ``/proc`` how much CPU slurmctld had. Prints a
table; asserts nothing.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from federator.errors import FederatorError
from federator.testbed import inside, layout
from tests.slurm.federation import Running

SITES: Final = tuple(site.name for site in layout.SITES)
_STATE: Final = """
sdiag
cat /proc/$(pgrep -o -x slurmctld)/stat
getconf CLK_TCK
"""
_BY_USER: Final = re.compile(
    r"^\s+(\S+)\s+\(\s*\d+\)\s+count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)"
)


@dataclass(frozen=True, slots=True)
class Work:
    """What a slurmctld has done up to a moment.

    Attributes:
        rpcs: that the agent's account sent.
        worked_s: on these.
        others: RPCs of everybody else.
        others_s: on these.
        cpu_s: of slurmctld.
        at_s: the moment.
    """

    rpcs: float
    worked_s: float
    others: float
    others_s: float
    cpu_s: float
    at_s: float

    def since(self, before: Work) -> Work:
        """What was done between two moments; ``at_s`` is then how long that was."""
        pairs = zip(self._all(), before._all(), strict=True)
        return Work(*(after - there for after, there in pairs))

    def _all(self) -> tuple[float, ...]:
        return (self.rpcs, self.worked_s, self.others, self.others_s, self.cpu_s, self.at_s)


def work_of(site: str) -> Work:
    """Ask a site's slurmctld."""
    text = at(site, "sh", "-c", _STATE)
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if "statistics by user" in line)
    rows = [found.groups() for line in lines[start:] if (found := _BY_USER.match(line))]
    ours = [(int(n), int(us)) for user, n, us in rows if user == layout.ACCOUNT]
    rest = [(int(n), int(us)) for user, n, us in rows if user != layout.ACCOUNT]
    ticks = lines[-2].rsplit(")", 1)[1].split()
    return Work(
        sum(n for n, _ in ours),
        sum(us for _, us in ours) / 1e6,
        sum(n for n, _ in rest),
        sum(us for _, us in rest) / 1e6,
        (int(ticks[11]) + int(ticks[12])) / int(lines[-1]),
        time.monotonic(),
    )


def at(site: str, *command: str, user: str | None = None) -> str:
    done = inside.execute(layout.site(site), command, user=user)
    if done.exit_status:
        raise SystemExit(f"{site}: {' '.join(command)[:60]}: {done.stderr}")
    return done.stdout


def everywhere(act: Callable[[str], object]) -> list[object]:
    with ThreadPoolExecutor(len(SITES)) as pool:
        return list(pool.map(act, SITES))


@contextmanager
def local_load(jobs: int) -> Iterator[None]:
    """Queued jobs of a local user, who looks at them and submits one more, once a second."""
    ending = threading.Event()
    words = "--partition=local --output=/dev/null"
    queued = f"for k in $(seq {jobs}); do sbatch -Q {words} --gres=gpu:1 --wrap 'sleep 7200'; done"
    everywhere(lambda site: at(site, "sh", "-c", queued, user=layout.LOCAL_USER))

    def look(site: str) -> None:
        asked = f"squeue -h >/dev/null; sbatch -Q {words} --wrap true; true"
        while not ending.wait(1.0):
            with suppress(FederatorError):
                at(site, "sh", "-c", asked, user=layout.LOCAL_USER)

    threads = [threading.Thread(target=look, args=(site,)) for site in SITES]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()
        everywhere(lambda site: at(site, "scancel", f"--user={layout.LOCAL_USER}"))


def shadowing(folder: Path, poll_s: float) -> Running:
    """A daemon that only reads the own partition of every site."""
    running = Running(folder)
    settings = yaml.safe_load(running.config.read_text())
    for site in settings["sites"].values():
        site.update(mode="shadow", partitions=["local"], poll_interval_s=poll_s)
    running.config.write_text(yaml.safe_dump(settings))
    return running


def span(seconds: float) -> dict[str, Work]:
    """What each slurmctld does in the next seconds."""
    before = dict(zip(SITES, map(work_of, SITES), strict=True))
    time.sleep(seconds)
    return {site: work_of(site).since(before[site]) for site in SITES}


def table(without: Sequence[dict[str, Work]], beside: Sequence[dict[str, Work]]) -> str:
    """A row for each site; fractions are of one CPU's time."""
    lines = [
        "| site | RPCs/min of the agent | slurmctld's time for them | for all others "
        "| CPU of slurmctld without | with |",
        "|---|---|---|---|---|---|",
    ]
    for site in SITES:
        free, seen = [each[site] for each in without], [each[site] for each in beside]
        free_s, seen_s = sum(w.at_s for w in free), sum(w.at_s for w in seen)
        lines.append(
            f"| {site} | {60 * sum(w.rpcs for w in seen) / seen_s:.0f} "
            f"| {100 * sum(w.worked_s for w in seen) / seen_s:.2f} % "
            f"| {100 * sum(w.others_s for w in seen) / seen_s:.2f} % "
            f"| {100 * sum(w.cpu_s for w in free) / free_s:.2f} % "
            f"| {100 * sum(w.cpu_s for w in seen) / seen_s:.2f} % |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--poll", type=float, default=10.0)
    options = parser.parse_args()
    without, beside = [], []
    with local_load(options.jobs), tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            without.append(span(options.seconds))
            of_round = Path(folder) / str(number)
            of_round.mkdir()
            running = shadowing(of_round, options.poll)
            running.start()
            try:
                beside.append(span(options.seconds))
            finally:
                running.stop()
            print(table(without, beside), flush=True)


if __name__ == "__main__":
    main()
