"""Reads the values of sbatch options: counts, memory, times, GPUs, arrays.

Each function takes the text and says in sbatch's words what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from federator.errors import InvalidRequest
from federator.model.gres import PARTS_OF_GPUS, Gres, counted
from federator.model.workload import MAX_AMOUNT

MAX_COUNT: Final = 2**31 - 1
MAX_MINUTES: Final = 2**31 - 1
MAX_UNIX_S: Final = 2**32 - 1  # of any time that Slurm can hold
MAX_NICE: Final = 2**31 - 3  # Slurm's NICE_OFFSET - 3
DEFAULT_NICE: Final = 100
MAX_ARRAY_TASKS: Final = 10_000  # each is a workload of its own
MAX_ARRAY_INDEX: Final = 4_000_000  # Slurm's
_BAD_GRES: Final = "Invalid generic resource (gres) specification"
_BAD_ARRAY: Final = "Batch job submission failed: Invalid job array specification"
_UNITS: Final = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MULTIPLES: Final = {"": 1, "K": 2**10, "M": 2**20}
_GRES_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def _number(text: str) -> int | None:
    """Read ASCII digits; None for anything else and for what no count can be."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        return None
    return int(text)


def count(text: str, option: str) -> int:
    """Read a number of at least 1."""
    number = _number(text.strip())
    if not number or number > MAX_COUNT:
        raise InvalidRequest(f'Invalid numeric value "{text}" for --{option}.')
    return number


def nodes(text: str) -> int:
    """Read ``-N``: ``4``, ``2k``, ``2-4``; of a range the federation takes the smaller end."""
    low_text, dash, high_text = text.partition("-")
    low = _node_count(low_text, text)
    high = _node_count(high_text, text) if dash else low
    if low == 0:
        raise InvalidRequest("Batch job submission failed: Node count specification invalid")
    if high < low:
        raise InvalidRequest(f"Maximum node count {high} is less than minimum node count {low}")
    return low


def _node_count(text: str, whole: str) -> int:
    unit = text[-1:].upper() if text[-1:].upper() in ("K", "M") else ""
    number = _number(text[: len(text) - len(unit)])
    if number is None or number * _MULTIPLES[unit] > MAX_COUNT:
        raise InvalidRequest(f'"{whole}" is not a valid node count')
    return number * _MULTIPLES[unit]


