"""A trial daemon with an empty store, at sites that serve another: it displaces nobody unasked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed import layout
from tests.slurm.federation import Running, at, traced, within

pytestmark = pytest.mark.slurm
CPUS = ("--cpus-per-task=1", "--time=10")
REFUSAL = "the site serves another event log of federation testbed"


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "trial").mkdir()
    daemon = Running(tmp_path / "trial")
    daemon.options = ()
    try:
        yield daemon
    finally:
        daemon.stop()


def refusals(daemon: Running) -> list[str]:
    return [line for line in daemon.log().splitlines() if REFUSAL in line]


def test_a_trial_daemon_displaces_nobody_unless_told_to(alone: Running, trial: Running) -> None:
    long = alone.submit(traced(600), *CPUS)
    job_id = alone.await_state(long, "RUNNING")["site_job_id"]

    trial.spawn()
    within(60, lambda: len(refusals(trial)) == len(layout.SITES))
    (line,) = (line for line in refusals(trial) if layout.SITES[0].name in line)
    assert "federator recover" in line
    assert "--displace" in line
    trial.stop()
    trial.spawn()  # its log is not empty any more, and still another one
    within(60, lambda: len(refusals(trial)) == 2 * len(layout.SITES))

    within(60, alone.all_up)
    assert alone.row(long)["state"] == "RUNNING"
    after = alone.submit(traced(0), *CPUS)
    assert alone.await_end(after)[0]["state"] == "COMPLETED"
    for site in layout.SITES:
        assert str(after) in at(site.name, "fsqueue", "-t", "all", "-j", str(after), user="vision1")

    alone.stop()
    alone.options = ()
    alone.start()  # the sites know its log
    alone.stop()
    trial.stop()
    trial.options = ("--displace",)
    trial.start()
    within(60, lambda: any(row["id"] == long for row in trial.rows()))
    adopted = trial.await_state(long, "RUNNING")
    assert adopted["site_job_id"] == job_id
    trial.run("fscancel", str(long))
    trial.await_end(long)

    alone.spawn()
    within(60, lambda: len(refusals(alone)) == len(layout.SITES))
