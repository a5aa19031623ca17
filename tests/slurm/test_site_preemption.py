"""A federated job survives its own site's preemption or requeue: three generations.

It comes back to the global queue, the site's copy is taken back, and it runs again once: elsewhere
if the site preempted it, since what it runs for itself matters more to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from federator.testbed import layout
from tests.slurm.federation import (
    LONG_S,
    SOON_S,
    STARTS,
    Row,
    Running,
    agents,
    at,
    federation_jobs,
    starts,
    until,
    within,
)

pytestmark = pytest.mark.slurm
GANG = ("--gres=gpu:8", "--nodes=2", "--time=60")
SITES = [site.name for site in layout.SITES]
ENDED = {"CANCELLED", "COMPLETED", "FAILED", "PREEMPTED"}
_NOTES = f'#!/bin/sh\necho "$FED_JOB_ID $FED_ATTEMPT $SLURM_JOB_ID" >>"$HOME/{STARTS}"\n'
WORKS = f"{_NOTES}sleep {LONG_S}\n"
REQUEUES_ITSELF = (
    f"{_NOTES}{until('requeue')}"
    '[ "$FED_ATTEMPT" = 1 ] && scontrol requeue "$SLURM_JOB_ID"\n'
    f"sleep {LONG_S}\n"
)


@contextmanager
def local_work_first(site: str, mode: str) -> Iterator[None]:
    """The partition of local users preempts the federation's; a victim has 5 s."""
    at(site, "scontrol", "update", "partitionname=local", "prioritytier=10")
    at(site, "scontrol", "update", "partitionname=fed", "gracetime=5", f"preemptmode={mode}")
    try:
        yield
    finally:
        at(site, "scancel", "--partition=local")
        at(site, "scontrol", "update", "partitionname=local", "prioritytier=1")
        at(site, "scontrol", "update", "partitionname=fed", "gracetime=20", "preemptmode=requeue")


@contextmanager
def running_at(site: str, federation: Running, *scripts: str) -> Iterator[list[Row]]:
    """Workloads that run at a site; there is room at every other site then."""
    with federation.first_is(site):
        ids = [federation.submit(script, *GANG) for script in scripts]
        rows = [federation.await_state(id_, "RUNNING") for id_ in ids]
        assert {(row["site"], row["attempt"]) for row in rows} == {(site, 1)}
        within(60, lambda: len(starts(*ids)) == len(ids))  # their nodes' gates have let them
    yield rows


def again(federation: Running, id_: int) -> Row:
    """The row once its second attempt runs, its script too, and why there is one."""

    def runs_again() -> bool:
        row = federation.row(id_)
        return (row["state"], row["attempt"]) == ("RUNNING", 2)

    within(90, runs_again, SOON_S)
    within(60, lambda: [start[1] for start in starts(id_)][-1:] == [2])
    told = federation.run("fsqueue", "--json", "--why", "-j", str(id_))
    found: Row
    (found,) = json.loads(told.stdout)["jobs"]
    assert (found["state"], found["attempt"]) == ("RUNNING", 2)
    return found


def states_of(site: str, id_: int, attempt: int) -> list[str]:
    """What Slurm says of an attempt at a site."""
    comment = f"fed:{id_}:{attempt}"
    return [j["JobState"] for j in federation_jobs(site) if j["Comment"] == comment]


@pytest.mark.parametrize(("mode", "left"), [("requeue", "CANCELLED"), ("cancel", "PREEMPTED")])
@pytest.mark.parametrize("site", SITES)
def test_what_a_site_preempts_for_work_of_its_own_runs_elsewhere(
    federation: Running, site: str, mode: str, left: str
) -> None:
    with local_work_first(site, mode), running_at(site, federation, WORKS) as (first,):
        id_ = first["id"]
        at(
            site,
            "sbatch",
            "--partition=local",
            "--nodes=8",
            "--gres=gpu:8",
            "--exclusive",
            "--output=/dev/null",
            f"--wrap=sleep {LONG_S}",
            user=layout.LOCAL_USER,
        )
        row = again(federation, id_)
        within(30, lambda: states_of(site, id_, 1) == [left])
    assert row["site"] != site
    setback = row["setbacks"][site]["reason"]
    assert (setback["code"], setback["detail"]) == ("FedPreempted", "by the site")
    assert row["submitted_at_s"] == first["submitted_at_s"]
    assert [start[:3] for start in starts(id_)] == [(id_, 1, site), (id_, 2, row["site"])]


@pytest.mark.parametrize("site", SITES)
def test_what_is_requeued_at_its_site_is_taken_back_and_runs_once_more(
    federation: Running, site: str, go: Callable[..., None]
) -> None:
    """By an admin, who may hold it, or by itself as submitit and Lightning do."""
    scripts = {"requeue": WORKS, "requeuehold": WORKS, "itself": REQUEUES_ITSELF}
    with running_at(site, federation, *scripts.values()) as rows:
        firsts = dict(zip(scripts, rows, strict=True))
        go(word="requeue")
        for how in ("requeue", "requeuehold"):
            at(site, "scontrol", how, str(firsts[how]["site_job_id"]))
        seconds = {how: again(federation, first["id"]) for how, first in firsts.items()}
    for how, row in seconds.items():
        id_ = row["id"]
        within(30, lambda: states_of(site, id_, 1) == ["CANCELLED"])  # noqa: B023
        code = row["setbacks"].get(site, {}).get("reason", {}).get("code")
        assert code == "FedPreempted" if how == "requeuehold" else code in {None, "FedRequeued"}
        assert [start[:2] for start in starts(id_)] == [(id_, 1), (id_, 2)]


@contextmanager
def unseen(site: str) -> Iterator[None]:
    """What is done meanwhile, the site's agent sees at its end only."""
    (agent,) = agents(site)
    at(site, "kill", "-STOP", str(agent))
    try:
        yield
    finally:
        at(site, "kill", "-CONT", str(agent))


@pytest.mark.parametrize("site", SITES)
def test_what_an_admin_moves_to_a_partition_of_others_is_followed_there(
    federation: Running, site: str
) -> None:
    """Once it waits again; users of these sites are not allowed to."""
    with running_at(site, federation, WORKS) as (first,):
        id_, job = first["id"], str(first["site_job_id"])
        move = f"scontrol update jobid={job} partition=local; squeue -ho %P -j {job}"
        with unseen(site):
            at(site, "scontrol", "requeuehold", job)
            within(60, lambda: at(site, "sh", "-c", move).strip() == "local")
        row = again(federation, id_)
    within(30, lambda: states_of(site, id_, 1) == ["CANCELLED"])
    assert row["setbacks"][site]["reason"]["code"] == "FedPreempted"
    assert [start[:2] for start in starts(id_)] == [(id_, 1), (id_, 2)]
