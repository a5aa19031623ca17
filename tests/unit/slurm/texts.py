"""Texts as Slurm prints them, with any field replaced."""

from __future__ import annotations

SAFE = {
    "JobID": "7",
    "UserName": "vision1",
    "State": "RUNNING",
    "exit_code": "0:0",
    "HetJobID": "N/A",
    "HetJobOffset": "N/A",
    "ArrayJobID": "7",
    "ArrayTaskID": "N/A",
    "SubmitTime": "1795210722",
    "StartTime": "1795210723",
    "EndTime": "NONE",
    "NodeList": "n1",
    "Partition": "fed",
    "RestartCnt": "0",
    "PreemptTime": "N/A",
}
FREE = {"Account": (32, "nlp"), "Reason": (80, "None"), "Name": (64, "job"), "Comment": (128, "")}


def squeue_record(**fields: str | bytes) -> bytes:
    """Return one record of `squeue -O SQUEUE_FORMAT`, padded and cut as Slurm does it."""
    record = b"".join(_bytes(fields.get(name, value)) + b"|" for name, value in SAFE.items())
    for name, (width, default) in FREE.items():
        record += _bytes(fields.get(name, default))[:width].ljust(width, b" ")
    return record + b"\n"


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


def node_line(
    name: str,
    *,
    state: str = "MIXED",
    gres: str = "gpu:a100:8",
    used: str | None = "gpu:a100:3(IDX:0-2)",
    partitions: str | None = "fed,local",
    features: str = "nvlink,a100",
    end: str = "",
) -> str:
    """Return one line of `scontrol -d show nodes -o`."""
    used_field = "" if used is None else f" GresUsed={used}"
    partition_field = "" if partitions is None else f" Partitions={partitions} "
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=64 CPUTot=64 "
        f"CPULoad=0.65 AvailableFeatures={features} ActiveFeatures={features} Gres={gres} "
        f"GresDrain=N/A{used_field} NodeAddr=127.0.0.1 NodeHostName={name} Port=17001 "
        f"Version=24.11.5 OS=Linux 6.18.44 #1 SMP  RealMemory=512000 AllocMem=0 FreeMem=20932 "
        f"Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "
        f"MCS_label=N/A{partition_field} BootTime=1795210000 CfgTRES=cpu=64{end}"
    )


def job_line(job_id: int, *groups: str, name: str = "job") -> str:
    """Return one record of `scontrol -d show jobs -o`, as far as it is read."""
    held = "   ".join(groups or ("Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0)",))
    return (
        f"JobId={job_id} JobName={name} UserId=vision1(2001) JobState=RUNNING NodeList=n1 "
        f"JOB_GRES=gpu:a100:1   {held} MinCPUsNode=1 Features=(null) Comment=fed:1:1 \n"
    )
