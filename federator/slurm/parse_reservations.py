"""Reads `scontrol show reservation -o`: one line each.

A name cannot hold a space, and every value that users choose is one word, so that no value passes
for another field. ``Comment`` comes last where there is one.
"""

from __future__ import annotations

import re
from typing import Final

from federator.model.slurm_reservation import SlurmReservation
from federator.slurm.parse_base import (
    ABSENT,
    Reading,
    count_ids,
    expand_hosts,
    parse_count,
    parse_time_s,
    problem,
)

NONE_THERE: Final = "No reservations in the system"
FLOATING: Final = "TIME_FLOAT"  # its start stays as far ahead as it is
FLOAT_STEP_S: Final = 60.0  # in which a floating start is said, so that it is not always news
_PAIR: Final = re.compile(r"(\w+)=(\S*)")
_CORES: Final = re.compile(r"NodeName=(\S+) CoreIDs=(\S+)")


def parse_reservations(text: str) -> Reading[SlurmReservation]:
    """Read all reservations; one that cannot be read is a problem, and left out.

    Args:
        text: the command's stdout, with ``SLURM_TIME_FORMAT=%s``.
    """
    found: list[SlurmReservation] = []
    problems: list[str] = []
    for line in text.split("\n"):
        if not line.strip() or line.startswith(NONE_THERE):
            continue
        try:
            found.append(_reservation(line))
        except (ValueError, KeyError) as error:
            problems.append(problem("reservation", line, error))
    return Reading(records=tuple(found), problems=tuple(problems), complete=not problems)


def _reservation(line: str) -> SlurmReservation:
    if not line.startswith("ReservationName="):
        raise ValueError("it has no name")
    field: dict[str, str] = {}
    for key, value in _PAIR.findall(line.partition(" Comment=")[0]):
        field.setdefault(key, value)
    flags = _words(field.get("Flags", ""))
    cpus, total_cpus = _cpus(line, field)
    floats_s = parse_time_s(field["StartTime"]) % FLOAT_STEP_S if FLOATING in flags else 0.0
    return SlurmReservation(
        name=field["ReservationName"],
        starts_at_s=parse_time_s(field["StartTime"]) - floats_s,
        ends_at_s=parse_time_s(field["EndTime"]) - floats_s,
        nodes=expand_hosts(field["Nodes"]),
        cpus=cpus,
        total_cpus=total_cpus,
        flags=flags,
        partition=_word(field.get("PartitionName", "")),
        users=_words(field.get("Users", "")),
        groups=_words(field.get("Groups", "")),
        accounts=_words(field.get("Accounts", "")),
        qos=_words(field.get("QOS", "")),
        features=_word(field.get("Features", "")),
        licenses=_word(field.get("Licenses", "")),
    )


def _cpus(line: str, field: dict[str, str]) -> tuple[dict[str, int], int]:
    """The CPUs reserved on nodes of which only a part is, and on all nodes together.

    22.05 says the latter alone. Which GPUs are reserved is not said by all releases, so a node of
    which some are counts as reserved as a whole.
    """
    tres = dict(word.partition("=")[::2] for word in _words(field.get("TRES", "")))
    if any(name.startswith("gres/") for name in tres):
        return {}, 0
    total, cores = parse_count(tres.get("cpu", "0")), parse_count(field.get("CoreCnt", "0"))
    threads = max(1, -(-total // cores)) if cores else 1
    return {node: count_ids(ids) * threads for node, ids in _CORES.findall(line)}, total


def _word(text: str) -> str:
    return "" if text in ABSENT else text


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _word(text).split(",") if word)
