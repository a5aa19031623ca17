"""Evictions on real clusters: who goes, in what order, how fast, and what is kept.

``bio`` has no quota here, so whatever it runs may be evicted for ``vision`` and ``nlp``. Its jobs
count steps; told to leave they save the count and leave with exit status 85.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.agent.grace import TERM_BEFORE_S
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, at, within
from tests.slurm.federation import fill as take

pytestmark = pytest.mark.slurm

GRACE_S = 20.0
LONG_S = 60.0  # a grace that nobody needs; what is to be done within it may take its time
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


@pytest.fixture
def evicting(
    testbed: StateDir, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Running]:
    """Its grace may be a test's parameter."""
    settings = preemption(grace_s=getattr(request, "param", GRACE_S))
    yield from lasting(
        Running(tmp_path, tenants=TENANTS, pass_interval_s=10.0, preemption=settings)
    )


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


def give_back(site: str) -> None:
    """The local users' jobs of ``take`` end."""
    at(site, "scancel", "--partition=local")


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
    assert steps == list(range(1, len(steps) + 1))
    return noted


@pytest.mark.parametrize("evicting", [LONG_S], indirect=True)
def test_a_gang_within_quota_displaces_the_fewest_and_starts_within_their_grace(
    evicting: Running,
) -> None:
    guests = fill(evicting, saver())
    gang = evicting.submit("#!/bin/sh\nsleep 8\n", "-N2", "--gres=gpu:h100:8")
    row, waited_s = start_of(evicting, gang)
    assert waited_s < LONG_S
    gone = [
        id_
        for id_ in guests
        if evicting.row(id_)["attempt"] > 1 or evicting.row(id_)["state"] == "PENDING"
    ]
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
    gang = evicting.submit("#!/bin/sh\nsleep 300\n", *NODE)
    _, waited_s = start_of(evicting, gang)
    assert GRACE_S - 1 < waited_s < GRACE_S + 20
    assert sum(row["state"] != "RUNNING" for row in evicting.rows(*guests)) == 1


# ---- whatever the job speaks ----

ALL = '("USR1", "USR2", "TERM")'


def in_a_step(program: str) -> str:
    """A script that runs a Python program with srun."""
    return f"#!/bin/sh\nsrun python3 - <<'END'\n{program}END\n"


HABITS = {
    # Its own signal, to the steps that srun started; the script hands the exit status on.
    "its own signal to its steps": (
        ("--signal=USR1@600",),
        in_a_step(SAVER.replace(ALL, '("USR1",)')),
    ),
    # Its own signal to the batch script alone.
    "its own signal to its script": (
        ("--signal=B:USR2@60",),
        SAVER.replace(ALL, '("USR2",)'),
    ),
    # Says nothing: TERM, as Slurm's GraceTime sends it.
    "TERM": ((), SAVER.replace(ALL, '("TERM",)')),
    "TERM to its steps": (
        (),
        in_a_step(SAVER.replace(ALL, '("TERM",)')),
    ),
    # As submitit does: named in the wckey, saves on USR2, deaf to TERM, requeues itself.
    "requeues itself": (
        ("--wckey=submitit",),
        in_a_step(
            SAVER.replace(ALL, '("USR2",)').replace(
                "sys.exit(85)",
                'os.system("scontrol requeue " + os.environ["SLURM_JOB_ID"]); time.sleep(60)',
            )
        ),
    ),
    # Says that it has saved, and stays.
    "acknowledges": (
        (),
        SAVER.replace(
            "sys.exit(85)",
            'open(os.path.join(folder, ".fed", "saved." + os.environ["FED_ATTEMPT"]), "w");'
            " time.sleep(600)",
        ),
    ),
    # Leaves with success, as many a trainer does.
    "ends with success": ((), SAVER.replace("sys.exit(85)", "sys.exit(0)")),
    # Looks for its deadline instead of signals.
    "reads its deadline": (
        ("--signal=CONT",),
        SAVER.replace(ALL, "()").replace(
            "if told:", 'if os.path.exists(os.environ["FED_PREEMPT_DEADLINE"]):'
        ),
    ),
}


@pytest.mark.parametrize("evicting", [LONG_S], indirect=True)
def test_each_habit_of_saving_is_understood(evicting: Running) -> None:
    guests = {
        name: evicting.submit(script.replace("sys.argv[1]", "100000"), *NODE, *options, user="bio1")
        for name, (options, script) in HABITS.items()
    }
    within(90, lambda: all(len(steps_of(id_)) > 5 for id_ in guests.values()))
    for id_ in guests.values():  # the daemon may see them start after their first steps
        evicting.await_state(id_, "RUNNING")
    gang = evicting.submit("#!/bin/sh\nsleep 3\n", "-N8", "--gres=gpu:h100:8")
    _, waited_s = start_of(evicting, gang)
    assert waited_s < LONG_S - TERM_BEFORE_S, "all were ended long before their deadline"
    for name, id_ in guests.items():
        row = evicting.await_state(id_, "RUNNING")
        assert (name, row["attempt"]) == (name, 2)
        resumed(id_)


