"""Jobs run where their data sets are: two regions without shared storage, on three real Slurms."""

from __future__ import annotations

import json

import pytest

from federator.testbed import inside, layout
from tests.slurm.federation import Running, at, output_of, within

pytestmark = pytest.mark.slurm

QUIET = ("--gres=gpu:1", "-t", "2")
READS = '#!/bin/sh\necho "$FED_SITE $FED_DATASET_TEXT_WIKI"\ncat "$FED_DATASET_TEXT_WIKI/words"\n'
SETS = "/shared/{}/sets-of-tests"


def data(running: Running, *words: str) -> str:
    done = running.run("federator", "data", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(running: Running, name: str, user: str) -> str:
    done = running.run("fsbatch", f"--uid={user}", f"--fed-dataset={name}", stdin=READS)
    assert done.returncode != 0, done.stdout
    return done.stderr


def why(running: Running, id_: int) -> dict[str, str]:
    """The code of each site's refusal; of the federation's own under ""."""
    refusals = running.row(id_)["refusals"]
    return {site: each["reasons"][0]["code"] for site, each in refusals.items()}


def test_a_job_waits_for_its_data_and_runs_in_the_region_that_has_it(alone: Running) -> None:
    for site, region in (("alpine", "west"), ("cedar", "east")):
        sets = SETS.format(region)
        at(site, "sh", "-c", f"rm -rf {sets}; mkdir -m 755 -p {sets}/wiki")
        at(site, "sh", "-c", f"echo {region} >{sets}/wiki/words; ln -s wiki {sets}/link")
    data(alone, "add", "text/wiki", "--owner", "vision1", "--tenant", "vision")
    assert "no such data set" in refused(alone, "text/wiki", "nlp1")
    assert "no such data set" in refused(alone, "text/none", "vision1")
    id_ = alone.submit(READS, *QUIET, "--fed-dataset=text/wiki")
    within(30, lambda: why(alone, id_) == {"": "FedData"})
    assert "waits for data sets that are not here: text/wiki@1" in (
        alone.run("fsqueue", "--why", "-j", str(id_)).stdout
    )
    alone.kill()
    alone.spawn()
    within(90, alone.all_up)
    within(30, lambda: why(alone, id_) == {"": "FedData"})
    data(alone, "add", "text/wiki", "--at", f"east:{SETS.format('east')}/wiki")
    (row,) = alone.await_end(id_)
    assert (row["state"], row["site"]) == ("COMPLETED", "cedar")
    assert output_of(row).splitlines() == [f"cedar {SETS.format('east')}/wiki", "east"]
    shown = json.loads(data(alone, "show", "text/wiki", "--json"))["data_sets"]
    assert shown[0]["replicas"][0]["used_at_s"] > 0
    verify = ("/opt/federator/bin/federator", "data", "verify", "text/wiki")
    assert "text/wiki@1 in east is sealed: 1 file, 5 B" in at("cedar", *verify, user="vision1")
    at("cedar", "sh", "-c", f"echo other >{SETS.format('east')}/wiki/words")
    done = inside.execute(layout.site("cedar"), verify, user="vision1")
    assert (done.exit_status, "is lost: its digest is" in done.stdout) == (1, True), done
    lost = alone.submit(READS, *QUIET, "--fed-dataset=text/wiki")
    within(30, lambda: why(alone, lost) == {"": "FedData"})
    data(alone, "add", "trap", "--owner", "vision1", "--at", f"west:{SETS.format('west')}/link")
    trapped = alone.submit(READS, *QUIET, "--fed-dataset=trap")
    said = "its path leads through a link"
    within(30, lambda: said in alone.run("fsqueue", "--why", "-j", str(trapped)).stdout)
