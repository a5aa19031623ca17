"""What goes wrong around a federation under load, for real, and what its jobs saw of it.

Daemons are started again when they end, as a service manager would. Jobs note their own begin and
end in their homes, so what ran how often is counted in what ran, not in what anybody says of it.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from federator.testbed import layout
from federator.testbed.layout import NETWORK
from tests.slurm.federation import LIVE, STARTS, Running, agents, at, killed_slurmd, within

USER: Final = "vision1"
TASKS: Final = 10  # of an array: one submission
SUBMISSIONS: Final = 20
SILENT_S: Final = 8.0  # longer than daemon and agents wait for each other
SCRIPT: Final = f"""#!/bin/sh
note() {{ echo "$1 $FED_JOB_ID $FED_ATTEMPT $(date +%s.%N)" >>"$HOME/{STARTS}"; }}
note began
sleep $((1 + FED_JOB_ID % 4))
note ended
"""
SITES: Final = tuple(site.name for site in layout.SITES)


class Kept:
    """A daemon that somebody starts again whenever it ends, a second later."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.ends: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Kept:
        self.running.spawn()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.running.stop()

    def _keep(self) -> None:
        while not self._over.wait(0.1):
            assert self.running.process is not None
            status = self.running.process.poll()
            if status is not None:
                self.ends.append(status)
                if not self._over.wait(1.0):
                    self.running.spawn()

    def send(self, number: signal.Signals) -> None:
        assert self.running.process is not None
        self.running.process.send_signal(number)


@dataclass(slots=True)
class Load:
    """Arrays of short jobs, submitted one after the other while the weather lasts.

    A submission without an answer is asked for again with the same key until there is one.
    """

    desks: list[Running]  # whoever of them answers takes a submission
    ids: list[int] = field(default_factory=list)  # of all tasks that were acknowledged
    retries: int = 0

    def submit(self, number: int) -> None:
        """One array; its ids are known when this returns."""
        first = within(120, lambda: self._answer(number))
        self.ids += range(first, first + TASKS)

    def _answer(self, number: int) -> int:
        for desk in self.desks:
            with suppress(subprocess.TimeoutExpired):
                done = desk.run(
                    "fsbatch",
                    "--parsable",
                    f"--uid={USER}",
                    f"--array=1-{TASKS}",
                    "--time=5",
                    "--output=/dev/null",
                    stdin=SCRIPT,
                    more={"FED_SUBMIT_KEY": f"weather-{number:04}"},
                )
                if done.returncode == 0:
                    return int(done.stdout)
        self.retries += 1
        return 0


@contextmanager
def under_load(load: Load, submissions: int, every_s: float) -> Iterator[None]:
    """Submit beside what the block does; it ends when all are acknowledged."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(submissions):
                load.submit(number)
                time.sleep(every_s)
        except BaseException as error:  # told below
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(300)
    assert not errors, errors
    assert not thread.is_alive()


# ---- what befalls sites ----


def kill_agents(*sites: str, name: str = "KILL") -> None:
    for site in sites:
        for pid in agents(site):
            at(site, "sh", "-c", f"kill -{name} {pid} || true")


def fill_agents_disk(site: str) -> None:
    """Its agent can write no file any more, and ends with its next order; the next one can."""
    for pid in agents(site):
        at(site, "sh", "-c", f"prlimit --pid {pid} --fsize=0:0 || true")


def cut_connections(site: str) -> None:
    """The sessions of the federation's account at sshd end in the middle of whatever it was."""
    at(site, "sh", "-c", "pkill -KILL -u federator sshd || true")


@contextmanager
def cut_off(site: str) -> Iterator[None]:
    """No packet comes through."""
    container = layout.site(site).container
    subprocess.run(["docker", "network", "disconnect", NETWORK, container], check=True)
    try:
        yield
    finally:
        subprocess.run(["docker", "network", "connect", NETWORK, container], check=True)


def processes(program: str) -> str:
    """The pattern of a program of Slurm's; one that has started itself anew has Debian's name."""
    return f"{program}(-wlm)?"


@contextmanager
def stopped(site: str, program: str) -> Iterator[None]:
    at(site, "pkill", "-STOP", "-x", processes(program))
    try:
        yield
    finally:
        at(site, "pkill", "-CONT", "-x", processes(program))


def restart_slurmctld(site: str) -> None:
    """It keeps what it knows; killed it would forget the jobs of the last seconds."""
    name = processes("slurmctld")
    gone = f"while pgrep -x '{name}'; do sleep 0.2; done"
    at(site, "sh", "-c", f"pkill -TERM -x '{name}'; {gone}")
    at(site, "slurmctld")
    within(120, lambda: at(site, "sh", "-c", "scontrol ping | grep -w UP || true"))


def restart_slurmd(site: str, node: str) -> None:
    """Its jobs run on without it."""
    at(site, "sh", "-c", killed_slurmd(node))
    at(site, "slurmd", "-N", node)


# ---- what the jobs saw ----


@dataclass(frozen=True, slots=True)
class Seen:
    """Each workload's own notes: when it began and ended, in order."""

    began: dict[int, list[float]]
    ended: dict[int, list[float]]

    def doubled(self) -> list[int]:
        """Workloads that were begun again before they had ended, or after they had completed."""
        return [
            id_
            for id_, times in self.began.items()
            if any(t >= min(self.ended.get(id_, [float("inf")])) for t in times) or len(times) > 1
        ]


def forget_notes() -> None:
    """Of a run that was broken off."""
    for site in SITES:
        at(site, "sh", "-c", f"rm -f /home/{USER}/{STARTS}")


def seen() -> Seen:
    """The notes in the user's homes at all sites."""
    began: dict[int, list[float]] = {}
    ended: dict[int, list[float]] = {}
    for site in SITES:
        text = at(site, "sh", "-c", f"cat /home/{USER}/{STARTS} 2>/dev/null || true")
        for line in text.splitlines():
            what, id_, _, at_s = line.split()
            notes = began if what == "began" else ended
            notes.setdefault(int(id_), []).append(float(at_s))
    return Seen(began, ended)


def await_all(desk: Running, load: Load, timeout_s: float) -> Counter[str]:
    """How the load has ended, by state."""

    def states() -> Counter[str] | None:
        done = desk.run("fsqueue", "-t", "all", "--json")
        if done.returncode != 0:
            return None
        rows = {row["id"]: row["state"] for row in desk.rows()}
        found = Counter(rows.get(id_, "UNKNOWN") for id_ in load.ids)
        return None if any(found[state] for state in LIVE) else found

    found = within(timeout_s, states)
    assert found is not None
    return found