# ---- where it goes on ----


@pytest.mark.parametrize("evicting", [LONG_S], indirect=True)
def test_a_victim_goes_on_at_another_site_that_can_read_its_checkpoint(evicting: Running) -> None:
    take("boreal")
    a100 = ("-N1", "--gres=gpu:a100:8")
    guests = [evicting.submit(saver(), *a100, user="bio1") for _ in range(8)]
    for id_ in guests:
        assert evicting.await_state(id_, "RUNNING")["site"] == "alpine"
    within(60, lambda: all(len(steps_of(id_, "west")) > 1 for id_ in guests))
    gang = evicting.submit("#!/bin/sh\nsleep 60\n", "-N8", "--gres=gpu:a100:8")
    row, waited_s = start_of(evicting, gang)
    assert row["site"] == "alpine"
    assert waited_s < LONG_S
    give_back("boreal")
    for id_ in guests:
        assert evicting.await_state(id_, "RUNNING")["site"] == "boreal"
        sites = {site for site, _, _ in resumed(id_, "west")}
        assert sites == {"alpine", "boreal"}


def test_a_victim_waits_for_a_site_that_can_read_its_checkpoint(evicting: Running) -> None:
    """Cedar is of another region: it has room, and does not get the job."""
    take("boreal")
    take("cedar")
    guest = evicting.submit(saver(), "-N1", "--gres=gpu:8", user="bio1")
    assert evicting.await_state(guest, "RUNNING")["site"] == "alpine"
    within(60, lambda: len(steps_of(guest, "west")) > 1)
    owner = evicting.submit("#!/bin/sh\nsleep 300\n", "-N8", "--gres=gpu:a100:8")
    evicting.await_state(owner, "RUNNING")
    give_back("cedar")
    why = within(60, lambda: evicting.row(guest)["refusals"].get("cedar"))
    assert why["reasons"][0]["code"] == "FedCheckpoint"
    give_back("boreal")
    assert evicting.await_state(guest, "RUNNING")["site"] == "boreal"
    resumed(guest, "west")


# ---- budget, many at once, and a daemon that dies ----


def test_two_preemptors_never_claim_the_same_victim(evicting: Running) -> None:
    guests = fill(evicting, saver())
    gangs = [
        evicting.submit("#!/bin/sh\nsleep 120\n", "-N3", "--gres=gpu:h100:8", user=user)
        for user in ("vision1", "nlp1")
    ]
    nodes = [set(start_of(evicting, id_)[0]["node_names"]) for id_ in gangs]
    assert not nodes[0] & nodes[1]
    assert sum(evicting.row(id_)["state"] == "PENDING" for id_ in guests) == 6
    assert sum(evicting.row(id_)["attempt"] for id_ in guests) == 8


