"""Evictions on real clusters: who goes, in what order, how fast, and what is kept.

``bio`` has no quota here, so whatever it runs may be evicted for ``vision`` and ``nlp``. Its jobs
count steps; told to leave they save the count and leave with exit status 85.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, within

pytestmark = pytest.mark.slurm

GRACE_S = 20.0
TENANTS = {"bio": {"quota": {"gpus": 0}}}
NODE = ("-N1", "--gres=gpu:h100:8")  # only cedar has these
STEP_S = 0.1
SAVER = """#!/usr/bin/env python3
import os, signal, sys, time
told = []
for name in ("USR1", "USR2", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), lambda number, _: told.append(number))
folder = os.environ["FED_CHECKPOINT_DIR"]
state, step = os.path.join(folder, "state"), 0
if os.path.exists(state):
    step = int(open(state).read())
with open(os.path.join(folder, "log"), "a") as log:
    while step < int(sys.argv[1]):
        step += 1
        print(os.environ["FED_SITE"], os.environ["FED_ATTEMPT"], step, file=log, flush=True)
        time.sleep(0.1)
        if told:
            with open(state + ".new", "w") as file:
                file.write(str(step))
            os.replace(state + ".new", state)
            sys.exit(85)
"""
DEAF = """#!/usr/bin/env python3
import signal, time
for name in ("HUP", "INT", "USR1", "USR2", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
while True:
    time.sleep(1)
"""


def saver(steps: int = 100_000) -> str:
    """A job of so many steps that saves when it is told to leave."""
    return SAVER.replace("sys.argv[1]", str(steps))


@pytest.fixture
def evicting(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(Running(tmp_path, tenants=TENANTS, pass_interval_s=10.0,
                               preemption=preemption()))  # fmt: skip


def preemption(**settings: float) -> dict[str, float]:
    """All may go at once, and again soon; but for what is given."""
    return {"grace_s": GRACE_S, "cooldown_s": 1.0, "budget_frac": 1.0} | settings


def folder_of(id_: int, region: str = "east", user: str = "bio1") -> Path:
    return StateDir.default().shared(region) / user / "checkpoints" / str(id_)


def steps_of(id_: int, region: str = "east") -> list[tuple[str, int, int]]:
    """What a saver has noted: site, attempt, step."""
    log = folder_of(id_, region) / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(site, int(attempt), int(step)) for site, attempt, step in map(str.split, lines)]


def fill(running: Running, script: str, number: int = 8, *options: str) -> list[int]:
    """Guests on so many nodes of cedar, all of them at work."""
    ids = [running.submit(script, *NODE, *options, user="bio1") for _ in range(number)]
    for id_ in ids:
        running.await_state(id_, "RUNNING")
    if script.startswith(SAVER[:40]):
        within(10, lambda: all(len(steps_of(id_)) > 1 for id_ in ids))
    return ids


def start_of(running: Running, id_: int, timeout_s: float = 60.0) -> tuple[Row, float]:
    """The row of a workload that runs, and the seconds until then."""
    began_s = time.monotonic()
    row = running.await_state(id_, "RUNNING", timeout_s=timeout_s)
    return row, time.monotonic() - began_s


def resumed(id_: int, region: str = "east") -> list[tuple[str, int, int]]:
    """What it noted once it runs again: every step was done, and none twice."""
    within(20, lambda: steps_of(id_, region)[-1][1] == 2)
    noted = steps_of(id_, region)
    steps = [step for _, _, step in noted]
    assert steps == list(range(1, len(steps) + 1))
    return noted


def test_a_gang_within_quota_displaces_the_fewest_and_starts_within_their_grace(
    evicting: Running,
) -> None:
    guests = fill(evicting, saver())
    gang = evicting.submit("#!/bin/sh\nsleep 8\n", "-N2", "--gres=gpu:h100:8")
    row, waited_s = start_of(evicting, gang)
    assert waited_s < GRACE_S + 5
    gone = [id_ for id_ in guests if evicting.row(id_)["attempt"] > 1 or
            evicting.row(id_)["state"] == "PENDING"]  # fmt: skip
    assert len(gone) == 2
    assert len(row["node_names"]) == 2
    for id_ in gone:  # they go on where they were, and have lost less than a step
        evicting.await_state(id_, "RUNNING")
        resumed(id_)
        assert evicting.row(id_)["attempt"] == 2
    untouched = [id_ for id_ in guests if id_ not in gone]
    assert all(evicting.row(id_)["attempt"] == 1 for id_ in untouched)


def test_who_ignores_every_signal_is_gone_at_the_deadline(evicting: Running) -> None:
    guests = fill(evicting, DEAF)
    gang = evicting.submit("#!/bin/sh\nsleep 8\n", *NODE)
    _, waited_s = start_of(evicting, gang)
    assert GRACE_S - 1 < waited_s < GRACE_S + 5
    assert sum(evicting.row(id_)["state"] != "RUNNING" for id_ in guests) == 1
