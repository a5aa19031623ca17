"""What a job leaves on its node is cleared away, and GPUs that nobody uses are noticed.

Every promise is shown on the three generations of Slurm, at the same time. The nodes' GPUs are made
up: a stand-in for nvidia-smi reads what they hold from files that the test (or a job) writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from federator.testbed import layout
from tests.slurm.conftest import clear
from tests.slurm.federation import Running, at, slurm_job, within

pytestmark = pytest.mark.slurm

CONFIG = "/etc/federator/node.json"
WAS = CONFIG + ".before-the-test"
USE = "/tmp/federator-use"  # in the container: <node>.gpus and <node>.apps
SMI = f"{USE}/nvidia-smi"
STATE, LOGS, MAPS = "/var/lib/federator-node", "/var/log/federator", "/run/federator-dcgm"
SETTINGS: dict[str, Any] = {
    "nvidia_smi": SMI,
    "gate": {"enabled": False},  # it would ask for more than the stand-in knows
    "epilog": {
        "dcgm_mapping_dir": f"{MAPS}/%n",
        "gpu_memory": "drain",
        "gpu_wait_s": 0.2,
        "kill_grace_s": 0.2,
    },
    "watch": {
        "interval_s": 10,
        "looks": 1,
        "zombie_s": 2,
        "idle_s": 3,
        "warn_again_s": 600,
        "reclaim_after_s": 2,
    },
}
_SMI = f"""#!/bin/sh
case "$1" in
  --query-gpu=*) cat "{USE}/$SLURMD_NODENAME.gpus" ;;
  --query-compute-apps=*) cat "{USE}/$SLURMD_NODENAME.apps" 2>/dev/null ;;
  *) exit 2 ;;
esac
"""
# Leaves a process that Slurm does not find by its parents, and a file in memory.
LEAVES = """#!/bin/sh
setsid --fork sleep {seconds}
echo x >/dev/shm/{name}
: >/tmp/{name}.began
while [ ! -e /tmp/{name}.end ]; do sleep 0.1; done
"""


def everywhere(work: Callable[[str], None]) -> None:
    """Do it at every site at once; the first failure is raised."""
    with ThreadPoolExecutor(len(layout.SITES)) as pool:
        list(pool.map(work, [site.name for site in layout.SITES]))


def shell(site: str, script: str, user: str | None = None) -> str:
    return at(site, "sh", "-ec", script, user=user)


def configure(site: str, **watch: object) -> None:
    settings = SETTINGS | {"watch": SETTINGS["watch"] | watch}
    at(
        site,
        "sh",
        "-c",
        f"cat >{CONFIG}.new && mv {CONFIG}.new {CONFIG}",
        stdin=json.dumps(settings),
    )


def gpus(site: str, node: str, memory_mib: int, percent: int) -> None:
    """From now on all of a node's GPUs hold so much and are so busy."""
    rows = "".join(f"{k}, GPU-{k}, {memory_mib}, {percent}, Disabled\n" for k in range(8))
    at(site, "sh", "-c", f"cat >{USE}/{node}.gpus", stdin=rows)


def set_up(site: str) -> None:
    shell(site, f"rm -rf {USE} {MAPS} {LOGS} /tmp/job-*; mkdir -p {USE}; chmod 1777 {USE}")
    shell(site, f"[ ! -e {CONFIG} ] || [ -e {WAS} ] || mv {CONFIG} {WAS}")
    at(site, "sh", "-c", f"cat >{SMI} && chmod 755 {SMI}", stdin=_SMI)
    for node in layout.GPU_NODES.names(site):
        gpus(site, node, 4, 0)
    configure(site)


def tear_down(site: str) -> None:
    shell(site, f"rm -rf {CONFIG} {USE} {MAPS} /tmp/job-* /dev/shm/job-*")
    shell(site, f"[ ! -e {WAS} ] || mv {WAS} {CONFIG}")
    shell(site, "for user in vision1 vision2; do rm -f /home/$user/job-*; done")
    shell(site, "scontrol update nodename=ALL state=resume || true")  # says no if all are well