def mebibytes(text: str, option: str) -> int:
    """Read ``4096``, ``4G``, ``512K``, ``1TB``; parts of a MiB count as a whole one."""
    spelled = text.upper()
    if len(spelled) > 2 and spelled.endswith("B") and not spelled[-2].isdecimal():
        spelled = spelled[:-1]
    unit = spelled[-1:] if spelled[-1:] in ("K", "M", "G", "T") else ""
    number = _number(spelled[: len(spelled) - len(unit)])
    if number is None or number * _UNITS[unit] > MAX_AMOUNT * 2**20:
        raise InvalidRequest(f"Invalid --{option} specification")
    return -(-number * _UNITS[unit] // 2**20)


def time_limit_s(text: str) -> float:
    """Read a time as ``duration_s``; inf for no limit.

    Slurm keeps whole minutes, rounded up; 0 asks for the partition's limit, which is not known
    here, and counts as none.
    """
    seconds = duration_s(text)
    minutes = inf if seconds == inf else -(-seconds // 60)
    if inf > minutes > MAX_MINUTES:
        raise InvalidRequest("Invalid --time specification: for no limit say UNLIMITED")
    return float(minutes * 60) if minutes else inf


def duration_s(text: str) -> float:
    """Read minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS; inf for no end."""
    if text == "-1" or text.upper() in ("INFINITE", "UNLIMITED"):
        return inf
    days_text, dash, clock = text.partition("-")
    if not dash:
        days_text, clock = "0", text
    parts = [_number(part) for part in clock.split(":")] if clock or not dash else [0]
    days = _number(days_text)
    numbers = [part for part in parts if part is not None]
    if days is None or len(numbers) != len(parts) or len(parts) > 3:
        raise InvalidRequest("Invalid --time specification")
    scale = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return days * 86_400 + sum(n * s for n, s in zip(numbers, scale, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """A number of GPUs, of one gres type or ("") of any."""

    number: int
    gpu_type: str = ""


def gpus(text: str) -> Gpus:
    """Read ``--gpus`` and its kin: ``8``, ``a100``, ``a100:8``, ``a100=8``."""
    return _one_type([_typed(part) for part in text.split(",")])


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGres:
    """The demand of ``--gres`` on each node: GPUs, and all else that can be counted."""

    gpus: Gpus | None = None
    others: Gres = ()


def gres(text: str) -> AskedGres:
    """Read ``--gres``: ``gpu:a100:8,nic``, ``nic:mlx5:2``, ``gres/nic=2``; ``none`` is nothing.

    Raises:
        InvalidRequest: it spells nothing that sbatch knows; or asks for parts of GPUs.
    """
    gpus: list[Gpus] = []
    others: list[tuple[str, str, int]] = []
    for entry in text.split(",") if text.lower() != "none" else ():
        bare = entry.removeprefix("gres:").removeprefix("gres/").replace("=", ":")
        name, _, rest = bare.partition(":")
        if name in PARTS_OF_GPUS:
            raise InvalidRequest(
                f"--gres={name} is not supported: it is a part of a GPU, and the federation gives "
                "GPUs as a whole; ask for gpu"
            )
        if not _is_type(name):
            raise InvalidRequest(_BAD_GRES)
        if name == "gpu":
            gpus.append(_typed(rest or "1"))
        else:
            others.append((name, *_type_and_amount(rest)))
    return AskedGres(gpus=_one_type(gpus) if gpus else None, others=counted(others))


def _type_and_amount(text: str) -> tuple[str, int]:
    """Read the words after the name of a gres: nothing, a type, an amount, or both."""
    kind, colon, amount_text = text.rpartition(":")
    unit = amount_text[-1:].upper() if amount_text[-1:].upper() in _GRES_UNITS else ""
    amount = _number(amount_text[: len(amount_text) - len(unit)])
    if amount is None and not colon and (not text or _is_type(text)):
        return text, 1
    if amount is None or (colon and not _is_type(kind)):
        raise InvalidRequest(_BAD_GRES)
    return kind, amount * _GRES_UNITS[unit]


def _typed(text: str) -> Gpus:
    fields = text.replace("=", ":").split(":")
    number = _count_with_unit(fields[-1])
    too_many = number is None and fields[-1].rstrip("kKmM").isdecimal()  # no type, if alone
    if number is None and len(fields) == 1 and _is_type(fields[0]) and not too_many:
        return Gpus(number=1, gpu_type=fields[0])
    if number is None or len(fields) > 2 or (len(fields) == 2 and not _is_type(fields[0])):
        raise InvalidRequest(_BAD_GRES)
    return Gpus(number=number, gpu_type=fields[0] if len(fields) == 2 else "")


def _count_with_unit(text: str) -> int | None:
    unit = text[-1:].upper() if text[-1:].upper() in ("K", "M") else ""
    number = _number(text[: len(text) - len(unit)])
    return (
        None
        if number is None or number > MAX_COUNT // _MULTIPLES[unit]
        else (number * _MULTIPLES[unit])
    )


def _is_type(text: str) -> bool:
    return (
        bool(text)
        and text.replace("_", "").replace("-", "").replace(".", "").isalnum()
        and (text[0] != "-")
    )


def _one_type(found: list[Gpus]) -> Gpus:
    types = {each.gpu_type for each in found}
    if len(types) > 1 and "" in types:
        raise InvalidRequest("Invalid GRES specification (with and without type identification)")
    if len(types) > 1:
        raise InvalidRequest(
            f"GPUs of several types in one job ({', '.join(sorted(types))}) cannot be planned; "
            "make each type a component of a het job"
        )
    return Gpus(number=sum(each.number for each in found), gpu_type=types.pop())


def array(text: str) -> tuple[tuple[int, ...], int]:
    """Read ``--array``: ``0-7``, ``1,3,5-9:2``, ``[1-5]``, each with ``%N`` behind.

    Returns:
        The indices in ascending order without repetitions, and the most that may run at once
        (0: any number).
    """
    spec, percent, limit_text = text.partition("%")
    limit = _number(limit_text) if percent else 0
    if spec.startswith("[") and spec.endswith("]"):
        spec = spec[1:-1]
    ranges = [_array_range(part) for part in spec.split(",")]
    if limit is None or limit > MAX_COUNT:
        raise InvalidRequest(_BAD_ARRAY)
    if sum(map(len, ranges)) > MAX_ARRAY_TASKS:  # known before anything is expanded
        raise InvalidRequest(f"a job array may have at most {MAX_ARRAY_TASKS} tasks")
    return tuple(sorted({index for each in ranges for index in each})), limit


def array_step(text: str) -> int:
    """Return the step of an array as Slurm counts it: of the first range with one, else 1."""
    array(text)  # so that what stands behind a colon is a number
    _, _, behind = text.partition(":")
    return int(behind.partition(",")[0].partition("%")[0].rstrip("]") or 1)


def _array_range(text: str) -> range:
    span, colon, step_text = text.partition(":")
    first_text, dash, last_text = span.partition("-")
    first = _number(first_text)
    last = _number(last_text) if dash else first
    step = _number(step_text) if colon else 1
    if first is None or last is None or not step or (colon and not dash):
        raise InvalidRequest(_BAD_ARRAY)
    if last < first or last > MAX_ARRAY_INDEX:
        raise InvalidRequest(_BAD_ARRAY)
    return range(first, last + 1, step)


def nice(text: str | None) -> int:
    """Read ``--nice``: 100 where no value is given.

    sbatch takes garbage for 0, and an administrator's negative value; both are refused here.
    """
    if text is None:
        return DEFAULT_NICE
    spelled = text.strip()
    number = _number(spelled[1:] if spelled[:1] in ("+", "-") else spelled)
    if number and spelled.startswith("-"):
        raise InvalidRequest(
            f'Invalid --nice value "{text}": must be non-negative, '
            "in the federation's queue a job can only be lowered"
        )
    if number is None or number > MAX_NICE:
        raise InvalidRequest(f'Invalid --nice value "{text}", must be between 0 and {MAX_NICE}')
    return number


def unix_time_s(text: str, option: str = "begin") -> float:
    """Read ``--begin`` or ``--deadline`` as fsbatch sends it, ``uts`` and Unix time.

    Raises:
        InvalidRequest: it is anything else; the time zone of other forms is not known here.
    """
    seconds = _number(text.removeprefix("uts")) if text.startswith("uts") else None
    if seconds is None or seconds > MAX_UNIX_S:
        raise InvalidRequest(
            f'Invalid --{option} specification "{text[:60]}"; a program that is not fsbatch writes '
            "uts and Unix time, as in uts1798704000"
        )
    return float(seconds)
