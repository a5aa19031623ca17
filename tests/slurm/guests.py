"""Jobs that are evicted on real clusters, and what they note of it.

They count steps; told to leave they save the count and leave with exit status 85.
"""

from __future__ import annotations

import time
from pathlib import Path

from federator.testbed.layout import StateDir
from tests.slurm.federation import Row, Running, within

GRACE_S = 20.0
BUSY_S = 60.0  # that a start may take longer on a busy machine: passes, prologs
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
with open(os.path.join(folder, "log." + os.environ["FED_ATTEMPT"]), "a") as log:
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
import os, signal, time
for name in ("HUP", "INT", "USR1", "USR2", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
open(os.environ["FED_CHECKPOINT_DIR"] + "/deaf", "w").close()
while True:
    time.sleep(1)
"""


def saver(steps: int = 100_000) -> str:
    """A job of so many steps that saves when it is told to leave."""
    return SAVER.replace("sys.argv[1]", str(steps))


def preemption(**settings: float) -> dict[str, float]:
    """All may go at once, and again soon; but for what is given."""
    return {"grace_s": GRACE_S, "cooldown_s": 1.0, "budget_frac": 1.0} | settings


def folder_of(id_: int, region: str = "east", user: str = "bio1") -> Path:
    return StateDir.default().shared(region) / user / "checkpoints" / str(id_)


def steps_of(id_: int, region: str = "east", user: str = "bio1") -> list[tuple[str, int, int]]:
    """What a saver has noted: site, attempt, step."""
    logs = sorted(folder_of(id_, region, user).glob("log.*"))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [(site, int(attempt), int(step)) for site, attempt, step in map(str.split, lines)]


def fill(running: Running, script: str, number: int = 8, *options: str) -> list[int]:
    """Guests on so many nodes of cedar, all of them at work."""
    ids = [running.submit(script, *NODE, *options, user="bio1") for _ in range(number)]
    for id_ in ids:
        running.await_state(id_, "RUNNING")
    if script is DEAF:
        within(60, lambda: all((folder_of(id_) / "deaf").exists() for id_ in ids))
    else:
        within(60, lambda: all(len(steps_of(id_)) > 1 for id_ in ids))
    return ids


def start_of(running: Running, id_: int, timeout_s: float = 90.0) -> tuple[Row, float]:
    """The row of a workload that runs, and the seconds until then."""
    began_s = time.monotonic()
    row = running.await_state(id_, "RUNNING", timeout_s=timeout_s)
    return row, time.monotonic() - began_s


def resumed(id_: int, region: str = "east", user: str = "bio1") -> list[tuple[str, int, int]]:
    """What it noted once it runs again: every step was done, and none twice."""
    within(60, lambda: steps_of(id_, region, user)[-1][1] == 2)
    noted = steps_of(id_, region, user)
    steps = [step for _, _, step in noted]
    assert steps == list(range(1, len(steps) + 1)), noted
    return noted