@pytest.fixture(scope="module", autouse=True)
def nodes(testbed: object) -> Iterator[None]:
    clear()
    everywhere(set_up)
    yield
    clear()
    everywhere(tear_down)


def submit(site: str, node: str, script: str, *options: str, user: str = "vision1") -> int:
    """The id of a job of two GPUs on ``node``, once it runs and its output can be read."""
    argv = [
        "sbatch",
        "--parsable",
        "--partition=local",
        f"--nodelist={node}",
        "--gres=gpu:2",
        "--output=job-%j.out",
        *options,
    ]
    job = int(at(site, "sh", "-c", 'cd && exec "$@"', "-", *argv, user=user, stdin=script))
    within(90, lambda: slurm_job(site, job)["JobState"] != "PENDING")
    within(60, lambda: shell(site, f"ls /home/{user}/job-{job}.out 2>/dev/null || true"))
    return job


def ended(site: str, job: int) -> dict[str, str]:
    """The job once it is over, its epilog too."""

    def look() -> dict[str, str] | None:
        found = slurm_job(site, job)
        return found if found["JobState"] not in ("RUNNING", "COMPLETING", "PENDING") else None

    found = within(60, look)
    assert found is not None
    within(60, lambda: not at(site, "squeue", "--noheader", "--states=CG"))
    return found


def output(site: str, job: int, user: str = "vision1") -> str:
    return at(site, "cat", f"/home/{user}/job-{job}.out")


def line_of(site: str, job: int) -> dict[str, Any]:
    """What the epilog has logged of a job."""
    lines = map(json.loads, at(site, "cat", f"{LOGS}/jobs.jsonl").splitlines())
    (found,) = (line for line in lines if line["job"] == job)
    return dict(found)


def runs(site: str, command: str) -> bool:
    return bool(shell(site, f"pgrep --full --exact '{command}' || true"))


def watched(site: str, node: str) -> None:
    """One turn of the watch, as its timer would do it."""
    at(site, "env", f"SLURMD_NODENAME={node}", "/opt/federator/libexec/fed-watch")


# ---- the epilog ----


def test_what_a_job_leaves_goes_and_what_another_job_of_the_same_user_has_stays() -> None:
    everywhere(_leftovers)


def _leftovers(site: str) -> None:
    node = f"{site}-g1"
    staying = submit(site, node, LEAVES.format(seconds=77771, name="job-stays"))
    going = submit(site, node, LEAVES.format(seconds=77772, name="job-goes"))
    within(60, lambda: "2" in shell(site, "ls /tmp | grep -c '^job-.*began' || true"))
    maps = shell(site, f"cd {MAPS}/{node} && grep . [0-9]*").split()
    gpus_of = {
        job: {m.split(":")[0] for m in maps if m.endswith(f":{job}")} for job in (staying, going)
    }
    assert [len(found) for found in gpus_of.values()] == [2, 2], maps
    assert runs(site, "sleep 77772")
    shell(site, "touch /tmp/job-goes.end")
    assert ended(site, going)["JobState"] == "COMPLETED"
    assert not runs(site, "sleep 77772")
    assert runs(site, "sleep 77771")
    line = line_of(site, going)
    assert (line["killed"], line["user"], line["exit"]) == (1, "vision1", "0:0")
    assert "another job" in line["shm_left"]
    assert shell(site, "ls /dev/shm/job-stays /dev/shm/job-goes").split()
    assert str(going) not in shell(site, f"cat {MAPS}/{node}/[0-9]*").split()
    at(site, "scancel", str(staying))
    assert ended(site, staying)["JobState"] == "CANCELLED"
    assert line_of(site, staying)["shm"]["files"] == 2
    # Its line is written before the epilog is over.
    within(30, lambda: not shell(site, f"ls /dev/shm | grep job- || true; ls {MAPS}/{node}"))
    assert not runs(site, "sleep 77771")
    ours = {f"{staying}.json", f"{going}.json"}  # a job of before may have lost its epilog
    within(30, lambda: not ours & set(shell(site, f"ls {STATE}/{node}/jobs").split()))


def test_a_node_whose_gpu_keeps_memory_is_drained_with_the_reason() -> None:
    everywhere(_held)


