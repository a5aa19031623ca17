"""Stands for Slurm's programs and the helper at a site, for agents that are processes of their own.

    python slurm_programs.py FOLDER squeue|scontrol|sacct|sudo ARGUMENT…

``FOLDER/jobs.json`` is the cluster: a job runs from its submission until there is a file
``FOLDER/go``, or it is cancelled. Every agent gets the same answers, of whichever release it is, so
no module of the federation is used here.
"""

from __future__ import annotations

import fcntl
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NODES = ("n1", "n2")
GPUS, CPUS, MEM_MIB = 8, 64, 512000
VERSION = "24.11.5"
Job = dict[str, Any]


def install(folder: Path) -> None:
    """Make the programs in ``folder``, for agents whose ``PATH`` it is."""
    folder.mkdir()
    (folder / "jobs.json").write_text("{}")
    for name in ("squeue", "scontrol", "sacct", "sudo"):
        program = folder / name
        start = f'exec {sys.executable} -I -S {Path(__file__).resolve()} {folder} {name} "$@"'
        program.write_text(f"#!/bin/sh\n{start}\n")
        program.chmod(0o755)


def jobs_at(folder: Path) -> dict[str, Job]:
    """What was submitted, by job id, as it is now."""
    with _jobs(folder) as jobs:
        return jobs


@contextmanager
def _jobs(folder: Path) -> Iterator[dict[str, Job]]:
    """All jobs, for this process alone; what is changed of them stays."""
    with (folder / "jobs.json").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        jobs = json.load(file)
        if (folder / "go").exists():
            for job in jobs.values():
                _end(job, "COMPLETED")
        yield jobs
        file.seek(0)
        file.truncate()
        json.dump(jobs, file)


def _end(job: Job, state: str) -> None:
    if job["State"] == "RUNNING":
        job |= {"State": state, "EndTime": str(int(time.time())), "PreemptTime": "N/A"}


def squeue(folder: Path, arguments: list[str]) -> str:
    """Jobs by ``-O``: NAME:| ends a field by that, NAME:32 pads it to so many bytes."""
    form = arguments[arguments.index("-O") + 1].split(",")
    ids = arguments[arguments.index("-j") + 1].split(",") if "-j" in arguments else None
    with _jobs(folder) as jobs:
        shown = [job for id_, job in jobs.items() if ids is None or id_ in ids]
    return "".join("".join(_field(job, of) for of in form) + "\n" for job in shown)


def _field(job: Job, of: str) -> str:
    name, _, width = of.partition(":")
    value = str(job.get(name, "N/A"))
    return value[: int(width)].ljust(int(width)) if width.isdigit() else value + width


def scontrol(folder: Path, arguments: list[str]) -> str:
    """What is shown of the site; licences, reservations and switches: there are none."""
    what = " ".join(word for word in arguments if word == "--version" or word[:1] != "-")
    nodes = ",".join(NODES)
    if what.startswith("show job"):
        return _shown_jobs(folder, arguments[-1])
    return {
        "--version": f"slurm-wlm {VERSION}\n",
        "show config": (
            f"Configuration data as of {time.time():.0f}\nAccountingStorageType = (null)\n"
            f"ClusterName = fake\nKillWait = 30 sec\nMinJobAge = 300 sec\n"
            f"SLURM_VERSION = {VERSION}\nTopologyPlugin = topology/flat\n"
        ),
        "show partitions": (
            f"PartitionName=fed AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES "
            f"MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes={nodes} State=UP "
            f"PreemptMode=OFF OverSubscribe=NO TotalNodes={len(NODES)}\n"
        ),
        "show reservations": "No reservations in the system\n",
        "show nodes": "".join(_shown_node(folder, name) for name in NODES),
    }.get(what, "")


def _shown_node(folder: Path, name: str) -> str:
    with _jobs(folder) as jobs:
        used = sum(job["gpus"] for job in jobs.values() if _is_on(job, name))
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=32  CPUAlloc={used} CPUEfctv={CPUS} "
        f"CPUTot={CPUS} CPULoad=0.65 AvailableFeatures=(null) ActiveFeatures=(null) "
        f"Gres=gpu:a100:{GPUS} GresDrain=N/A GresUsed=gpu:a100:{used}(IDX:N/A) NodeAddr={name} "
        f"NodeHostName={name} Version={VERSION}  RealMemory={MEM_MIB} AllocMem=0 FreeMem=20932 "
        f"Sockets=2 Boards=1 State={'MIXED' if used else 'IDLE'} ThreadsPerCore=1 TmpDisk=0 "
        f"Weight=1 Owner=N/A MCS_label=N/A Partitions=fed  BootTime=1795210000 "
        f"CfgTRES=cpu={CPUS},mem=500G,billing={CPUS}\n"
    )


def _is_on(job: Job, node: str) -> bool:
    return job["State"] == "RUNNING" and node in job["NodeList"].split(",")


def _shown_jobs(folder: Path, id_: str) -> str:
    with _jobs(folder) as jobs:
        shown = [job for job in jobs.values() if not id_.isdigit() or job["JobID"] == id_]
    return "".join(
        f"JobId={job['JobID']} JobName=job UserId={job['UserName']}(1) JobState={job['State']} "
        f"NodeList={job['NodeList']} JOB_GRES=gpu:a100:{job['gpus']}   Nodes={job['NodeList']} "
        f"CPU_IDs=0 Mem=0 GRES=gpu:a100:{job['gpus']}(IDX:0) MinCPUsNode=1 Features=(null)\n"
        for job in shown
    )


def sudo(folder: Path, arguments: list[str]) -> str:
    """The helper: sbatch and scancel; to the rest it answers that there is nothing."""
    user = arguments[arguments.index("-u") + 1]
    request = json.load(sys.stdin)
    with _jobs(folder) as jobs:
        if request["op"] == "sbatch":
            job = _submitted(user, request, str(len(jobs) + 1))
            jobs[job["JobID"]] = job
            return json.dumps({"job_id": int(job["JobID"])})
        id_ = request.get("job_id", 0)
        if request["op"] == "scancel" and str(id_) in jobs:
            _end(jobs[str(id_)], "CANCELLED")
    return json.dumps({"job_id": id_, "seen": [], "wrong": [""] * len(request.get("jobs", ()))})


def _submitted(user: str, request: dict[str, Any], id_: str) -> Job:
    options = dict(re.findall(r"--([a-z-]+)=(\S*)", "\n".join(request["argv"])))
    now = str(int(time.time()))
    return {
        "JobID": id_,
        "ArrayJobID": id_,
        "UserName": user,
        "State": "RUNNING",
        "exit_code": "0:0",
        "SubmitTime": now,
        "StartTime": now,
        "EndTime": "NONE",
        "NodeList": options.get("nodelist", NODES[0]),
        "Partition": "fed",
        "RestartCnt": "0",
        "Account": "(null)",
        "Reason": "None",
        "Name": options.get("job-name", "sbatch"),
        "Comment": options["comment"],
        "gpus": int(options.get("gres", "gpu:0").rpartition(":")[2]),
    }


def main() -> None:
    folder, name, *arguments = sys.argv[1:]
    answers = {"squeue": squeue, "scontrol": scontrol, "sudo": sudo}
    if name not in answers:
        sys.exit(f"{name}: error: there is no accounting")
    sys.stdout.write(answers[name](Path(folder), arguments))


if __name__ == "__main__":
    main()
