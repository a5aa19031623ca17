"""Reads the values of the ``--fed-…`` options.

The twin of slurm_plugins/spank_federator.c, which reads the same values for plain sbatch: both
accept the same and refuse the rest in the same words. tests/data/fed_options.json holds them to it.
"""

from __future__ import annotations

import re
from typing import Final

from federator.errors import InvalidRequest
from federator.model import progress
from federator.model.data_output import OutputWish
from federator.model.data_use import MAX_NAME_BYTES, MAX_VERSION_BYTES, NAME, VERSION
from federator.model.submission import NodeRange
from federator.model.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from federator.model.workload import MAX_AMOUNT
from federator.slurm.options import quantities

MAX_GPU_TYPES: Final = 64  # that one job accepts
MAX_DATASETS: Final = 32
MAX_DATASET_BYTES: Final = MAX_NAME_BYTES
MAX_PARALLEL: Final = 4096
MAX_NODES: Final = 65_536
SHOWN_BYTES: Final = 60  # of a refused value

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DATASET: Final = re.compile(rf"({NAME})(?:@({VERSION}))?(?::r[ow])?", re.ASCII)
_OUTPUT: Final = re.compile(rf"({NAME})(?:@({VERSION}))?(?::home|:keep)?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_RANGE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})(?::([0-9]{1,18}))?")
_MEMORY: Final = re.compile(r"([0-9]{1,18})([MGT])(I?B)?", re.IGNORECASE | re.ASCII)
_MIB: Final = {"M": 1, "G": 2**10, "T": 2**20}


def _refused(option: str, text: str, expected: str) -> InvalidRequest:
    shown = text.encode("utf-8", "replace")[:SHOWN_BYTES].decode("utf-8", "ignore")
    return InvalidRequest(f'Invalid --{option} value "{shown}", {expected}')


def parallel(text: str, option: str) -> int:
    """Read ``--fed-tp``, ``--fed-pp`` and ``--fed-spare``: 1 to 4096."""
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_PARALLEL:
        raise _refused(option, text, f"must be between 1 and {MAX_PARALLEL}")
    return int(text)


def elastic(text: str) -> NodeRange:
    """Read ``--fed-elastic``: on how many nodes a job can run, ``MIN-MAX[:STEP]``."""
    match = _RANGE.fullmatch(text)
    least, most, step = map(int, match.groups("1")) if match is not None else (0, 0, 0)
    if not 1 <= least <= most <= MAX_NODES or not 1 <= step <= MAX_NODES or (most - least) % step:
        expected = (
            "must be MIN-MAX or MIN-MAX:STEP nodes, e.g. 2-8 or 2-8:2, with MIN of at least 1, "
            f"MAX of at most {MAX_NODES} and whole STEPs between them"
        )
        raise _refused("fed-elastic", text, expected)
    return NodeRange(least=least, most=most, step=step)


def progress_s(text: str) -> int:
    """Read ``--fed-progress``: the longest time between two steps, ``MIN[:SS]``, in seconds."""
    found = progress.seconds_of(text)
    if found is None:
        expected = (
            f"must be minutes, MIN or MIN:SS, from 0:{progress.LEAST_S} to {progress.MOST_MIN}, "
            "e.g. 30"
        )
        raise _refused(progress.OPTION, text, expected)
    return found


def datasets(text: str) -> tuple[str, ...]:
    """Read ``--fed-dataset``: data sets, NAME[@VERSION][:ro|:rw] each."""
    names = text.split(",")
    sound = all(map(_is_dataset, names))
    if len(names) > MAX_DATASETS or not sound:
        expected = (
            f"name at most {MAX_DATASETS} data sets, NAME[@VERSION][:ro|:rw] each, like "
            f"imagenet/v2,wiki.en@3:ro; a name has 1 to {MAX_DATASET_BYTES} of A-Z a-z 0-9 . _ / "
            f"-, a version 1 to {MAX_VERSION_BYTES} and no /; parts begin with a letter or digit"
        )
        raise _refused("fed-dataset", text, expected)
    return tuple(dict.fromkeys(names))


def _is_dataset(text: str) -> bool:
    match = _DATASET.fullmatch(text)
    return match is not None and _has_sound_name(match)


def _has_sound_name(match: re.Match[str]) -> bool:
    return len(match[1]) <= MAX_DATASET_BYTES and len(match[2] or "") <= MAX_VERSION_BYTES


def output(text: str) -> OutputWish:
    """Read ``--fed-output``: the data set that a job writes, NAME[@VERSION][:home|:keep]."""
    match = _OUTPUT.fullmatch(text)
    if match is None or not _has_sound_name(match):
        expected = (
            "must be NAME[@VERSION][:home|:keep], like maps/big@3:home; a name has 1 to "
            f"{MAX_DATASET_BYTES} of A-Z a-z 0-9 . _ / -, a version 1 to {MAX_VERSION_BYTES} and "
            "no /; parts begin with a letter or digit"
        )
        raise _refused("fed-output", text, expected)
    return OutputWish.of(text)


def project(text: str) -> str:
    """Read ``--fed-project``: one name."""
    if not _NAME.fullmatch(text):
        expected = "must be a name of 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit"
        raise _refused("fed-project", text, expected)
    return text


def priority(text: str) -> int:
    """Read ``--fed-priority``: a level of the federation, 1 to 7."""
    if not _NUMBER.fullmatch(text) or not HIGHEST_PRIORITY <= int(text) <= LOWEST_PRIORITY:
        expected = f"must be between {HIGHEST_PRIORITY} and {LOWEST_PRIORITY} (lowest)"
        raise _refused("fed-priority", text, expected)
    return int(text)


def gpu_mem_gib(text: str) -> float:
    """Read ``--fed-gpu-mem``: memory of each GPU, with its unit, e.g. ``40G``."""
    match = _MEMORY.fullmatch(text)
    mib = int(match[1]) * _MIB[match[2].upper()] if match else MAX_AMOUNT + 1
    if mib > MAX_AMOUNT:
        raise _refused("fed-gpu-mem", text, "say the unit, e.g. 40G")
    return mib / 1024


def gpu_types(text: str) -> tuple[str, ...]:
    """Read ``--fed-gpu-types``: names of GPU types, any of which will do."""
    names = text.replace("|", ",").split(",")
    if len(names) > MAX_GPU_TYPES or not all(map(_NAME.fullmatch, names)):
        expected = f"name types like a100,h100, at most {MAX_GPU_TYPES}"
        raise _refused("fed-gpu-types", text, expected)
    return tuple(dict.fromkeys(names))


def optional_tasks(text: str) -> tuple[int, ...]:
    """Read ``--fed-optional``: tasks of an array, spelt as ``--array`` spells them."""
    try:
        chosen, _ = quantities.array(text)
    except InvalidRequest:
        chosen = ()
    if not chosen or "%" in text:
        expected = "name tasks of the array, e.g. 4-7; %N belongs to --array"
        raise _refused("fed-optional", text, expected)
    return chosen
