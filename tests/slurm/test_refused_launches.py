"""What a real sbatch refuses for good is not launched for ever, on three generations."""

from __future__ import annotations

import re

import pytest

from federator.testbed import layout
from tests.slurm.federation import Running, at, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
SCRIPT = "#!/bin/sh\ntrue\n"


def test_what_every_site_refuses_is_held_with_their_words_until_it_is_cancelled(
    federation: Running,
) -> None:
    id_ = federation.submit(SCRIPT, "--prefer=nosuch")
    row = federation.await_state(id_, "HELD")
    assert row["reason"]["code"] == "JobHeldUser"
    assert row["reason"]["detail"] == (
        f"{', '.join(SITES)}: Batch job submission failed: Invalid preferred feature specification"
    )
    assert row["exit_code"] is None
    assert row["attempt"] == len(SITES)
    shown = federation.run("fsqueue", "--why", str(id_)).stdout
    assert re.search(rf"{id_} .* PD .*\(JobHeldUser\)\n +held, .*Invalid preferred feature", shown)
    assert federation.run("fscancel", str(id_)).returncode == 0
    assert federation.row(id_)["state"] == "CANCELLED"
    explained = federation.run("federator", "explain", str(id_)).stdout
    assert re.search(r"^  Ended +before it started$", explained, re.MULTILINE)


def test_wait_ends_when_no_site_takes_the_job(federation: Running) -> None:
    done = federation.run("fsbatch", "--wait", "--uid=vision1", "--acctg-freq=0", stdin=SCRIPT)
    assert done.returncode == 1
    assert "Invalid accounting frequency requested" in done.stderr


def test_an_option_that_one_generation_does_not_know_leads_to_another(federation: Running) -> None:
    """22.05 knows no --segment; later ones do."""
    id_ = federation.submit(SCRIPT, "--segment=1")
    (row,) = federation.await_end(id_)
    assert (row["state"], row["exit_code"]) == ("COMPLETED", 0)
    assert row["site"] != "alpine"


def test_a_job_waits_for_a_site_that_has_not_refused_it(federation: Running) -> None:
    later = [name for name in SITES if name != "alpine"]
    federation.fill(*later)
    try:
        id_ = federation.submit(SCRIPT, "--segment=1", "--gres=gpu:1")

        def refused() -> str | None:
            row = federation.rows(id_)[0]
            said = row["refusals"].get("alpine", {"reasons": [{"code": "", "detail": ""}]})
            (reason,) = said["reasons"]
            return reason["detail"] if reason["code"] == "FedSbatch" else None

        assert within(60, refused) == "unrecognized option '--segment=1'"
        assert federation.row(id_)["state"] == "PENDING"
    finally:
        for name in later:
            at(name, "scancel", "--partition=local")
    (row,) = federation.await_end(id_)
    assert (row["state"], row["site"] in later, row["attempt"]) == ("COMPLETED", True, 2)


def test_what_slurm_accepts_and_can_never_start_counts_as_a_refused_plan(
    federation: Running,
) -> None:
    """slurmctld refuses it at once, fails it with BadConstraints, or leaves it pending for ever."""
    never = (["--ntasks-per-socket=99"], ["-N1", "-n4", "--ntasks-per-socket=1"])
    ids = [federation.submit(SCRIPT, *options) for options in never]

    def refused(id_: int) -> set[str]:
        row = federation.row(id_)
        assert row["state"] != "FAILED", row
        if row["state"] == "HELD":
            return set(SITES)
        said = row["refusals"].items()
        return {name for name, why in said if why["reasons"][0]["code"] in ("FedPlan", "FedSbatch")}

    assert within(200, lambda: all(len(refused(id_)) >= 2 for id_ in ids))
    for id_ in ids:
        assert federation.run("fscancel", str(id_)).returncode == 0
