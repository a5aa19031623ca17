"""What jobs write becomes data sets when they have completed, on real Slurm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, until, within

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
    return [(r["domain"], r["path"], bool(r.get("digest"))) for s in sets for r in s["replicas"]]


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


# ---- two regions ----

MOVES = f"""#!/bin/sh
echo "$FED_SITE $FED_ATTEMPT" >>"$FED_OUTPUT_TEXT_WORDS/words"
[ "$FED_ATTEMPT" = 1 ] || exit 0
{until("move")}
"""
GRACE_S = 20


@pytest.fixture
def homely(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """The tenant's home is in the east, and what a job leaves that fails goes soon."""
    for site in ("alpine", "cedar"):
        at(site, "sh", "-c", "rm -rf /shared/*/vision1/outputs /shared/*/vision1/.fed-output-*")
    made = Running(tmp_path, pass_interval_s=5.0, tenants={"vision": {"home": ["cedar"]}})
    settings = yaml.safe_load(made.config.read_text())
    settings["data"] = {"output_grace_h": GRACE_S / 3600}
    made.config.write_text(yaml.safe_dump(settings))
    yield from lasting(made)


def hidden(site: str, region: str) -> list[str]:
    """Folders of outputs that are not in their place."""
    find = f"find /shared/{region}/vision1 -name '.fed-output-*' -printf '%f\\n'"
    return at(site, "sh", "-c", find).split()


def test_an_output_is_brought_home(homely: Running) -> None:
    with homely.closed("cedar"):
        writes = WRITES.replace("$1", "0")
        id_ = homely.submit(writes, *QUIET, "--fed-output=text/words@first:home")
        (row,) = homely.await_end(id_)
    assert (row["state"], row["site"]) in (("COMPLETED", "alpine"), ("COMPLETED", "boreal")), row
    path = "vision1/outputs/text/words@first"
    within(90, lambda: where(homely) == [("west", path, True), ("east", path, True)])
    words = at("cedar", "cat", f"/shared/east/{path}/words", user="vision1")
    assert words == "text/words@first\n"
    assert hidden("alpine", "west") == hidden("cedar", "east") == []


def test_an_output_lies_where_its_last_attempt_ran_and_the_folder_before_goes(
    homely: Running, go: Callable[..., None]
) -> None:
    with homely.closed("boreal", "cedar"):
        id_ = homely.submit(MOVES, *QUIET, "--fed-output=text/words@first")
        assert homely.await_state(id_, "RUNNING")["site"] == "alpine"
        within(30, lambda: hidden("alpine", "west"))
    with homely.closed("alpine", "boreal"):
        done = homely.run("fscontrol", "requeue", str(id_))
        assert done.returncode == 0, done.stderr
        (row,) = homely.await_end(id_)
    assert (row["state"], row["site"], row["attempt"]) == ("COMPLETED", "cedar", 2), row
    path = "vision1/outputs/text/words@first"
    within(60, lambda: where(homely) == [("east", path, True)])
    assert at("cedar", "cat", f"/shared/east/{path}/words", user="vision1") == "cedar 2\n"
    within(60, lambda: hidden("alpine", "west") == hidden("cedar", "east") == [])


def test_what_a_failed_job_wrote_is_its_users_for_the_grace_and_goes_then(homely: Running) -> None:
    id_ = homely.submit(WRITES.replace("$1", "3"), *QUIET, "--fed-output=text/words@first")
    (row,) = homely.await_end(id_)
    assert row["state"] == "FAILED", row
    region = "east" if row["site"] == "cedar" else "west"
    (left,) = hidden(row["site"], region)
    assert str(id_) in left
    within(2 * GRACE_S, lambda: hidden(row["site"], region) == [])
    assert where(homely) == []