def _held(site: str) -> None:
    node = f"{site}-g2"
    gpus(site, node, 4, 0)
    hides = f"""#!/bin/sh
setsid --fork env -i sleep 77773
until pid=$(pgrep --exact --full 'sleep 77773'); do sleep 0.1; done
gpu=${{SLURM_JOB_GPUS%%,*}}
echo "GPU-$gpu, $pid, 30000" >{USE}/{node}.apps
: >/tmp/job-held.began
while [ ! -e /tmp/job-held.end ]; do sleep 0.1; done
"""
    job = submit(site, node, hides)
    within(60, lambda: shell(site, "ls /tmp/job-held.began || true"))
    gpus(site, node, 30_000, 0)
    shell(site, "touch /tmp/job-held.end")
    assert ended(site, job)["JobState"] == "COMPLETED"
    assert not runs(site, "sleep 77773")
    told = at(site, "scontrol", "-o", "show", "node", node)
    assert f"Reason=fed-epilog: after job {job} GPU" in told
    assert "holds 30000 MiB" in told
    assert "DRAIN" in told
    assert line_of(site, job)["killed_on_gpus"] == 1
    gpus(site, node, 4, 0)
    at(site, "scontrol", "update", f"nodename={node}", "state=resume")


@pytest.mark.parametrize("hook", ["absent", "broken", "killed"])
def test_an_epilog_that_is_absent_broken_or_killed_costs_nobody_anything(hook: str) -> None:
    def work(site: str) -> None:
        path = "/opt/federator/libexec/fed-epilog"
        text = {
            "broken": "#!/usr/bin/python3 -I\nimport nothing_of_the_kind\n",
            "killed": "#!/bin/sh\nkill -9 $$\n",
        }
        shell(site, f"cp -p {path} {path}.aside && rm {path}")
        try:
            if hook in text:
                at(site, "sh", "-c", f"cat >{path}; chmod 755 {path}", stdin=text[hook])
            job = submit(site, f"{site}-g3", "#!/bin/sh\ntrue\n")
            assert ended(site, job)["JobState"] == "COMPLETED"
        finally:
            shell(site, f"mv {path}.aside {path}")
        assert "drain" not in at(site, "sinfo", "--noheader", f"--nodes={site}-g3", "--format=%T")
        shell(site, f"rm -rf {STATE}/{site}-g3")

    everywhere(work)


# ---- the watch ----


def test_who_holds_gpus_without_use_is_warned_where_they_read_it_and_then_cancelled() -> None:
    everywhere(_cancelled)


def _cancelled(site: str) -> None:
    node, other = f"{site}-g4", f"{site}-g5"
    configure(site, reclaim="cancel", reclaim_after_s=5)
    gpus(site, node, 40_000, 1)
    gpus(site, other, 40_000, 90)
    zombie = submit(site, node, "#!/bin/sh\nsleep 600\n")
    shielded = submit(site, node, "#!/bin/sh\nsleep 600\n", "--comment=fed-watch=off")
    busy = submit(site, other, "#!/bin/sh\nsleep 600\n")
    for which in (node, other):
        watched(site, which)
    assert "fed-watch" not in output(site, zombie)

    def look(word: str) -> bool:
        if word in output(site, zombie):
            return True
        for which in (node, other):
            watched(site, which)
        return word in output(site, zombie)

    within(40, lambda: look(f"job {zombie} held GPU memory and computed nothing"))
    assert slurm_job(site, zombie)["JobState"] == "RUNNING"
    assert output(site, zombie).count("If this goes on") == 1
    within(90, lambda: look("the job is cancelled now"))
    assert ended(site, zombie)["JobState"] == "CANCELLED"
    assert output(site, zombie).count("If this goes on") == 1
    for spared in (shielded, busy):
        assert slurm_job(site, spared)["JobState"] == "RUNNING"
        assert "fed-watch" not in output(site, spared)
    usage = line_of(site, zombie)["usage"]
    assert (usage["gpu_busy_mean_frac"], usage["memory_most_mib"]) == (0.01, 40_000)
    steps = map(json.loads, at(site, "cat", f"{LOGS}/watch.jsonl").splitlines())
    assert [line["step"] for line in steps if line["job"] == zombie] == ["warn", "cancel"]
    at(site, "scancel", str(shielded), str(busy))


