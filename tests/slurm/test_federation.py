"""What the federation promises on three real Slurm generations."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from federator.testbed import layout
from tests.slurm.federation import (
    Running,
    at,
    output_of,
    slurm_job,
    starts,
    traced,
    until,
    within,
)

pytestmark = pytest.mark.slurm
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SITES = tuple(site.name for site in layout.SITES)


def example(name: str, lasts: str = "sleep 2") -> str:
    """An example as it stands, but for the time that it sleeps so that people can watch it."""
    return re.sub(r"\bsleep \d+", lasts, (EXAMPLES / name).read_text())


def test_gang_starts_whole_on_the_planned_nodes_with_all_gpus(
    federation: Running, go: Callable[..., None]
) -> None:
    id_ = federation.submit(example("gang.sh", until().strip()), user="vision2")
    row = federation.await_state(id_, "RUNNING")
    job = slurm_job(row["site"], row["site_job_id"])
    assert sorted(row["node_names"]) == sorted(
        at(row["site"], "scontrol", "show", "hostnames", job["NodeList"]).split()
    )
    assert len(row["node_names"]) == 2
    go()
    (row,) = federation.await_end(id_)
    assert row["state"] == "COMPLETED"
    lines = output_of(row, "vision2").splitlines()
    assert len(lines) == 2
    assert all(line.endswith("GPUs 0,1,2,3,4,5,6,7") for line in lines)


def test_het_job_starts_together_at_one_site(federation: Running, go: Callable[..., None]) -> None:
    id_ = federation.submit(example("het.sh", until().strip()), user="nlp1")
    row = federation.await_state(id_, "RUNNING")

    def running() -> list[str] | None:
        """The components, once all of them run."""
        lines = at(
            row["site"], "squeue", "--noheader", "--format=%i %T %N", f"--jobs={row['site_job_id']}"
        ).splitlines()
        return lines if [line.split()[1] for line in lines] == ["RUNNING", "RUNNING"] else None

    components = within(20, running)
    assert components is not None
    assert sorted(line.split()[2] for line in components) == sorted(row["node_names"])
    go()
    (row,) = federation.await_end(id_)
    assert row["state"] == "COMPLETED"
    assert output_of(row, "nlp1").count("component rank") == 2


def test_job_runs_as_the_real_user_whatever_the_uid_at_the_site(federation: Running) -> None:
    ids = [
        federation.submit("#!/bin/sh\nid -un; id -u\n", f"--gres=gpu:{kind}:1", user="bio1")
        for kind in ("a100", "h100")
    ]
    uids = set()
    for row in federation.await_end(*ids):
        name, uid = output_of(row, "bio1").split()
        assert name == "bio1"
        assert uid == at(row["site"], "id", "-u", "bio1").strip()
        uids.add(uid)
    assert len(uids) == 2


def test_job_that_one_gpu_type_can_run_goes_to_its_site(federation: Running) -> None:
    id_ = federation.submit(example("h100_only.sh"), user="bio1")
    (row,) = federation.await_end(id_)
    assert (row["site"], row["state"]) == ("cedar", "COMPLETED")


@pytest.mark.parametrize("site", SITES)
def test_a_job_with_another_comment_is_still_the_attempt(
    federation: Running, go: Callable[..., None], site: str
) -> None:
    """By root: users of these sites are not allowed to."""
    with federation.first_is(site):
        id_ = federation.submit(traced() + until(), "--gres=gpu:8", "--nodes=2")
        row = federation.await_state(id_, "RUNNING")
    assert row["site"] == site
    at(site, "scontrol", "update", f"jobid={row['site_job_id']}", "comment=lr=3e-4 seed=1")
    go(site)
    (row,) = federation.await_end(id_)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 1)
    assert [start[:3] for start in starts(id_)] == [(id_, 1, site)]


def test_array_runs_every_task_once_with_its_own_index(federation: Running) -> None:
    id_ = federation.submit(example("array.sh"), user="nlp1")
    rows = federation.await_end(id_)
    assert sorted(row["array_index"] for row in rows) == list(range(8))
    assert {row["state"] for row in rows} == {"COMPLETED"}
    for row in rows:
        assert f"task {row['array_index']} on" in output_of(row, "nlp1")


def test_exit_code_of_a_failed_job_is_told_and_given_back_by_wait(federation: Running) -> None:
    done = federation.run("fsbatch", "--uid=vision1", "--wait", stdin=example("fails.sh"))
    assert done.returncode == 3
    row = max(federation.rows(), key=lambda row: row["id"])
    assert (row["name"], row["state"], row["exit_code"]) == ("fails", "FAILED", 3)


def test_impossible_job_is_refused_at_once_with_each_sites_reason(federation: Running) -> None:
    before = federation.rows()
    done = federation.run("fsbatch", "--uid=bio1", stdin=example("impossible.sh"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert all(site in done.stderr for site in SITES)
    assert federation.rows() == before


def test_test_only_prints_bids_and_queues_nothing(federation: Running) -> None:
    before = federation.rows()
    done = federation.run("fsbatch", "--uid=bio1", "--test-only", stdin=example("h100_only.sh"))
    assert done.returncode == 0
    assert "cedar" in done.stderr
    assert federation.rows() == before


def test_cancel_ends_the_job_at_its_site(federation: Running) -> None:
    id_ = federation.submit("#!/bin/sh\nsleep 300\n", "--gres=gpu:1")
    row = federation.await_state(id_, "RUNNING")
    assert federation.run("fscancel", str(id_)).returncode == 0
    (row,) = federation.await_end(id_)
    assert row["state"] == "CANCELLED"
    assert "CANCELLED" in slurm_job(row["site"], row["site_job_id"])["JobState"]


def test_job_cancelled_behind_our_back_is_followed(federation: Running) -> None:
    id_ = federation.submit("#!/bin/sh\nsleep 300\n", "--gres=gpu:1")
    row = federation.await_state(id_, "RUNNING")
    at(row["site"], "scancel", str(row["site_job_id"]), user="vision1")
    (row,) = federation.await_end(id_)
    assert row["state"] == "CANCELLED"


def test_commands_work_inside_a_site_under_the_callers_own_name(federation: Running) -> None:
    text = at("cedar", "fsbatch", "--parsable", "--wrap", "echo hello; pwd", user="nlp1")
    id_ = int(text)
    (row,) = federation.await_end(id_)
    assert (row["user"], row["tenant"], row["state"]) == ("nlp1", "nlp", "COMPLETED")
    assert output_of(row, "nlp1").split() == ["hello", "/home/nlp1"]
    assert str(id_) in at("alpine", "fsqueue", "-t", "all", user="nlp1")
    assert "boreal" in at("cedar", "fsinfo", user="nlp1")


def test_output_lands_in_the_shared_folder_that_it_was_submitted_from(
    federation: Running,
) -> None:
    """Both western sites mount it, so that whichever runs the job writes where sbatch would."""
    folder = "/shared/west/vision1"
    submit = f"cd {folder} && fsbatch --parsable --gres=gpu:a100:1 --wrap 'pwd; hostname'"
    id_ = int(at("alpine", "sh", "-c", submit, user="vision1"))
    (row,) = federation.await_end(id_)
    name = f"{folder}/slurm-{id_}.out"
    assert at("alpine", "cat", name).split() == [folder, row["site"]]
    at("alpine", "rm", name)


def test_export_none_gives_the_login_environment_and_names_the_job(federation: Running) -> None:
    ids = [
        federation.submit(
            "#!/bin/sh\necho $FED_JOB_ID $HOME\n", "--export=NONE", f"--gres=gpu:{kind}:1"
        )
        for kind in ("a100", "h100")
    ]
    for row in federation.await_end(*ids):
        assert output_of(row).split() == [str(row["id"]), "/home/vision1"]


def test_a_user_cannot_touch_anothers_job(federation: Running) -> None:
    id_ = federation.submit("#!/bin/sh\nsleep 600\n", "--gres=gpu:1", user="vision1")
    federation.await_state(id_, "RUNNING")
    refused = subprocess.run(
        ["docker", "exec", "--user", "bio1", layout.site("alpine").container, "fscancel", str(id_)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "denied" in refused.stderr
    assert federation.row(id_)["state"] == "RUNNING"
