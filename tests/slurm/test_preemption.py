"""Evictions on real clusters: who goes, how they save, and where they go on.

``bio`` has no quota here, so whatever it runs may be evicted for ``vision`` and ``nlp``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from federator.agent.grace import TERM_BEFORE_S
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import LONG_S, SOON_S, Running, at, until, within
from tests.slurm.guests import (
    NODE,
    SAVER,
    TENANTS,
    fill,
    preemption,
    resumed,
    saver,
    start_of,
    steps_of,
)

pytestmark = pytest.mark.slurm

STAYS = f"#!/bin/sh\nsleep {LONG_S}\n"
GRACE_S = 60.0  # nobody needs all of it; what is to be done within it may take its time


@pytest.fixture(scope="module")
def lasting_run(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With a budget that is whole again at each test: who is evicted in them all is too many."""
    folder = tmp_path_factory.mktemp("evicting")
    settings = preemption(grace_s=GRACE_S, budget_window_s=10.0)
    yield from lasting(Running(folder, tenants=TENANTS, pass_interval_s=10.0, preemption=settings))


@pytest.fixture
def evicting(lasting_run: Running) -> Iterator[Running]:
    """The module's daemon; what a test leaves at work is cancelled, local jobs too."""
    yield lasting_run
    for site in ("boreal", "cedar"):
        give_back(site)
    lasting_run.cancel_all()


def give_back(site: str) -> None:
    """The local users' jobs end."""
    at(site, "scancel", "--partition=local")


def test_a_gang_within_quota_displaces_the_fewest_and_starts_within_their_grace(
    evicting: Running, go: Callable[..., None]
) -> None:
    guests = fill(evicting, saver())
    gang = evicting.submit(f"#!/bin/sh\n{until()}", "-N2", "--gres=gpu:h100:8")
    row, waited_s = start_of(evicting, gang)
    assert waited_s < GRACE_S
    gone = [
        id_
        for id_ in guests
        if evicting.row(id_)["attempt"] > 1 or evicting.row(id_)["state"] == "PENDING"
    ]
    assert len(gone) == 2
    assert len(row["node_names"]) == 2
    go("cedar")
    for id_ in gone:  # they go on where they were, and have lost less than a step
        evicting.await_state(id_, "RUNNING")
        resumed(id_)
        assert evicting.row(id_)["attempt"] == 2
    untouched = [id_ for id_ in guests if id_ not in gone]
    assert all(evicting.row(id_)["attempt"] == 1 for id_ in untouched)


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


def test_each_habit_of_saving_is_understood(evicting: Running) -> None:
    guests = {
        name: evicting.submit(script.replace("sys.argv[1]", "100000"), *NODE, *options, user="bio1")
        for name, (options, script) in HABITS.items()
    }
    within(90, lambda: all(len(steps_of(id_)) > 5 for id_ in guests.values()))
    for id_ in guests.values():  # the daemon may see them start after their first steps
        evicting.await_state(id_, "RUNNING")
    gang = evicting.submit("#!/bin/sh\nsleep 3\n", "-N8", "--gres=gpu:h100:8")
    began_s, left_after_s = time.monotonic(), dict[str, float]()

    def all_have_left() -> bool:
        states = {row["id"]: row["state"] for row in evicting.rows(*guests.values())}
        for name, id_ in guests.items():
            if states[id_] not in ("RUNNING", "PREEMPTING"):
                left_after_s.setdefault(name, time.monotonic() - began_s)
        return len(left_after_s) == len(guests)

    within(90, all_have_left, SOON_S)
    assert max(left_after_s.values()) < GRACE_S - TERM_BEFORE_S, left_after_s  # before the deadline
    evicting.await_state(gang, "RUNNING", "COMPLETED")
    for name, id_ in guests.items():
        row = evicting.await_state(id_, "RUNNING")
        assert (name, row["attempt"]) == (name, 2)
        resumed(id_)


# ---- where it goes on ----


def test_a_victim_goes_on_at_another_site_that_can_read_its_checkpoint(evicting: Running) -> None:
    evicting.fill("boreal")
    a100 = ("-N1", "--gres=gpu:a100:8")
    guests = [evicting.submit(saver(), *a100, user="bio1") for _ in range(8)]
    for id_ in guests:
        assert evicting.await_state(id_, "RUNNING")["site"] == "alpine"
    within(60, lambda: all(len(steps_of(id_, "west")) > 1 for id_ in guests))
    gang = evicting.submit(STAYS, "-N8", "--gres=gpu:a100:8")
    row, waited_s = start_of(evicting, gang)
    assert row["site"] == "alpine"
    assert waited_s < GRACE_S
    give_back("boreal")
    for id_ in guests:
        assert evicting.await_state(id_, "RUNNING")["site"] == "boreal"
        sites = {site for site, _, _ in resumed(id_, "west")}
        assert sites == {"alpine", "boreal"}


def test_a_victim_waits_for_a_site_that_can_read_its_checkpoint(evicting: Running) -> None:
    """Cedar is of another region: it has room, and does not get the job."""
    evicting.fill("boreal", "cedar")
    guest = evicting.submit(saver(), "-N1", "--gres=gpu:8", user="bio1")
    assert evicting.await_state(guest, "RUNNING")["site"] == "alpine"
    within(60, lambda: len(steps_of(guest, "west")) > 1)
    owner = evicting.submit(STAYS, "-N8", "--gres=gpu:a100:8")
    evicting.await_state(owner, "RUNNING")
    give_back("cedar")

    def why() -> str:
        refusal = evicting.row(guest)["refusals"].get("cedar")
        return str(refusal["reasons"][0]["code"]) if refusal else ""

    within(60, lambda: why() == "FedCheckpoint")  # while it was full, it said so
    give_back("boreal")
    assert evicting.await_state(guest, "RUNNING")["site"] == "boreal"
    resumed(guest, "west")


def test_two_preemptors_never_claim_the_same_victim(evicting: Running) -> None:
    guests = fill(evicting, saver())
    gangs = [
        evicting.submit(STAYS, "-N3", "--gres=gpu:h100:8", user=user)
        for user in ("vision1", "nlp1")
    ]
    nodes = [set(start_of(evicting, id_)[0]["node_names"]) for id_ in gangs]
    assert not nodes[0] & nodes[1]
    assert sum(evicting.row(id_)["state"] == "PENDING" for id_ in guests) == 6
    assert sum(evicting.row(id_)["attempt"] for id_ in guests) == 8
