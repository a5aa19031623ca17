"""Guests on real clusters that ignore every signal: by when they have left.

``bio`` has no quota here, so whatever it runs may be evicted for ``vision``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import LONG_S, Row, Running, ended_at_s, within
from tests.slurm.guests import BUSY_S, DEAF, GRACE_S, NODE, TENANTS, fill, preemption, start_of

pytestmark = pytest.mark.slurm

STAYS = f"#!/bin/sh\nsleep {LONG_S}\n"


@dataclass(frozen=True, slots=True)
class DeafGuests:
    """A daemon, and guests on all nodes of cedar that ignore every signal."""

    running: Running
    ids: list[int]

    def of_state(self, *states: str) -> list[Row]:
        """The rows of those that are in one of these."""
        return [row for row in self.running.rows(*self.ids) if row["state"] in states]


@pytest.fixture(scope="module")
def deaf(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeafGuests]:
    """Each test that evicts one of them leaves the others where they are."""
    folder = tmp_path_factory.mktemp("deaf")
    given = Running(folder, tenants=TENANTS, pass_interval_s=10.0, preemption=preemption())
    for running in lasting(given):
        yield DeafGuests(running, fill(running, DEAF))


def test_who_ignores_every_signal_is_gone_at_the_deadline(deaf: DeafGuests) -> None:
    before = len(deaf.of_state("RUNNING"))
    gang = deaf.running.submit(STAYS, *NODE)
    _, waited_s = start_of(deaf.running, gang)
    assert GRACE_S - 1 < waited_s < GRACE_S + BUSY_S
    assert len(deaf.of_state("RUNNING")) == before - 1


def test_a_daemon_killed_in_the_middle_of_a_preemption_finishes_it(deaf: DeafGuests) -> None:
    evicting, away_s = deaf.running, GRACE_S - 5
    before = len(deaf.of_state("RUNNING"))
    gang = evicting.submit(STAYS, *NODE)
    (leaves, *_) = within(60, lambda: deaf.of_state("PREEMPTING"))
    began_s = time.time()
    evicting.kill()
    time.sleep(away_s)
    evicting.start()
    row, _ = start_of(evicting, gang)
    # Its grace has not begun anew, when the daemon came back.
    assert ended_at_s("cedar", leaves["site_job_id"]) - began_s < away_s + GRACE_S
    assert len(deaf.of_state("RUNNING")) == before - 1
    assert len(row["node_names"]) == 1
