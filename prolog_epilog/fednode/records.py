"""Records of the jobs on this node: their users and GPUs, without asking Slurm.

The prolog leaves a record of each job, the epilog takes it away:
``<state_dir>/<node>/jobs/<job id>.json``. Several slurmd of one machine (a testbed) share a state
directory and are told apart by their node's name. A record from before the last boot is void.
"""

import contextlib
import glob
import json
import os
import re
import socket
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fednode import unforeseen

STATE_DIR = "/var/lib/federator-node"
MAX_BYTES = 1 << 20
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_JOB_ID = re.compile(r"[0-9]{1,10}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_GPUS = re.compile(r"[0-9]{1,4}(,[0-9]{1,4}){0,255}")
_COMMENT_CHARS = 1024


class JobRecord(NamedTuple):
    """One job on one node, as its prolog saw it."""

    job: int
    node: str
    user: str
    uid: int
    gpus: "Tuple[int, ...]"  # indices on the node
    comment: str
    partition: str
    nodes: str  # Slurm's host list of the whole job
    het_job: int  # the leader's id; 0 for an ordinary job
    started_at_s: float  # Unix time
    boot: str


def node_name(environ: "Dict[str, str]") -> str:
    """Return Slurm's name of this node; the machine's short name where Slurm does not say.

    Raises:
        ValueError: it cannot be a name of a node.
    """
    name = environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    if not _NODE.fullmatch(name):
        raise ValueError(f"no name of a node: {name[:40]!r}")
    return name


def gpu_indices(text: str) -> "Tuple[int, ...]":
    """Return the GPUs of ``SLURM_JOB_GPUS``; none where it is empty or holds no indices."""
    return tuple(int(part) for part in text.split(",")) if _GPUS.fullmatch(text) else ()


def from_environment(environ: "Dict[str, str]", now_s: float) -> JobRecord:
    """Return the record of the job whose prolog or epilog runs with ``environ``.

    Raises:
        ValueError: this is not the environment of one.
    """
    job, uid = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_JOB_UID", "")
    if not _JOB_ID.fullmatch(job) or not _JOB_ID.fullmatch(uid):
        raise ValueError("SLURM_JOB_ID and SLURM_JOB_UID do not say whose job this is")
    het = environ.get("SLURM_HET_JOB_ID", "")
    return JobRecord(
        job=int(job),
        node=node_name(environ),
        user=environ.get("SLURM_JOB_USER", ""),
        uid=int(uid),
        gpus=gpu_indices(environ.get("SLURM_JOB_GPUS", "")),
        comment=environ.get("SLURM_JOB_COMMENT", "")[:_COMMENT_CHARS],
        partition=environ.get("SLURM_JOB_PARTITION", ""),
        nodes=environ.get("SLURM_JOB_NODELIST", "") or environ.get("SLURM_NODELIST", ""),
        het_job=int(het) if _JOB_ID.fullmatch(het) else 0,
        started_at_s=now_s,
        boot=boot_id(),
    )


def boot_id() -> str:
    """Return what differs from boot to boot."""
    with open(_BOOT_ID, encoding="ascii") as stream:
        return stream.read().strip()


def _folder(state_dir: str, node: str) -> str:
    return os.path.join(state_dir, node, "jobs")


def _file(state_dir: str, node: str, job: int) -> str:
    return os.path.join(_folder(state_dir, node), f"{job}.json")


def write(record: JobRecord, state_dir: str = STATE_DIR) -> None:
    """Keep ``record``, in place of one of an earlier run of the same job.

    Raises:
        OSError: it cannot be written.
    """
    os.makedirs(_folder(state_dir, record.node), mode=0o755, exist_ok=True)
    # Void after a crash of the machine in any case; a busy disk must not delay the job's start.
    replace_json(_file(state_dir, record.node, record.job), record._asdict(), durable=False)


def remove(node: str, job: int, state_dir: str = STATE_DIR) -> None:
    """Forget the job; harmless where nothing is known of it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_file(state_dir, node, job))


def read(node: str, job: int, state_dir: str = STATE_DIR) -> "Optional[JobRecord]":
    """Return the record of a job of this boot, if there is a sound one."""
    return _read(_file(state_dir, node, job), boot_id())


def of_node(node: str, state_dir: str = STATE_DIR) -> "List[JobRecord]":
    """Return the jobs on ``node``, in order of their ids."""
    return _read_all(os.path.join(_folder(state_dir, glob.escape(node)), "*.json"))


def of_machine(state_dir: str = STATE_DIR) -> "List[JobRecord]":
    """Return the jobs on all nodes that this machine is."""
    return _read_all(os.path.join(_folder(state_dir, "*"), "*.json"))


def _read_all(pattern: str) -> "List[JobRecord]":
    boot = boot_id()
    found = (_read(file, boot) for file in glob.glob(pattern))
    return sorted((record for record in found if record is not None), key=lambda r: (r.job, r.node))


def _read(file: str, boot: str) -> "Optional[JobRecord]":
    try:
        found = read_json(file)
        fields = {name: found[name] for name in JobRecord._fields}
        fields["gpus"] = tuple(int(gpu) for gpu in fields["gpus"])
        record = JobRecord(**fields)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    well = isinstance(record.job, int) and isinstance(record.uid, int) and record.boot == boot
    return record if well else None


def read_json(file: str) -> "Dict[str, Any]":
    """Return the JSON object in ``file``.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON object, or too large.
    """
    with open(file, encoding="utf-8") as stream:
        text = stream.read(MAX_BYTES + 1)
    try:
        found = json.loads(text) if len(text) <= MAX_BYTES else None
    except RecursionError as error:
        raise ValueError(f"{file}: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file} is no JSON object")
    return found


def replace_json(file: str, value: "Dict[str, Any]", durable: bool = True) -> None:
    """Write ``value`` so that a reader sees the old file or the new one, never half of it.

    ``durable``: not even after a crash of the machine; that takes as long as the disk takes.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, temporary = unforeseen.new_file(os.path.dirname(file))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(value, stream)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.rename(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
