"""Real faults of two daemons and their Redis under a load of 200 jobs lose and double nothing.

SIGKILL and SIGSTOP of daemons and agents, a Redis that dies or hangs and another that takes its
place. What is counted is what the jobs themselves noted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from federator.testbed.layout import StateDir
from tests.fakes.redis_server import RedisServer, free_port
from tests.slurm.conftest import clear
from tests.slurm.federation import Running, within
from tests.slurm.weather import (
    SILENT_S,
    SITES,
    SUBMISSIONS,
    TASKS,
    Kept,
    Load,
    await_all,
    forget_notes,
    kill_agents,
    seen,
    under_load,
)

pytestmark = pytest.mark.slurm


@dataclass(frozen=True, slots=True)
class RedisPair:
    """A primary with a replica, and a sentinel that watches them."""

    primary: RedisServer
    replica: RedisServer
    sentinel: int  # its port

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.sentinel}/fed/0?replicas=1"

    def ask(self, port: int, *words: str) -> list[object]:
        with closing(Redis(port=port, decode_responses=True)) as client:
            found = client.execute_command(*words)  # type: ignore[no-untyped-call]
            return found if isinstance(found, list) else [found]

    def master(self) -> RedisServer:
        _, port = self.ask(self.sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "fed")
        return self.primary if port == str(self.primary.port) else self.replica

    def fail_over(self, *, stop: bool = False) -> None:
        """The master dies, or hangs; when the other one has its place, it comes back."""
        old = self.master()
        if stop:
            old.signal(signal.SIGSTOP)
        else:
            old.kill()
        within(60, lambda: self.master() is not old)
        if stop:
            old.signal(signal.SIGCONT)
        else:
            old.start()
        within(60, lambda: self.ask(old.port, "ROLE")[:4:3] == ["slave", "connected"])


@pytest.fixture
def redis_pair(tmp_path: Path) -> Iterator[RedisPair]:
    primary = RedisServer(tmp_path / "primary")
    replica = RedisServer(tmp_path / "replica", primary=primary)
    port = free_port()
    conf = tmp_path / "sentinel.conf"
    conf.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor fed 127.0.0.1 "
        f"{primary.port} 1\nsentinel down-after-milliseconds fed 1000\n"
        "sentinel failover-timeout fed 5000\n"
    )
    with (tmp_path / "sentinel.log").open("wb") as log:
        sentinel = subprocess.Popen(["redis-server", str(conf), "--sentinel"], stdout=log)
    pair = RedisPair(primary, replica, port)
    try:
        within(60, lambda: (tmp_path / "sentinel.log").read_text().count("+slave"))
        yield pair
    finally:
        sentinel.kill()
        sentinel.wait()
        for server in (primary, replica):
            server.kill()


def leads(daemon: Kept) -> bool:
    """Whether it answers as one that leads."""
    return daemon.running.run("fsinfo", "--json").returncode == 0


def leader_of(daemons: Sequence[Kept]) -> Kept:
    found = within(60, lambda: next((each for each in daemons if leads(each)), None))
    assert found is not None
    return found


def test_no_weather_over_two_daemons_loses_or_doubles_a_job(
    testbed: StateDir, tmp_path: Path, redis_pair: RedisPair
) -> None:
    clear()
    forget_notes()
    desks = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        desks.append(Running(tmp_path / name, store=redis_pair.url, pass_interval_s=10.0))
    load = Load(desks)
    with Kept(desks[0]) as one, Kept(desks[1]) as two:
        daemons = (one, two)
        within(60, leader_of(daemons).running.all_up)
        with under_load(load, SUBMISSIONS, every_s=4.0):
            leader_of(daemons).send(signal.SIGKILL)
            time.sleep(SILENT_S)
            paused = leader_of(daemons)
            paused.send(signal.SIGSTOP)
            time.sleep(SILENT_S)
            paused.send(signal.SIGCONT)
            within(60, lambda: os.EX_TEMPFAIL in paused.ends)
            redis_pair.fail_over(stop=True)
            leader_of(daemons)
            redis_pair.fail_over()
            leader_of(daemons)
            kill_agents(*SITES)
            for daemon in daemons:
                daemon.send(signal.SIGKILL)
        last = leader_of(daemons)
        states = await_all(last.running, load, timeout_s=240)
        notes, queued = seen(), len(last.running.rows())
        last.running.tidy()
    clear()
    assert states == {"COMPLETED": SUBMISSIONS * TASKS}
    assert notes.doubled() == []
    assert set(notes.began) == set(notes.ended) == set(load.ids)
    assert queued == len(load.ids)  # no submission that was asked for again is there twice
    assert not any("Traceback" in desk.log() for desk in desks)
