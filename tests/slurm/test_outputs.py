"""What jobs write becomes data sets when they have completed, on real Slurm."""

from __future__ import annotations

import json

import pytest

from tests.slurm.federation import Running, at, within

pytestmark = pytest.mark.slurm

QUIET = ("--gres=gpu:1", "-t", "2")
WRITES = """#!/bin/sh
echo "$FED_OUTPUT" >"$FED_OUTPUT_TEXT_WORDS/words"
exit $1
"""
READS = '#!/bin/sh\ntest "$(cat "$FED_DATASET_TEXT_WORDS/words")" = text/words@first\n'


def where(running: Running) -> list[tuple[str, str, bool]]:
    """The replicas of all versions: domain, path, and whether it is sealed."""
    done = running.run("federator", "data", "show", "text/words", "--json")
    sets = json.loads(done.stdout)["data_sets"] if done.returncode == 0 else []
    return [(r["domain"], r["path"], bool(r["digest"])) for s in sets for r in s["replicas"]]


def test_an_output_becomes_a_data_set_that_the_next_job_reads(alone: Running) -> None:
    for site in ("alpine", "cedar"):
        at(site, "sh", "-c", "rm -rf /shared/*/vision1/outputs")
    wrote = alone.submit(WRITES.replace("$1", "0"), *QUIET, "--fed-output=text/words@first")
    failed = alone.submit(WRITES.replace("$1", "3"), *QUIET, "--fed-output=text/words")
    (row,) = alone.await_end(wrote)
    assert row["state"] == "COMPLETED", row
    domain = "east" if row["site"] == "cedar" else "west"
    path = "vision1/outputs/text/words@first"
    within(30, lambda: where(alone) == [(domain, path, True)])
    reads = alone.submit(READS, *QUIET, "--fed-dataset=text/words@first")
    (row,) = alone.await_end(reads)
    assert row["state"] == "COMPLETED", row
    (row,) = alone.await_end(failed)
    assert row["state"] == "FAILED", row
    again = alone.run("fsbatch", "--uid=vision1", "--fed-output=text/words@first", stdin=WRITES)
    assert "the catalogue has it" in again.stderr
    within(20, lambda: "is removed after" in alone.run("federator", "explain", str(failed)).stdout)
