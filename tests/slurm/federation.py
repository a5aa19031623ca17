"""A daemon of the tests' own on the running testbed, and the users' commands beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from unittest import mock

import yaml

from federator.cli import client
from federator.cli.queue_json import json_of
from federator.errors import SiteUnavailable
from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from federator.wire.client_protocol import (
    Call,
    DrainCall,
    DrainReply,
    QueueCall,
    QueueReply,
    ResumeCall,
    SiteRow,
    SitesCall,
    SitesReply,
)
from federator.wire.replies import Reply

Row = dict[str, Any]
RULES = "/etc/federator/admission.lua"
RULES_SEEN_S = 1.5  # by slurmctld
PATIENCE = 4.0  # what takes so long at most may take so many times as long on a busy machine
SOON_S = 0.05  # between two questions to a daemon, which cost little; a command at a site does not
LIVE = {
    "PENDING",
    "INELIGIBLE",
    "HELD",
    "AWARDED",
    "LAUNCHING",
    "RUNNING",
    "PREEMPTING",
    "CANCELLING",
}
T = TypeVar("T")
BIN = Path(sys.executable).parent
# An agent's command line in its container, for pgrep.
AGENT = "[^ ]*python3 -I /opt/federator/bin/federator agent .*"
_AGENTS = f"""
for pid in $(pgrep --exact --full '{AGENT}'); do
  parent=$(awk '/^PPid/ {{ print $2 }}' /proc/$pid/status 2>/dev/null) && echo $pid $parent
