"""A real Prometheus scrapes real daemons that are killed, locked and slow: their alerts fire.

The faults of sites and jobs are those of ``test_alerts``. ``docs/alerts.md`` has a table of all.
"""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.alert_causes import reconfigure, write_long_log
from tests.slurm.federation import Running, within
from tests.slurm.monitored import Watched, at_once, needs_prometheus, watching, with_metrics

pytestmark = [pytest.mark.slurm, needs_prometheus]
TRUE = "#!/bin/sh\ntrue\n"
ONE_GPU = ("-N1", "--gres=gpu:1", "-t2")
LOG_RECORDS = 26_000  # more than a daemon leaves in its log


@pytest.fixture(scope="module")
def watched(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    write_long_log(folder / "queue.db", LOG_RECORDS)
    yield from watching(Running(folder, pass_interval_s=2.0, bid_timeout_s=1.0))


def test_a_slow_log_and_a_locked_history_fire_what_each_is_slow_at(watched: Watched) -> None:
    at_once(watched, log_is_slow, history_is_locked)


def log_is_slow(watched: Watched) -> None:
    """Commits are slow, and turns."""
    running, over = watched.running, threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(running.folder / "queue.db", isolation_level=None)) as other:
            while not over.wait(0.3):
                other.execute("BEGIN IMMEDIATE")
                time.sleep(3.0)
                other.execute("ROLLBACK")

    def submit() -> None:
        while not over.is_set():
            running.run("fsbatch", "--uid=vision1", *ONE_GPU, stdin=TRUE)

    threads = [threading.Thread(target=work) for work in (hold, submit, submit)]
    for thread in threads:
        thread.start()
    try:
        watched.prometheus.await_firing("FederatorLogSlow")
        watched.prometheus.await_firing("FederatorLoopSlow")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    watched.prometheus.await_clear("FederatorLoopSlow")
    watched.prometheus.await_clear("FederatorLogSlow")


def history_is_locked(watched: Watched) -> None:
    """It is behind: the jobs that end beside this are not in it."""
    path = watched.running.folder / "queue-history.db"
    assert path.exists()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        watched.prometheus.await_firing("FederatorHistoryBehind")
        other.execute("ROLLBACK")
    watched.prometheus.await_clear("FederatorHistoryBehind")


def test_a_daemon_that_is_killed_fires_and_one_that_comes_and_goes_fires_that(
    watched: Watched,
) -> None:
    """The latter clears while other tests run: ``test_what_has_fired_clears``."""
    running, prometheus = watched.running, watched.prometheus
    running.kill()
    prometheus.await_firing("FederatorDown")
    prometheus.await_firing("FederatorNoLeader")
    running.start()
    prometheus.await_clear("FederatorNoLeader")
    prometheus.await_clear("FederatorDown")

    def comes_and_goes() -> bool:
        began = running.log().count("daemon_started")
        assert running.process is not None
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(80)
        running.spawn()
        within(60, lambda: running.log().count("daemon_started") > began)
        time.sleep(1.5)  # a scrape
        return "FederatorLeaderChanges" in prometheus.firing()

    within(60, comes_and_goes)
    within(90, running.all_up)


def test_other_daemons_beside_it_fire(watched: Watched, tmp_path: Path) -> None:
    standby_is_killed(watched, tmp_path / "standby")
    another_daemon_leads(watched, tmp_path / "other")


def standby_is_killed(watched: Watched, folder: Path) -> None:
    """It is down and there is no standby, until there is a new one."""
    folder.mkdir()
    standby = Running(folder, store=f"sqlite://{watched.running.folder}/queue.db")
    address = with_metrics(standby)
    standby.spawn()
    try:
        watched.prometheus.scrape(watched.address, address)
        within(60, lambda: watched.prometheus.value("sum(federator_standby_up_to_date)") == 1)
        time.sleep(5)
        assert "FederatorNoStandby" not in watched.prometheus.firing()
        standby.kill()
        watched.prometheus.await_firing("FederatorDown")
        watched.prometheus.await_firing("FederatorNoStandby")
        standby.spawn()
        watched.prometheus.await_clear("FederatorNoStandby")
        watched.prometheus.await_clear("FederatorDown")
    finally:
        standby.stop()
        watched.prometheus.scrape(watched.address)


def another_daemon_leads(watched: Watched, folder: Path) -> None:
    """By a log of its own: two lead."""
    folder.mkdir()
    other = Running(folder)
    other.options = ()  # the sites do not serve it
    address = with_metrics(other)
    other.spawn()
    try:
        watched.prometheus.scrape(watched.address, address)
        watched.prometheus.await_firing("FederatorTwoLeaders")
    finally:
        other.stop()
        watched.prometheus.scrape(watched.address)
    watched.prometheus.await_clear("FederatorTwoLeaders")


def test_a_daemon_that_is_to_make_a_pass_once_an_hour_fires(watched: Watched) -> None:
    """Nothing else makes one due while nothing happens."""
    running = watched.running
    running.cancel_all()
    reconfigure(running, lambda settings: settings["policy"].update(pass_interval_s=3600.0))
    watched.prometheus.await_firing("FederatorNoPass")
    reconfigure(running, lambda settings: settings["policy"].update(pass_interval_s=2.0))
    watched.prometheus.await_clear("FederatorNoPass")


def test_a_long_log_is_compacted_and_what_has_fired_clears(watched: Watched) -> None:
    """It was long until the daemon had led for a minute, and put a snapshot in its place."""
    within(240, lambda: watched.prometheus.firing() == {})
    assert watched.prometheus.has_fired("FederatorLogLong")
    assert '"log_compacted"' in watched.running.log()
