"""Two daemons on one Redis, real sites: the leader is killed, then stopped, under load.

Jobs note their starts themselves, so "once" is counted in what ran. Users at a site submit
all the while.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.fakes.redis_server import RedisServer
from tests.slurm.conftest import clear
from tests.slurm.federation import Running, at, starts, traced, until, within

pytestmark = pytest.mark.slurm
TAKEOVER_S = 5.0
ROUNDS = 3  # more, where others use the machine
USER = "vision1"


@pytest.fixture
def two(testbed: StateDir, tmp_path: Path) -> Iterator[tuple[Running, Running]]:
    """The first leads and has every site; the second stands by."""
    redis = RedisServer(tmp_path / "redis")
    both = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        both.append(Running(tmp_path / name, store=redis.url))
    first, second = both
    clear()
    try:
        first.start()
        second.spawn()
        within(60, lambda: "standby" in second.log())
        yield first, second
    finally:
        for each in both:
            if each.process is not None and each.process.poll() is None:
                each.process.send_signal(signal.SIGCONT)
            each.stop()
        redis.kill()
        clear()


def terms(daemon: Running) -> int:
    """How often it has become the leader."""
    return daemon.log().count("daemon_started")


def takeover_s(daemon: Running, began_s: float) -> float:
    """Wait until it leads once more; seconds since ``began_s``."""
    before = terms(daemon)
    within(30, lambda: terms(daemon) > before)
    return time.monotonic() - began_s


def stand_by(daemon: Running) -> None:
    before = daemon.log().count('"standby"')
    daemon.spawn()
    within(60, lambda: daemon.log().count('"standby"') > before)


def killed_and_stopped(first: Running, second: Running) -> tuple[float, float]:
    """The first is killed and the second takes over; then the other way round, that one stopped.

    Returns:
        How long each takeover took, in seconds. The first leads then, and the second has ended.
    """
    began_s = time.monotonic()
    first.kill()
    killed_s = takeover_s(second, began_s)
    within(90, second.all_up)

    stand_by(first)
    assert second.process is not None
    began_s = time.monotonic()
    second.process.send_signal(signal.SIGSTOP)
    stopped_s = takeover_s(first, began_s)
    within(90, first.all_up)
    second.process.send_signal(signal.SIGCONT)
    assert second.process.wait(160) == os.EX_TEMPFAIL
    print(f"takeover: killed {killed_s:.2f} s, stopped {stopped_s:.2f} s")
    return killed_s, stopped_s


def submit_at(site: str, count: int) -> list[int]:
    """One after the other, whatever becomes of the daemons meanwhile."""
    ids = []
    for _ in range(count):
        text = at(
            site, "fsbatch", "--parsable", "--quiet", "--gres=gpu:1", stdin=traced(1), user=USER
        )
        ids.append(int(text))
    return ids


def test_a_standby_takes_over_within_five_seconds_and_nothing_is_lost_or_run_twice(
    two: tuple[Running, Running], go: Callable[..., None]
) -> None:
    first, second = two
    assert "this daemon is a standby" in second.run("fsqueue").stderr
    running = [first.submit(traced() + until(), "--gres=gpu:1") for _ in range(6)]
    for id_ in running:
        first.await_state(id_, "RUNNING")
    with ThreadPoolExecutor(2) as pool:
        at_sites: list[Future[list[int]]] = [
            pool.submit(submit_at, site, 12) for site in ("alpine", "cedar")
        ]
        time.sleep(1.0)
        took = killed_and_stopped(first, second)
        submitted = [id_ for future in at_sites for id_ in future.result(480)]
    assert len(set(submitted)) == len(submitted) == 24
    go()
    rows = first.await_end(*running, *submitted, timeout_s=120)
    assert {row["state"] for row in rows} == {"COMPLETED"}
    told = [(row["id"], row["attempt"], row["site"], row["site_job_id"]) for row in rows]
    assert starts(*running, *submitted) == sorted(told)
    assert len(first.rows()) == 30  # no submission was queued twice
    first.tidy()
    for _ in range(ROUNDS):
        if max(took) > TAKEOVER_S:
            stand_by(second)
            took = killed_and_stopped(first, second)
    assert max(took) <= TAKEOVER_S