done; true
"""
STARTS = "starts-of-tests"  # in each home; every start of a traced job is a line of it
_ENVIRONMENT = threading.Lock()
LONG_S = 3600  # of work that a test ends itself, however slow the machine is
GO = "/tmp/tests-go"  # at each site; words are told to jobs as files in it, see ``until``


def within(timeout_s: float, attempt: Callable[[], T], every_s: float = 0.1) -> T:
    """The first true answer of ``attempt``, asked until the deadline.

    Half of the time at most is spent on asking, for that takes CPU from what is waited for. No
    promise is proved by it: patience costs nothing where the answer comes.

    Args:
        timeout_s: within which it usually comes at the latest; a busy machine has ``PATIENCE``
            times as long.
        attempt: asks.
        every_s: the shortest pause between two questions, in seconds.
    """
    asked_s = time.monotonic()
    timeout_s *= PATIENCE
    deadline = asked_s + timeout_s
    answer = attempt()
    while not answer and time.monotonic() < deadline:
        time.sleep(max(every_s, min(time.monotonic() - asked_s, 1.0)))
        asked_s = time.monotonic()
        answer = attempt()
    if not answer:
        said = "; ".join(f"{site.name}: {out_of_service(site.name)}" for site in layout.SITES)
        raise AssertionError(f"not within {timeout_s:g} s; last answered {answer!r}; {said}")
    return answer


def out_of_service(site: str) -> str:
    """Every node that takes no jobs, with its reason, and the jobs that there are."""
    asked = "sinfo -h --list-reasons --format='%N %t %E'; squeue -h --format='%i %P %T %R'"
    done = inside.execute(layout.site(site), ("sh", "-c", asked))
    return ", ".join(done.stdout.splitlines()) or done.stderr.strip() or "all in service, no job"


class Running:
    """One federation: its daemon process, its folder, and the commands that talk to it."""

    options: tuple[str, ...] = ("--displace",)
    """Of the daemon's command: the sites remember the log of the test before."""

    def __init__(
        self,
        folder: Path,
        local: tuple[str, ...] = (),
        tenants: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
        store: str = "",
        **policy: object,
    ) -> None:
        """Make a federation; the agents of ``local`` sites are processes of the daemon's host.

        ``tenants`` holds settings that differ from the testbed's, by tenant. ``store`` is the log;
        by default one in the folder.
        """
        settings = yaml.safe_load(StateDir.default().federation.read_text())
        testbed = StateDir.default().root
        for site in settings["sites"].values():
            for key in ("key", "known_hosts"):
                site["ssh"][key] = str(testbed / site["ssh"][key])
        for name in local:
            agent = ["/opt/federator/bin/federator", "agent", "--config", layout.AGENT_CONFIG]
            argv = inside.exec_argv(layout.site(name), agent, user="federator", stdin=True)
            del settings["sites"][name]["ssh"]
            settings["sites"][name]["command"] = argv
        settings["store"] = store or f"sqlite://{folder}/queue.db"
        settings["socket"] = str(folder / "daemon.sock")
        settings["policy"] |= policy
        for name, differing in tenants.items():
            settings["tenants"].setdefault(name, {}).update(differing)
        self.folder = folder
        self.config = folder / "federation.yaml"
        self.config.write_text(yaml.safe_dump(settings))
        self.process: subprocess.Popen[bytes] | None = None

    # ---- the daemon ----

    def start(self) -> None:
        """Start the daemon and wait until every site has reported."""
        self.spawn()
        within(90, self._has_met_all)  # asked from the start, it would be slower to start
        within(90, self.all_up)

    def spawn(self) -> None:
        """Start the daemon; its sites come up when they do."""
        with (self.folder / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(BIN / "federator"), "daemon", "--config", str(self.config), *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()

    # ---- commands on the daemon's host ----

    def run(
        self,
        program: str,
        *arguments: str,
        stdin: str = "",
        cwd: Path | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        """Run one; ``more`` is added to its environment."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "FEDERATOR_SOCKET": str(self.folder / "daemon.sock"),
            **more,
        }
        return subprocess.run(
            [str(BIN / program), *arguments],
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            timeout=300,
            env=environment,
            cwd=cwd or self.folder,
        )

    def _has_met_all(self) -> bool:
        assert self.process is not None
        sites = yaml.safe_load(self.config.read_text())["sites"]
        return self.process.poll() is not None or self.log().count('"site_up"') >= len(sites)

    def ask(self, call: Call) -> Reply:
        """Ask as a command does, without a process for each question of who waits for something.

        Raises:
            SiteUnavailable: no daemon answers.
        """
        socket = {"FEDERATOR_SOCKET": str(self.folder / "daemon.sock")}
        with _ENVIRONMENT, mock.patch.dict(os.environ, socket):
            return client.call(call)

    def sites(self) -> tuple[SiteRow, ...]:
        reply = self.ask(SitesCall())
        assert isinstance(reply, SitesReply), reply
        return reply.sites

    def all_up(self) -> bool:
        with suppress(SiteUnavailable):
            return all(site.up for site in self.sites())
        return False

    def submit(self, script: str, *options: str, user: str = "vision1") -> int:
        """Submit a script from standard input; the id."""
        done = self.run("fsbatch", "--parsable", f"--uid={user}", *options, stdin=script)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def rows(self, *ids: int) -> list[Row]:
        """As ``fsqueue -t all --json``, of these jobs or of all."""
        reply = self.ask(QueueCall(ids=tuple(map(str, ids)), ended=True, files=True))
        assert isinstance(reply, QueueReply), reply
        assert len(ids) != 1 or not reply.unknown, reply.unknown
        rows: list[Row] = json.loads(json_of(reply.rows, reply.now_s))["jobs"]
        return rows

    def row(self, id_: int) -> Row:
        (row,) = self.rows(id_)
        return row

    def await_state(self, id_: int, *states: str, timeout_s: float = 90) -> Row:
        """The row once it is in one of ``states``."""

        def look() -> Row | None:
            row = self.row(id_)
            return row if row["state"] in states else None

        found = within(timeout_s, look, SOON_S)
        assert found is not None
        return found

    def await_end(self, *ids: int, timeout_s: float = 120) -> list[Row]:
        def look() -> list[Row] | None:
            rows = self.rows(*ids)
            return None if any(r["state"] in LIVE for r in rows) else rows

        found = within(timeout_s, look, SOON_S)
        assert found is not None
        return found

    def fill(self, *sites: str) -> None:
        """Local users take every GPU node of these sites, and the federation has seen it."""
        for site in sites:
            fill(site)
        within(90, lambda: all(has and taken == has for has, taken in self._gpus(sites)), SOON_S)

    def _gpus(self, sites: Sequence[str]) -> list[tuple[int, int]]:
        """The GPUs of each site, and those that are taken, as the daemon has seen it last."""
        rooms = {site.name: site.partitions for site in self.sites()}
        return [
            (sum(p.gpus for p in rooms[site]), sum(p.gpus_alloc for p in rooms[site]))
            for site in sites
        ]

    @contextmanager
    def closed(self, *sites: str) -> Iterator[None]:
        """Nothing is sent to these sites: a word of the daemon's, where ``fill`` takes jobs."""
        try:
            for site in sites:
                asked = DrainCall(site=site, reason="this test is about another", cordon=True)
                assert isinstance(self.ask(asked), DrainReply)
            yield
        finally:
            for site in sites:
                self.ask(ResumeCall(site=site))

    @contextmanager
    def first_is(self, site: str) -> Iterator[None]:
        """What stands before a site in the order that breaks ties is closed, and all of it idle.

        Also for the daemon: what a test before has put right, it may not have seen yet.
        """
        names = [other.name for other in layout.SITES]

        def idle() -> bool:
            (row,) = (each for each in self.sites() if each.name == site)
            return sum(p.nodes_idle for p in row.partitions) == layout.NODES_PER_SITE

        with self.closed(*names[: names.index(site)]):
            within(90, idle, SOON_S)
            yield

    @contextmanager
    def only_room_at(self, site: str) -> Iterator[None]:
        """Local users have all GPUs of what stands before a site in the order that breaks ties."""
        names = [other.name for other in layout.SITES]
        before = names[: names.index(site)]
        try:
            self.fill(*before)
            yield
        finally:
            for name in before:
                at(name, "scancel", "--partition=local")
        # Else the next test finds that site full yet, and its job goes elsewhere.
        within(90, lambda: all(taken < has for has, taken in self._gpus(before)), SOON_S)

    @contextmanager
    def one_node_free_at(self, *sites: str) -> Iterator[None]:
        """Local users have every GPU node of all sites, but one at each of these."""
        group, names = layout.GPU_NODES, [site.name for site in layout.SITES]
        try:
            for name in names:
                take_all(name, f"--nodes={group.count - (name in sites)}")
            free = [group.gpus * (name in sites) for name in names]
            within(90, lambda: [has - taken for has, taken in self._gpus(names)] == free, SOON_S)
            yield
        finally:
            for name in names:
                at(name, "scancel", "--partition=local")
        within(90, lambda: all(taken <= group.gpus for _, taken in self._gpus(names)), SOON_S)

    # ---- afterwards ----

    def cancel_all(self) -> None:
        """Cancel what is at work and wait for its end."""
        live = [row["id"] for row in self.rows() if row["state"] in LIVE]
        if live:
            self.run("fscancel", *map(str, live))
            self.await_end(*live)

    def tidy(self) -> None:
        """Remove what jobs wrote in their homes, as far as the daemon can tell which these are."""
        rows = []
        with suppress(SiteUnavailable):
            rows = self.rows()
        for site in layout.SITES:
            names = [f"/home/*/{STARTS}"]
            names += [
                f"/home/{row['user']}/{output_name(row)}*"
                for row in rows
                if row["site"] == site.name and row["site_job_id"]
            ]
            at(site.name, "sh", "-c", f"rm -f {' '.join(names)}")


# ---- jobs that tell of themselves ----


def traced(seconds: float = 0) -> str:
    """A script that notes each of its starts in its home."""
    return (
        f'#!/bin/sh\necho "$FED_JOB_ID $FED_ATTEMPT $SLURM_JOB_ID" >>"$HOME/{STARTS}"\n'
        f"sleep {seconds}\n"
    )


def until(word: str = "end") -> str:
    """A line of a script that waits until a test tells the word; see the fixture ``go``."""
    return f"until [ -e {GO}/{word} ]; do sleep 0.2; done\n"


def starts(*ids: int, user: str = "vision1") -> list[tuple[int, int, str, int]]:
    """Every start of traced jobs at any site: id, attempt, site, the site's job id; sorted."""
    found = []
    for site in layout.SITES:
        text = at(site.name, "sh", "-c", f"cat /home/{user}/{STARTS} 2>/dev/null || true")
        for line in text.splitlines():
            id_, attempt, job_id = map(int, line.split())
            found.append((id_, attempt, site.name, job_id))
    return sorted(start for start in found if start[0] in ids)


# ---- the sites, seen without the federation ----


def at(site: str, *command: str, user: str | None = None, stdin: str = "") -> str:
    """Output of a command at a site that must succeed."""
    done = inside.execute(layout.site(site), command, user=user, stdin=stdin)
    assert done.exit_status == 0, f"{site}: {command}: {done.stderr}"
    return done.stdout


def slurm_job(site: str, job_id: int) -> dict[str, str]:
    """Fields of ``scontrol show job`` (fine for the names that these tests choose)."""
    text = at(site, "scontrol", "-d", "-o", "show", "job", str(job_id))
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def ended_at_s(site: str, job_id: int) -> float:
    """When Slurm ended a job, or when its time limit ends it."""
    show = ("scontrol", "-o", "show", "job", str(job_id))
    words = at(site, "env", "SLURM_TIME_FORMAT=%s", *show).split()
    (found,) = [word for word in words if word.startswith("EndTime=")]
    return float(found.partition("=")[2])


def federation_jobs(site: str) -> list[dict[str, str]]:
    """Every job that Slurm remembers with an attempt in its comment."""
    text = at(site, "scontrol", "-o", "show", "jobs")
    jobs = [dict(w.split("=", 1) for w in line.split() if "=" in w) for line in text.splitlines()]
    return [job for job in jobs if job.get("Comment", "").startswith("fed:")]


@contextmanager
def open_to_all(*sites: str) -> Iterator[None]:
    """Anybody may submit to the federation's partition of these sites, without a ticket.

    For what plain Slurm makes of the same; the rules are put aside, and slurmctld looks once a
    second.
    """
    for site in sites:
        at(site, "sh", "-c", f"mv {RULES} {RULES}.aside")
    time.sleep(RULES_SEEN_S)
    try:
        yield
    finally:
        for site in sites:
            close_again(site)
        time.sleep(RULES_SEEN_S)


def close_again(site: str) -> None:
    """Undo ``open_to_all``; harmless where it was not done, or was undone."""
    at(site, "sh", "-c", f"[ ! -e {RULES}.aside ] || mv {RULES}.aside {RULES}")


def take_all(site: str, *options: str) -> str:
    """Submit a local user's job for every GPU node of a site; its id."""
    job_id = at(
        site,
        "sbatch",
        "--parsable",
        "--partition=local",
        f"--nodes={layout.GPU_NODES.count}",
        "--gres=gpu:8",
        "--exclusive",
        "--output=/dev/null",
        *options,
        f"--wrap=sleep {LONG_S}",
        user=layout.LOCAL_USER,
    )
    return job_id.strip()


def fill(site: str) -> None:
    """Local users take every GPU node of a site, until their job is cancelled."""
    take_all(site)
    running = ("squeue", "--noheader", "--states=R", "--partition=local")
    within(90, lambda: at(site, *running))


def killed_slurmd(node: str) -> str:
    """A shell's commands: SIGKILL, and the wait until its port is free for another one."""
    return (
        f"pid=$(cat /run/slurmd-{node}.pid); kill -9 $pid; "
        "for turn in $(seq 200); do kill -0 $pid 2>/dev/null || break; sleep 0.05; done"
    )


def agents(site: str) -> list[int]:
    """Process ids of the agents at a site; what an agent has just forked looks like another."""
    parents = {
        int(pid): int(parent)
        for pid, parent in (line.split() for line in at(site, "sh", "-c", _AGENTS).splitlines())
    }
    return [pid for pid, parent in parents.items() if parent not in parents]


def output_of(row: Row, user: str = "vision1") -> str:
    """What a job wrote, where sbatch would have put it."""
    return at(row["site"], "cat", f"/home/{user}/{output_name(row)}")


def output_name(row: Row) -> str:
    """The default name of a job's output."""
    is_task = row["array_id"]
    return (
        f"slurm-{row['array_id']}_{row['array_index']}.out"
        if is_task
        else (f"slurm-{row['id']}.out")
    )
