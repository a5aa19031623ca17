"""What the federation promises on three real Slurm generations."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import clear
from tests.slurm.federation import (
    Running,
    at,
    federation_jobs,
    output_of,
    slurm_job,
    within,
)

pytestmark = pytest.mark.slurm
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SITES = tuple(site.name for site in layout.SITES)


def example(name: str) -> str:
    return (EXAMPLES / name).read_text()


def fill(site: str, seconds: int = 300) -> None:
    """Local users take every GPU node of a site."""
    at(site, "sbatch", "--partition=local", "--nodes=8", "--gres=gpu:8", "--exclusive",
       f"--wrap=sleep {seconds}", user="localuser")  # fmt: skip
    within(15, lambda: at(site, "squeue", "--noheader", "--states=R", "--partition=local"))


def test_gang_starts_whole_on_the_planned_nodes_with_all_gpus(federation: Running) -> None:
    id_ = federation.submit(example("gang.sh"), user="vision2")
    row = federation.await_state(id_, "RUNNING")
    job = slurm_job(row["site"], row["site_job_id"])
    assert sorted(row["node_names"]) == sorted(
        at(row["site"], "scontrol", "show", "hostnames", job["NodeList"]).split()
    )
    assert len(row["node_names"]) == 2
    (row,) = federation.await_end(id_)
    assert row["state"] == "COMPLETED"
    lines = output_of(row, "vision2").splitlines()
    assert len(lines) == 2
    assert all(line.endswith("GPUs 0,1,2,3,4,5,6,7") for line in lines)


def test_environment_of_a_job_is_that_of_plain_sbatch(federation: Running) -> None:
    """Same SLURM_* names, and the same values where they do not name the job itself."""
    script = "#!/bin/sh\n#SBATCH -N2 --gres=gpu:a100:2 -n4 --time=3 --job-name=env\nexport -p\n"
    id_ = federation.submit(script)
    (row,) = federation.await_end(id_)
    ours = variables(output_of(row))
    nodes = ",".join(row["node_names"])
    plain_id = at(row["site"], "sbatch", "--parsable", "--partition=fed", f"--nodelist={nodes}",
                  "--account=vision", user="vision1", stdin=script).strip()  # fmt: skip
    plain_row = dict(row, site_job_id=int(plain_id))
    within(20, lambda: "COMPLETED" in slurm_job(row["site"], int(plain_id))["JobState"])
    plain = variables(output_of(plain_row))
    slurm = {k for k in plain if k.startswith("SLURM_")} | {"CUDA_VISIBLE_DEVICES"}
    assert slurm <= set(ours)
    differ = {k for k in slurm if ours[k] != plain[k]}
    assert differ <= {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME",
                      "SLURM_TASK_PID", "SLURM_JOB_COMMENT", "SLURM_JOB_SLUID"}  # fmt: skip
    assert ours["FED_JOB_ID"] == str(id_)
    assert ours["FED_SITE"] == row["site"]


def variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"^export (\w+)='([^']*)'$", text, flags=re.MULTILINE))


def test_het_job_starts_together_at_one_site(federation: Running) -> None:
    id_ = federation.submit(example("het.sh"), user="nlp1")
    row = federation.await_state(id_, "RUNNING")
    components = at(row["site"], "squeue", "--noheader", "--format=%i %T %N",
                    f"--jobs={row['site_job_id']}").splitlines()  # fmt: skip
    assert [line.split()[1] for line in components] == ["RUNNING", "RUNNING"]
    assert sorted(line.split()[2] for line in components) == sorted(row["node_names"])
    (row,) = federation.await_end(id_)
    assert row["state"] == "COMPLETED"
    assert output_of(row, "nlp1").count("component rank") == 2


def test_job_runs_as_the_real_user_whatever_the_uid_at_the_site(federation: Running) -> None:
    ids = [federation.submit("#!/bin/sh\nid -un; id -u\n", f"--gres=gpu:{kind}:1", user="bio1")
           for kind in ("a100", "h100")]  # fmt: skip
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


def test_array_runs_every_task_once_with_its_own_index(federation: Running) -> None:
    id_ = federation.submit(example("array.sh"), user="nlp1")
    rows = federation.await_end(id_, timeout_s=90)
    assert sorted(row["array_index"] for row in rows) == list(range(8))
    assert {row["state"] for row in rows} == {"COMPLETED"}
    for row in rows:
        (name,) = at(row["site"], "sh", "-c",
                     f"ls /home/nlp1/slurm-{row['site_job_id']}_*.out").split()  # fmt: skip
        assert f"task {row['array_index']} on" in at(row["site"], "cat", name)


def test_exit_code_of_a_failed_job_is_told_and_given_back_by_wait(federation: Running) -> None:
    done = federation.run("fsbatch", "--uid=vision1", "--wait", stdin=example("fails.sh"))
    assert done.returncode == 3
    (row,) = federation.rows()
    assert (row["state"], row["exit_code"]) == ("FAILED", 3)


def test_impossible_job_is_refused_at_once_with_each_sites_reason(federation: Running) -> None:
    done = federation.run("fsbatch", "--uid=bio1", stdin=example("impossible.sh"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert all(site in done.stderr for site in SITES)
    assert federation.rows() == []


def test_test_only_prints_bids_and_queues_nothing(federation: Running) -> None:
    done = federation.run("fsbatch", "--uid=bio1", "--test-only", stdin=example("h100_only.sh"))
    assert done.returncode == 0
    assert "cedar" in done.stderr
    assert federation.rows() == []


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
    id_ = int(text.split(";")[0])
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
    id_ = int(at("alpine", "sh", "-c", submit, user="vision1").split(";")[0])
    (row,) = federation.await_end(id_)
    name = f"{folder}/slurm-{row['site_job_id']}.out"
    assert at("alpine", "cat", name).split() == [folder, row["site"]]
    at("alpine", "rm", name)


def test_export_none_gives_the_login_environment_and_names_the_job(federation: Running) -> None:
    ids = [federation.submit("#!/bin/sh\necho $FED_JOB_ID $HOME\n", "--export=NONE",
                             f"--gres=gpu:{kind}:1") for kind in ("a100", "h100")]  # fmt: skip
    for row in federation.await_end(*ids, timeout_s=90):
        assert output_of(row).split() == [str(row["id"]), "/home/vision1"]


def test_an_agent_may_be_a_local_process(testbed: StateDir, tmp_path: Path) -> None:
    clear()
    running = Running(tmp_path, local=("alpine",))
    running.start()
    try:
        id_ = running.submit("#!/bin/sh\ntrue\n", "--gres=gpu:a100:1")
        (row,) = running.await_end(id_)
        assert (row["site"], row["state"]) == ("alpine", "COMPLETED")
    finally:
        running.stop()


def test_a_user_cannot_touch_anothers_job(federation: Running) -> None:
    id_ = federation.submit("#!/bin/sh\nsleep 60\n", "--gres=gpu:1", user="vision1")
    federation.await_state(id_, "RUNNING")
    refused = subprocess.run(
        ["docker", "exec", "--user", "bio1", "federator-alpine", "fscancel", str(id_)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "denied" in refused.stderr
    assert federation.row(id_)["state"] == "RUNNING"


def test_nodes_taken_between_bid_and_launch_send_the_job_elsewhere(federation: Running) -> None:
    """boreal and cedar are full; at alpine the job is pinned, but local users were quicker."""
    fill("boreal")
    at("alpine", "scontrol", "update", "partitionname=fed", "state=down")  # pinned jobs will wait
    try:
        id_ = federation.submit("#!/bin/sh\nsleep 5\n", "--gres=gpu:a100:8", "--nodes=2")
        row = federation.await_state(id_, "LAUNCHING")
        assert row["site"] == "alpine"
        first_job = row["site_job_id"]
        at("boreal", "scancel", "--user=localuser")
        row = federation.await_state(id_, "RUNNING", timeout_s=60)
    finally:
        at("alpine", "scontrol", "update", "partitionname=fed", "state=up")
    assert row["site"] == "boreal"
    assert row["attempt"] >= 2
    assert slurm_job("alpine", first_job)["JobState"] == "CANCELLED"
    (row,) = federation.await_end(id_)
    assert row["state"] == "COMPLETED"
    ran = [j for site in SITES for j in federation_jobs(site)
           if j["Comment"].startswith(f"fed:{id_}:") and j["JobState"] == "COMPLETED"]  # fmt: skip
    assert len(ran) == 1


def test_daemon_killed_at_work_loses_nothing_and_doubles_nothing(federation: Running) -> None:
    """SIGKILL while jobs run and while others are being launched."""
    running = [federation.submit("#!/bin/sh\nsleep 12\n", "--gres=gpu:4") for _ in range(4)]
    for id_ in running:
        federation.await_state(id_, "RUNNING")
    launching = [federation.submit("#!/bin/sh\nsleep 4\n", "--gres=gpu:1") for _ in range(12)]
    federation.kill()
    federation.start()
    rows = federation.await_end(*running, *launching, timeout_s=120)
    assert {row["state"] for row in rows} == {"COMPLETED"}
    assert len(rows) == 16
    jobs = [job for site in SITES for job in federation_jobs(site)]
    finished = [job["Comment"].rsplit(":", 1)[0] for job in jobs if job["JobState"] == "COMPLETED"]
    mine = [f"fed:{id_}" for id_ in (*running, *launching)]
    assert sorted(f for f in finished if f in mine) == sorted(mine)


@pytest.mark.parametrize("cut", ["pause", "network"])
def test_unreachable_site_does_not_stop_the_others(federation: Running, cut: str) -> None:
    id_ = federation.submit("#!/bin/sh\nsleep 25\n", "--gres=gpu:h100:2")
    federation.await_state(id_, "RUNNING")
    lost, found = {
        "pause": (["pause", "federator-cedar"], ["unpause", "federator-cedar"]),
        "network": (["network", "disconnect", "federator-testbed", "federator-cedar"],
                    ["network", "connect", "federator-testbed", "federator-cedar"]),
    }[cut]  # fmt: skip
    subprocess.run(["docker", *lost], check=True)
    try:
        within(20, lambda: federation.row(id_)["unknown_since_s"])
        other = federation.submit("#!/bin/sh\ntrue\n", "--gres=gpu:1")
        (row,) = federation.await_end(other)
        assert row["state"] == "COMPLETED"
        assert federation.row(id_)["state"] == "RUNNING"
        assert "unknown for" in federation.run("fsqueue").stdout
    finally:
        subprocess.run(["docker", *found], check=True)
    (row,) = federation.await_end(id_, timeout_s=120)
    assert row["state"] == "COMPLETED"
    assert row["attempt"] == 1
    assert row["unknown_since_s"] == 0
