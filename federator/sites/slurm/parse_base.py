"""How does Slurm write the small things? Host lists, GRES, times, exit codes; and a reading.

Text to values, nothing else. Everything raises ``ValueError`` on text it does not understand; the
parsers of whole outputs turn that into one line of ``Reading.problems``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import inf, prod
from typing import Final, Generic, TypeVar

from ClusterShell.NodeSet import (
    RESOLVER_NOGROUP,
    NodeSet,
    NodeSetException,
)
from ClusterShell.RangeSet import RangeSetException

T_co = TypeVar("T_co", covariant=True)

ABSENT: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "none"})
"""Slurm's ways to say that there is nothing."""

MAX_HOSTS: Final = 100_000  # of one host list; more is a mistake, and would eat the memory

_HOSTLIST: Final = re.compile(r"[A-Za-z0-9_.\-,\[\]]+")
_RANGES: Final = re.compile(r"\[([^\[\]]*)\]")
_DURATION: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Generic[T_co]):
    """What one command's output held.

    Unless it is ``complete``, a record's absence proves nothing.
    """

    records: tuple[T_co, ...]
    problems: tuple[str, ...] = ()  # one line for each record that was skipped or guessed at
    complete: bool = True  # none was skipped


def problem(what: str, text: str, why: object) -> str:
    """Return one line of ``Reading.problems``: the start of the record, and what is wrong."""
    return f"cannot read {what} {text[:60]!r}: {why}"


@lru_cache(maxsize=8192)
def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the names of a host list such as ``g[1-3,07],c1``; without repeats, in order.

    Raises:
        ValueError: this is no host list, or one of more than ``MAX_HOSTS`` names.
    """
    if text in ABSENT:
        return ()
    if not _HOSTLIST.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is no host list")
    if "[" not in text and "]" not in text:
        return tuple(dict.fromkeys(name for name in text.split(",") if name))
    _check_size(text)
    try:
        return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, RangeSetException) as error:
        raise ValueError(f"{text[:60]!r} is no host list: {error}") from error


def _check_size(text: str) -> None:
    """Refuse a host list that would expand beyond all reason, before anything expands it."""
    sizes = [sum(_range_size(part) for part in group.split(",")) for group in _RANGES.findall(text)]
    if max(sizes, default=0) > MAX_HOSTS or _product_of_worst(text, sizes) > MAX_HOSTS:
        raise ValueError(f"{text[:60]!r} names more than {MAX_HOSTS} hosts")


def _range_size(part: str) -> int:
    first, _, last = part.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        return 1
    if len(first) > 9 or len(last) > 9:
        raise ValueError(f"{part[:60]!r} is no range of node numbers")
    return max(1, int(last) - int(first) + 1)


def _product_of_worst(text: str, sizes: list[int]) -> int:
    """Bound the number of names: several brackets multiply only within one comma-free name."""
    names = re.sub(r"\[[^\[\]]*\]", "[]", text).split(",")
    total, at = 0, 0
    for name in names:
        brackets = name.count("[]")
        total += prod(sizes[at : at + brackets])
        at += brackets
    return total


def parse_gpus(gres: str) -> dict[str, int]:
    """Return GPUs by type from any dialect of a GRES string; other GRES (shard, mps) are ignored.

    ``gpu:a100:8(S:0-1)``, ``gpu:a100:4(IDX:0-3),gpu:v100:2``, ``gpu:8``, ``gpu:0``, ``(null)``;
    an untyped GPU has type "".

    Raises:
        ValueError: a count is no number.
    """
    gpus: dict[str, int] = {}
    if gres in ABSENT:
        return gpus
    for entry in re.sub(r"\([^()]*\)", "", gres).split(","):
        name, *rest = entry.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        if name != "gpu":
            continue
        kind, count = _type_and_count(rest)
        gpus[kind] = gpus.get(kind, 0) + count
    return gpus


def _type_and_count(rest: list[str]) -> tuple[str, int]:
    """Split what follows ``gpu:``; of type, flags such as no_consume, and count all may lack."""
    if rest and rest[-1][:1].isdecimal() and rest[-1].isascii() and rest[-1].isdecimal():
        count = int(rest[-1])
        rest = rest[:-1]
    elif len(rest) > 1:
        raise ValueError(f"GRES count {rest[-1][:30]!r} is no number")
    else:
        count = 1
    return (rest[0] if rest else ""), count


def parse_time_s(text: str) -> float:
    """Return a Unix time written with ``SLURM_TIME_FORMAT=%s``; 0 where Slurm knows none.

    Raises:
        ValueError: it was written in another format.
    """
    if text in ABSENT:
        return 0.0
    return float(parse_count(text))


def parse_count(text: str) -> int:
    """Return a plain decimal number.

    Raises:
        ValueError: it is none.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise ValueError(f"{text[:30]!r} is no number")
    return int(text)


def parse_duration_s(text: str) -> float:
    """Return seconds from ``[days-]hh:mm:ss``; UNLIMITED and NONE are ``inf``.

    Raises:
        ValueError: it is neither.
    """
    if text in {"UNLIMITED", "INFINITE", "NONE"}:
        return inf
    match = _DURATION.fullmatch(text)
    if match is None or not text.isascii():
        raise ValueError(f"{text[:30]!r} is no duration")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def parse_exit(text: str) -> tuple[int, int]:
    """Return exit code and signal from ``3:0`` (24.11 on) or a raw wait status (22.05).

    Raises:
        ValueError: it is neither.
    """
    code, colon, signal = text.partition(":")
    if colon:
        return parse_count(code), parse_count(signal)
    status = parse_count(code)
    return status >> 8 & 0xFF, status & 0x7F


def count_ids(text: str) -> int:
    """Return how many ids ``0-3,7`` names.

    Raises:
        ValueError: it is no list of numbers and ranges.
    """
    if text in ABSENT:
        return 0
    total = 0
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = parse_count(first)
        total += parse_count(last) - low + 1 if dash else 1
    return total
