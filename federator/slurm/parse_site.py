"""Parses how a site is set up: version, the settings that matter to us, and partitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from federator.agent.base import Partition
from federator.slurm.parse_base import (
    ABSENT,
    Reading,
    expand_hosts,
    parse_count,
    parse_duration_s,
    problem,
)

_T = TypeVar("_T")

_VERSION: Final = re.compile(r"slurm\S*\s+(\d+\.\d+\.\d+\S*)")
_AS_OF: Final = "Configuration data as of "
_SECONDS: Final = re.compile(r"(\d+) sec")
_PAIR: Final = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """Settings of slurmctld that decide how a site is to be asked and trusted."""

    cluster: str
    version: str
    message_timeout_s: float = 10.0
    min_job_age_s: float = 300.0  # how long ended jobs can be asked for
    kill_wait_s: float = 30.0
    private_data: tuple[str, ...] = ()  # "jobs" here would hide jobs from the agent's account
    topology_plugin: str = ""
    preempt_type: str = ""
    accounting: bool = False  # there is a slurmdbd, so sacct answers


def parse_version(text: str) -> str:
    """Return the release that `scontrol --version` prints, e.g. ``22.05.8``.

    Raises:
        ValueError: it prints none.
    """
    match = _VERSION.match(text.strip())
    if match is None:
        raise ValueError(f"{text[:60]!r} is not what scontrol --version prints")
    return match[1]


def parse_settings(text: str) -> dict[str, str]:
    """Read `scontrol show config`, key to value; under ``as of`` when slurmctld said so."""
    setting: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            setting.setdefault(key.strip(), value.strip())
        elif line.startswith(_AS_OF):
            setting.setdefault("as of", line.removeprefix(_AS_OF).strip())
    return setting


def parse_config(text: str) -> SlurmConfig:
    """Read `scontrol show config`; what is not there keeps Slurm's default.

    Raises:
        ValueError: cluster name or version is missing.
    """
    setting = parse_settings(text)
    if "ClusterName" not in setting or "SLURM_VERSION" not in setting:
        raise ValueError("scontrol show config names no ClusterName or SLURM_VERSION")
    private = setting.get("PrivateData", "none")
    storage = setting.get("AccountingStorageType", "")
    return SlurmConfig(
        cluster=setting["ClusterName"],
        version=setting["SLURM_VERSION"],
        message_timeout_s=_seconds(setting.get("MessageTimeout", ""), 10.0),
        min_job_age_s=_seconds(setting.get("MinJobAge", ""), 300.0),
        kill_wait_s=_seconds(setting.get("KillWait", ""), 30.0),
        private_data=() if private in ABSENT else tuple(private.split(",")),
        topology_plugin=setting.get("TopologyPlugin", ""),
        preempt_type=setting.get("PreemptType", ""),
        accounting=storage.endswith("slurmdbd"),
    )


def _seconds(text: str, default_s: float) -> float:
    match = _SECONDS.match(text)
    return float(match[1]) if match else default_s


def parse_partitions(text: str) -> Reading[Partition]:
    """Read `scontrol show partitions -o`, one line each."""
    partitions: list[Partition] = []
    problems: list[str] = []
    complete = True
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            partitions.append(_partition(line))
        except (ValueError, KeyError) as error:
            complete = False
            problems.append(problem("partition", line, error))
    return Reading(records=tuple(partitions), problems=tuple(problems), complete=complete)


def _partition(line: str) -> Partition:
    field: dict[str, str] = {}
    for key, value in _PAIR.findall(line):
        field.setdefault(key, value)
    if not line.startswith("PartitionName=") or not field["PartitionName"]:
        raise ValueError("it has no name")
    return Partition(
        name=field["PartitionName"],
        nodes=expand_hosts(field.get("Nodes", "")),
        up=field["State"] == "UP",
        is_default=field.get("Default") == "YES",
        max_time_s=parse_duration_s(field.get("MaxTime", "UNLIMITED")),
        grace_s=float(parse_count(field.get("GraceTime", "0"))),
        priority_tier=parse_count(field.get("PriorityTier", "1")),
        preempt_mode=field.get("PreemptMode", "OFF"),
        default_time_s=_known(field.get("DefaultTime", "NONE"), parse_duration_s),
        min_nodes=_known(field.get("MinNodes", "1"), parse_count) or 0,
        max_nodes=_known(field.get("MaxNodes", "UNLIMITED"), parse_count),
        root_only={"YES": True, "NO": False}.get(field.get("RootOnly", "")),
        over_subscribe=field.get("OverSubscribe", ""),
        groups="" if (groups := field.get("AllowGroups")) == "ALL" else groups,
    )


def _known(text: str, parse: Callable[[str], _T]) -> _T | None:
    """Read a limit; None: there is none."""
    return None if text in ("NONE", "UNLIMITED") else parse(text)
