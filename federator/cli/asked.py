"""Reads what goes into a submission beside its script: surroundings of the command, and files."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final

from federator.cli.text import is_utf8, printable
from federator.errors import InvalidRequest
from federator.model.submission import Option
from federator.slurm.options.options import Options

MAX_NODE_FILE_BYTES: Final = 64 * 1024
_MOST_DIGITS: Final = 10
_TIMES: Final = frozenset({"begin", "deadline"})
_OWN_VARIABLES: Final = frozenset({"FED_SUBMIT_KEY", "FED_DROPPED_ENV"})


def with_node_file(component: Options) -> Options:
    """Read the file of ``--nodefile``, or of a ``--nodelist`` with a slash, as sbatch does."""
    given = {o.name: o.value or "" for o in component if o.name in ("nodefile", "nodelist")}
    path = given.get("nodefile") or given.get("nodelist", "")
    if not path or ("nodefile" not in given and "/" not in path):
        return component
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_NODE_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"cannot read the node file {path}: {error.strerror}") from error
    lines = [line.partition("#")[0].split() for line in text.decode(errors="replace").splitlines()]
    names = ",".join(word.strip(",") for line in lines for word in line)
    if not names or len(text) > MAX_NODE_FILE_BYTES:
        raise InvalidRequest(f"{path} is no file of node names")
    kept = tuple(option for option in component if option.name not in given)
    return (*kept, Option(name="nodelist", value=names))


def timed(component: Options) -> Options:
    """Write ``--begin`` and ``--deadline`` as Unix times: by the clock of this host's time zone."""
    if _TIMES.isdisjoint(option.name for option in component):
        return component
    from federator.cli.slurm_time import parsed_time  # noqa: PLC0415  # seldom needed

    def in_unix_time(option: Option) -> Option:
        if option.name not in _TIMES:
            return option
        try:
            at_s = parsed_time(option.value or "", time.time(), to_come=True)
        except InvalidRequest as error:
            raise InvalidRequest(f"Invalid --{option.name} specification: {error}") from error
        return Option(name=option.name, value=f"uts{at_s:.0f}")

    return tuple(map(in_unix_time, component))


def too_many_nodes(component: Options) -> str:
    """sbatch's warning where more nodes than tasks are asked for; else "".

    Such a job gets as many nodes as it has tasks: ``slurm.options.interpret``.
    """
    given = {o.name: o.value or "" for o in component if o.name in ("nodes", "ntasks")}
    least, tasks = given.get("nodes", "").partition("-")[0], given.get("ntasks", "")
    if not all(n.isascii() and n.isdecimal() and len(n) < _MOST_DIGITS for n in (least, tasks)):
        return ""  # not given, or for the daemon to read
    if not 0 < int(tasks) < int(least):
        return ""
    return f"can't run {tasks} processes on {least} nodes, setting nnodes to {tasks}"


def travelling(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out variables that are not UTF-8, and name them in FED_DROPPED_ENV."""
    kept, dropped = {}, []
    for name, value in environment.items():
        if not is_utf8(name) or not is_utf8(value):
            dropped.append(printable(name))
        elif name and name not in _OWN_VARIABLES:
            kept[name] = value
    if dropped:
        kept["FED_DROPPED_ENV"] = ",".join(sorted(dropped))
    return kept


def work_dir() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise InvalidRequest(
            f"getcwd failed: {error.strerror}; submit from a directory that exists"
        ) from error


def umask() -> int:
    umask = os.umask(0o077)  # it can only be read by setting it
    os.umask(umask)
    return umask


def named(component: Options, name: str) -> Options:
    """Give a component the name sbatch would give it: the script's, ``wrap`` or ``sbatch``."""
    if any(option.name == "job-name" for option in component):
        return component
    return (*component, Option(name="job-name", value=name))
