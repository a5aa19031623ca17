"""Reads host lists, GRES, times and exit codes as Slurm writes them; defines ``Reading``.

Text to values, nothing else. Everything raises ``ValueError`` on text it does not understand; the
parsers of whole outputs turn that into one line of ``Reading.problems``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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

from federator.model.gres import PARTS_OF_GPUS, Gres, counted

T_co = TypeVar("T_co", covariant=True)

ABSENT: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "none"})
"""Slurm's ways to say that there is nothing."""

MAX_HOSTS: Final = 100_000  # of one host list; more is a mistake, and would eat the memory

_HOSTLIST: Final = re.compile(r"[A-Za-z0-9_.\-,\[\]]+")
_RANGES: Final = re.compile(r"\[([^\[\]]*)\]")
_GRES_ENTRY: Final = re.compile(r"([^,()]+)(?:\(([^()]*)\))?")
_GRES_COUNT: Final = re.compile(r"([0-9]{1,15})([KMGTP]?)", re.IGNORECASE)
_GRES_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_DURATION: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Generic[T_co]):
    """The records of one command's output.

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


def host_count(hosts: str) -> int:
    """The number of names of a host list without a comma outside of brackets, at most.

    Raises:
        ValueError: it has a range that is none.
    """
    groups = _RANGES.findall(hosts)
    return prod(sum(_range_size(part) for part in group.split(",")) for group in groups)


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
    """Return GPUs by type from any dialect of a GRES string; other GRES are ignored.

    ``gpu:a100:8(S:0-1)``, ``gpu:a100:4(IDX:0-3),gpu:v100:2``, ``gpu:8``, ``gpu:0``, ``(null)``;
    an untyped GPU has type "".

    Raises:
        ValueError: a count is no number.
    """
    gpus: dict[str, int] = {}
    for name, words, note in _gres_entries(gres):
        if name == "gpu":
            kind, count = _type_and_count(words, note)
            gpus[kind] = gpus.get(kind, 0) + count
    return gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGres:
    """The gres of a node, or of a job there, beside GPUs and parts of GPUs.

    A name of which one entry cannot be read is not ``known`` at all: neither how much of it there
    is nor how much of it is free can be said.
    """

    known: Gres
    unread: Mapping[str, str]  # why, by name


def parse_other_gres(gres: str) -> OtherGres:
    """Return what else can be counted, without GPUs and parts of GPUs.

    ``nic:2``, ``nic:mlx5:2``, ``bw:lustre:no_consume:4k``, and of a job ``nic:mlx5(CNT:1)``.
    """
    amounts: list[tuple[str, str, int]] = []
    unread: dict[str, str] = {}
    for name, words, note in _gres_entries(gres):
        if name == "gpu" or name in PARTS_OF_GPUS:
            continue
        try:
            amounts.append((name, *_type_and_count(words, note)))
        except ValueError as error:
            unread[name] = str(error)
    known = counted(amount for amount in amounts if amount[0] not in unread)
    return OtherGres(known=known, unread=unread)


def shared_gres(configured: str) -> tuple[str, ...]:
    """Return the names that Slurm lends without counting: ``bw`` of ``bw:lustre:no_consume:4K``.

    As for Slurm, one such entry makes all of the name so. 22.05 does not tell it of a node.
    """
    entries = (text.strip().split(":") for text, _ in _GRES_ENTRY.findall(configured))
    return tuple(sorted({name for name, *words in entries if "no_consume" in words}))


def gpus_in_parts(used: str) -> int:
    """Return how many GPUs are in use by shards (or MPS), so that Slurm gives them to nobody else.

    22.05 says ``shard:a100:1(IDX:0)``, 24.11 ``shard:a100:2(2/4,0/4)``, 26.05
    ``shard:h100:2(2/4,-/4)``. Where it is not said which they are, each part may be on another.
    """
    gpus = 0
    for name, words, note in _gres_entries(used):
        if name not in PARTS_OF_GPUS:
            continue
        if note.startswith("IDX:"):
            gpus += count_ids(note.removeprefix("IDX:"))
        elif "/" in note:
            gpus += sum(part.partition("/")[0] not in ("0", "-") for part in note.split(","))
        else:
            gpus += _type_and_count(words, note)[1]
    return gpus


@lru_cache(maxsize=8192)  # few say anything of their own
def _gres_entries(gres: str) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    """Name, type and count (as far as they are there), and what stands in brackets."""
    found = []
    untyped = gres.replace("(null)", "")  # as in ``gpu:(null):0(IDX:N/A)``
    for text, note in _GRES_ENTRY.findall("" if gres in ABSENT else untyped):
        name, *words = text.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        found.append((name, tuple(word for word in words if word != "no_consume"), note))
    return tuple(found)


def _type_and_count(words: Sequence[str], note: str) -> tuple[str, int]:
    """Split what follows the name; type and count may both be missing."""
    count = _GRES_COUNT.fullmatch(words[-1]) if words else None
    if count is not None:
        return ":".join(words[:-1]), int(count[1]) * _GRES_UNITS[count[2].upper()]
    if note.startswith("CNT:"):
        return ":".join(words), parse_count(note.removeprefix("CNT:"))
    if len(words) > 1:
        raise ValueError(f"GRES count {words[-1][:30]!r} is no number")
    return (words[0] if words else ""), 1


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