def test_who_leaves_gpus_idle_is_put_back_into_the_queue() -> None:
    everywhere(_requeued)


def _requeued(site: str) -> None:
    node = f"{site}-g6"
    configure(site, reclaim="requeue")
    idle = submit(site, node, "#!/bin/sh\nsleep 600\n", "--requeue")
    salloc = f"salloc --quiet --partition=local --nodelist={node} --gres=gpu:2 --job-name=by-hand"
    shell(site, f"nohup {salloc} sleep 600 >/dev/null 2>&1 &", user="vision2")
    named = ("squeue", "--noheader", "--name=by-hand", "--states=R", "--format=%A")
    by_hand = int(within(90, lambda: at(site, *named)))

    def look() -> bool:
        watched(site, node)
        return slurm_job(site, idle).get("Restarts") == "1"

    within(90, look)
    assert slurm_job(site, by_hand)["JobState"] == "RUNNING"
    steps = [json.loads(x) for x in at(site, "cat", f"{LOGS}/watch.jsonl").splitlines()]
    assert {line["job"] for line in steps if line["node"] == node} == {idle}
    assert [line["step"] for line in steps if line["job"] == idle] == ["warn", "requeue"]
    at(site, "scancel", str(idle), str(by_hand))


def test_the_idle_task_of_an_array_is_reclaimed_without_its_siblings() -> None:
    everywhere(_array)


def _array(site: str) -> None:
    node, reclaim = f"{site}-g7", "requeue" if site == layout.SITES[0].name else "cancel"
    configure(site, reclaim=reclaim)
    gpus(site, node, 40_000, 90)
    argv = [
        "sbatch",
        "--parsable",
        "--partition=local",
        f"--nodelist={node}",
        "--gres=gpu:1",
        "--array=1-3",
        "--requeue",
        "--output=job-%j.out",
        "--wrap=sleep 600",
    ]
    array = at(site, "sh", "-c", 'cd && exec "$@"', "-", *argv, user="vision1").strip()

    def tasks() -> dict[str, str]:
        """The state of each task by its number; the last has the array's."""
        asked = ("squeue", "--noheader", "--states=all", f"--jobs={array}", "--format=%A %T")
        return dict(line.split() for line in at(site, *asked).splitlines())

    within(90, lambda: list(tasks().values()) == 3 * ["RUNNING"])
    record = f"{STATE}/{node}/jobs/{array}.json"
    (idle,) = json.loads(within(60, lambda: shell(site, f"cat {record} || true")))["gpus"]
    rows = "".join(f"{k}, GPU-{k}, 40000, {90 * (k != idle)}, Disabled\n" for k in range(8))
    at(site, "sh", "-c", f"cat >{USE}/{node}.gpus", stdin=rows)

    def look() -> bool:
        watched(site, node)
        return tasks()[array] != "RUNNING"

    within(90, look)
    siblings = [state for number, state in tasks().items() if number != array]
    assert siblings == 2 * ["RUNNING"], reclaim
    at(site, "scancel", array)


def test_a_federated_job_that_the_watch_cancels_says_so_in_the_federation(
    federation: Running,
) -> None:
    everywhere(lambda site: configure(site, reclaim="cancel"))
    job = federation.submit("#!/bin/sh\nsleep 600\n", "--gres=gpu:1", "--time=10")
    row = federation.await_state(job, "RUNNING")
    (node,) = row["node_names"]
    gpus(row["site"], node, 40_000, 0)

    def look() -> bool:
        watched(row["site"], node)
        return bool(federation.row(job)["state"] == "CANCELLED")

    within(90, look)
    reason = federation.row(job)["reason"]
    assert reason["code"] == "FedReclaimed"
    assert reason["detail"].startswith("zombie for ")
    assert "FedReclaimed" in federation.run("fsqueue", "-t", "all", "-j", str(job)).stdout
    assert "its site's watch" in federation.run("federator", "explain", str(job)).stdout
