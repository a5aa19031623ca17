"""Maps jobs to GPUs in the form that dcgm-exporter reads (--hpc-job-mapping-dir).

One file per GPU, called by its index, with one job id a line; dcgm-exporter (its
internal/pkg/transformation/hpc.go) passes over files whose names are no numbers. Several jobs may
share a GPU. The prolog writes, the epilog removes.
"""

import os
from typing import Iterable, List

from fednode import unforeseen
from fednode.locks import locked

_LOCK = ".lock"
_WAIT_S = 0.5  # others take a few milliseconds


def directory(setting: str, node: str) -> str:
    """Return the directory of ``node``; ``%n`` in the setting stands for its name, as in Slurm."""
    return setting.replace("%n", node)


def write(folder: str, gpus: "Iterable[int]", job: int) -> None:
    """Note that ``job`` has ``gpus`` (indices), beside those that have them already.

    Raises:
        OSError: the folder cannot be made or written, or is being written for long.
    """
    os.makedirs(folder, mode=0o755, exist_ok=True)
    with locked(os.path.join(folder, _LOCK), _WAIT_S):
        for gpu in gpus:
            jobs = _jobs(folder, str(gpu))
            if str(job) not in jobs:
                _replace(folder, str(gpu), [*jobs, str(job)])


def remove(folder: str, job: int) -> None:
    """Take ``job`` off every GPU; the file of a GPU without a job goes. Absent folders are well.

    Raises:
        OSError: the folder cannot be read or written, or is being written for long.
    """
    if not os.path.isdir(folder):
        return
    with locked(os.path.join(folder, _LOCK), _WAIT_S):
        for gpu in filter(str.isdigit, os.listdir(folder)):
            jobs = _jobs(folder, gpu)
            if str(job) in jobs:
                _replace(folder, gpu, [other for other in jobs if other != str(job)])


def _jobs(folder: str, gpu: str) -> "List[str]":
    try:
        with open(os.path.join(folder, gpu), encoding="ascii", errors="replace") as stream:
            return [line for line in map(str.strip, stream) if line]
    except FileNotFoundError:
        return []


def _replace(folder: str, gpu: str, jobs: "List[str]") -> None:
    file = os.path.join(folder, gpu)
    if not jobs:
        os.unlink(file)
        return
    descriptor, temporary = unforeseen.new_file(folder)
    with os.fdopen(descriptor, "w", encoding="ascii", errors="replace") as stream:
        stream.write("".join(job + "\n" for job in jobs))
    os.chmod(temporary, 0o644)
    os.rename(temporary, file)