@pytest.fixture
def thrifty(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """Of its 192 GPUs 17 may be evicted in an hour: two nodes."""
    settings = preemption(budget_frac=0.09, budget_window_s=3600.0)
    yield from lasting(
        Running(tmp_path, tenants=TENANTS, pass_interval_s=10.0, preemption=settings)
    )


def test_a_storm_of_submissions_evicts_no_more_than_the_budget(thrifty: Running) -> None:
    def running(ids: list[int]) -> int:
        return sum(row["state"] == "RUNNING" for row in thrifty.rows(*ids))

    guests = fill(thrifty, saver())
    storm = [thrifty.submit("#!/bin/sh\nsleep 900\n", *NODE, user="nlp1") for _ in range(50)]
    within(90, lambda: running(storm) == 2)
    time.sleep(15)  # a pass or two later
    assert (running(storm), running(guests)) == (2, 6)


WINDOW_S = 40.0


@pytest.fixture
def staged(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """Two of cedar's nodes may be evicted in each window of 40 s."""
    settings = preemption(budget_frac=0.09, budget_window_s=WINDOW_S)
    yield from lasting(
        Running(tmp_path, tenants=TENANTS, pass_interval_s=10.0, preemption=settings)
    )


def test_a_large_gang_gets_its_nodes_back_from_many_guests_over_several_windows(
    staged: Running,
) -> None:
    guests = fill(staged, saver())
    began_s = time.monotonic()
    gang = staged.submit("#!/bin/sh\nsleep 20\n", "-N6", "--gres=gpu:h100:8", user="nlp1")
    within(
        30, lambda: "come free for it at cedar" in staged.run("fsqueue", "--why", str(gang)).stdout
    )
    time.sleep(WINDOW_S / 4)
    states = [row["state"] for row in staged.rows(*guests)]
    assert states.count("RUNNING") == 6  # two have left, and nobody is on their nodes
    staged.kill()  # the claim is in the log
    staged.start()
    row, _ = start_of(staged, gang, 2 * WINDOW_S + 90.0)
    assert time.monotonic() - began_s <= 2 * WINDOW_S + GRACE_S + 30.0
    assert len(row["node_names"]) == 6
    within(90, lambda: all(r["state"] == "RUNNING" for r in staged.rows(*guests)))
    evicted = [id_ for id_ in guests if staged.row(id_)["attempt"] > 1]
    assert len(evicted) == 6
    for id_ in evicted:
        resumed(id_)


def test_a_guest_larger_than_the_budget_leaves_and_is_paid_for_in_the_windows_that_follow(
    staged: Running,
) -> None:
    guest = staged.submit(saver(), "-N8", "--gres=gpu:h100:8", user="bio1")
    staged.await_state(guest, "RUNNING")
    within(60, lambda: len(steps_of(guest)) > 1)
    gang = staged.submit("#!/bin/sh\nsleep 20\n", "-N6", "--gres=gpu:h100:8", user="nlp1")
    _, waited_s = start_of(staged, gang)
    assert waited_s <= GRACE_S + 30.0
    shown = staged.run("federator", "status").stdout
    assert "1 with 64 GPUs" in shown
    assert "0 of 17.28 GPUs of the budget left, all in" in shown
    staged.await_state(guest, "RUNNING", timeout_s=90.0)
    resumed(guest)


@pytest.fixture
def in_time(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """The budget of ten minutes is two of cedar's nodes; nlp is to start within a minute."""
    settings = preemption(budget_frac=0.09, budget_window_s=600.0)
    tenants: dict[str, Row] = {**TENANTS, "nlp": {"start_within_s": 60}}
    yield from lasting(
        Running(tmp_path, tenants=tenants, pass_interval_s=10.0, preemption=settings)
    )


def test_an_owner_with_a_start_objective_has_its_nodes_back_beyond_the_budget(
    in_time: Running,
) -> None:
    guests = fill(in_time, saver())
    gang = in_time.submit("#!/bin/sh\nsleep 8\n", "-N6", "--gres=gpu:h100:8", user="nlp1")
    row, waited_s = start_of(in_time, gang)
    assert waited_s < 60.0 + 10.0
    assert len(row["node_names"]) == 6
    assert "32 GPUs beyond it for start objectives" in in_time.run("federator", "status").stdout
    within(90, lambda: all(r["state"] == "RUNNING" for r in in_time.rows(*guests)))
    evicted = [id_ for id_ in guests if in_time.row(id_)["attempt"] > 1]
    assert len(evicted) == 6
    for id_ in evicted:
        resumed(id_)


def test_a_daemon_killed_in_the_middle_of_a_preemption_finishes_it(evicting: Running) -> None:
    away_s = GRACE_S - 5
    guests = fill(evicting, DEAF)
    gang = evicting.submit("#!/bin/sh\nsleep 300\n", *NODE)
    within(60, lambda: any(r["state"] == "PREEMPTING" for r in evicting.rows(*guests)))
    began_s = time.monotonic()
    evicting.kill()
    time.sleep(away_s)
    evicting.start()
    row, _ = start_of(evicting, gang)
    assert time.monotonic() - began_s < away_s + GRACE_S  # their grace has not begun anew
    gone = [r for r in evicting.rows(*guests) if r["state"] != "RUNNING"]
    assert len(gone) == 1
    assert len(row["node_names"]) == 1


@pytest.fixture
def with_homes(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """nlp owns cedar, vision the west, though its priority is higher."""
    homes = {
        "nlp": {"quota": {"gpus": 64}, "home": ["cedar"]},
        "vision": {"quota": {"gpus": 64}, "home": ["alpine", "boreal"]},
    }
    yield from lasting(
        Running(tmp_path, tenants=homes, pass_interval_s=10.0, preemption=preemption())
    )


def test_an_owner_has_its_home_back_from_work_within_the_quota_of_others(
    with_homes: Running,
) -> None:
    guests = [with_homes.submit(saver(), *NODE, user="vision1") for _ in range(8)]
    for id_ in guests:
        with_homes.await_state(id_, "RUNNING")
    within(60, lambda: all(len(steps_of(id_, user="vision1")) > 1 for id_ in guests))
    gang = with_homes.submit("#!/bin/sh\nsleep 8\n", "-N2", "--gres=gpu:h100:8", user="nlp1")
    row, waited_s = start_of(with_homes, gang)
    assert row["site"] == "cedar"
    assert waited_s < GRACE_S + 30.0
    within(90, lambda: all(r["state"] == "RUNNING" for r in with_homes.rows(*guests)))
    evicted = [id_ for id_ in guests if with_homes.row(id_)["attempt"] > 1]
    assert len(evicted) == 2
    for id_ in evicted:
        resumed(id_, user="vision1")
