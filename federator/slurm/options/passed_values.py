"""Refuses values of passed options that no site's sbatch would take.

The federation does not act on these options, but a job that carries a wrong value would be refused
wherever it is launched. Only what Slurm 22.05, 24.11 and 26.05 all refuse is refused here, in the
words of sbatch (those of 24.11, where they differ); what a single site judges (its QOS, features or
governors, or what only one generation knows) is left to that site.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from federator.errors import InvalidRequest
from federator.slurm.options import quantities
from federator.slurm.options.mail_option import OWN_TYPES
from federator.slurm.options.signal_option import read_signal

_Check = Callable[[str], bool]
"""Tells whether some sbatch takes a value."""

_NUMBER: Final = r" *\+?[0-9]{1,18}"
_MAIL_TYPES: Final = frozenset(
    {
        "NONE",
        "BEGIN",
        "END",
        "FAIL",
        "REQUEUE",
        "ALL",
        "INVALID_DEPEND",
        "STAGE_OUT",
        "TIME_LIMIT",
        "TIME_LIMIT_50",
        "TIME_LIMIT_80",
        "TIME_LIMIT_90",
        "ARRAY_TASKS",
        *OWN_TYPES,
    }
)
_SPREAD: Final = r"(?:\*|block|cyclic|fcyclic)?"
_DISTRIBUTION: Final = re.compile(
    rf"plane=0*[1-9][0-9]*|arbitrary|(?:no)?pack"
    rf"|(?:\*|block|cyclic)(?::{_SPREAD}){{0,2}}(?:,(?:no)?pack)?|:{_SPREAD}(?::{_SPREAD})?",
    re.IGNORECASE,
)
_FREQUENCY: Final = r"(?:low|med[a-z]*|high|highm1|[0-9]+[a-z]*)"
_GOVERNOR: Final = r"(?:conservative|ondemand|performance|powersave|schedutil|userspace)"
_CPU_FREQUENCY: Final = re.compile(
    rf"(?!0$)(?:{_GOVERNOR}|{_FREQUENCY}(?:-{_FREQUENCY})*(?::{_GOVERNOR})?)", re.IGNORECASE
)
_HINTS: Final = frozenset({"compute_bound", "memory_bound", "multithread", "nomultithread"})
_ACCOUNTING: Final = re.compile(
    r"(?:(?:(?:task|energy|network|filesystem)=)?[0-9]+)?", re.IGNORECASE
)
_GPU_BINDING: Final = re.compile(
    r"(?:v(?:erbose)?,)?(?:closest|none|single:|per_task:|(?:map|mask)_gpu:[0-9]).*", re.IGNORECASE
)
_GPU_FREQUENCY: Final = re.compile(r"(?:memory=)?(?:low|medium|high|highm1|[0-9]+)|verbose")
_GRES_FLAGS: Final = frozenset(
    {
        "",
        "disable-binding",
        "enforce-binding",
        "multiple-tasks-per-sharing",
        "one-task-per-sharing",
    }
)
_MEMORY_BINDING: Final = re.compile(
    r"q(?:uiet)?|v(?:erbose)?|none|no|p(?:refer)?|rank|local|sort|nosort|map_mem:[0-9].*|mask_mem:[0-9a-f].*"
    r"|[0-9][0-9a-fx*]*",  # numbers that follow those of a map or mask
    re.IGNORECASE,
)
_PROFILES: Final = frozenset({"all", "none", "energy", "task", "network", "lustre"})
_LIMITS: Final = frozenset(
    {
        "ALL",
        "NONE",
        "AS",
        "CORE",
        "CPU",
        "DATA",
        "FSIZE",
        "MEMLOCK",
        "NOFILE",
        "NPROC",
        "RSS",
        "STACK",
    }
)
_SOCKETS: Final = ("first", "second", "third")


def check_passed(name: str, value: str) -> None:
    """Check the value of one option.

    Args:
        name: of the option; one that is not passed, or has no closed form, is not checked.
        value: as given.

    Raises:
        InvalidRequest: no generation of sbatch takes it.
    """
    if name in _LEAST_NUMBER:
        _check_number(name, value)
    elif name == "extra-node-info":
        _check_sockets(value)
    elif name in _FORMS:
        takes, complaint = _FORMS[name]
        if not takes(value):
            raise InvalidRequest(complaint.format(name=name, value=value))


def check_time_min(text: str, limit_s: float) -> None:
    """Check ``--time-min`` beside the time limit; ``inf`` where none was given.

    Raises:
        InvalidRequest: it spells no time, or more than the limit.
    """
    if not _is_time(text):
        raise InvalidRequest("Invalid --time-min specification")
    if quantities.time_limit_s(text) > limit_s:
        raise InvalidRequest(
            "Batch job submission failed: Invalid time-min specification "
            "(exceeds job's time or other limits)"
        )


def _check_number(name: str, value: str) -> None:
    if not value and name in _MAY_BE_EMPTY:
        return
    if not re.fullmatch(_NUMBER, value) or int(value) < _LEAST_NUMBER[name]:
        raise InvalidRequest(f'Invalid numeric value "{value}" for --{name}.')


def _check_sockets(value: str) -> None:
    """Read ``-B sockets[:cores[:threads]]``; each may be a range, ``*`` or left out."""
    for place, part in zip(_SOCKETS, value.split(":"), strict=False):
        if not re.fullmatch(r"\*?|[0-9]+(?:-[0-9]+)?", part):
            raise InvalidRequest(f'Invalid numeric value "{part}" for {place} arg of -B.')


def _is_time(value: str) -> bool:
    try:
        quantities.time_limit_s(value)
    except InvalidRequest:
        return False
    return True


def _is_size(value: str) -> bool:
    try:
        quantities.mebibytes(value.strip(), "tmp")
    except InvalidRequest:
        return False
    return True


def _any_of(words: frozenset[str]) -> _Check:
    """Take a list with at least one of these words; sbatch passes over the others."""
    return lambda value: any(part.strip().lower() in words for part in value.split(","))


def _all_of(words: frozenset[str]) -> _Check:
    return lambda value: all(part in words for part in value.lower().split(","))


def _form(pattern: re.Pattern[str]) -> _Check:
    return lambda value: pattern.fullmatch(value) is not None


def _each(pattern: re.Pattern[str]) -> _Check:
    return lambda value: all(map(pattern.fullmatch, value.split(",")))


def _is_limits(value: str) -> bool:
    names = [name.removeprefix("RLIMIT_") for name in re.split("[, ]+", value)]
    return not value or _LIMITS.issuperset(names)


_LEAST_NUMBER: Final[Mapping[str, int]] = {
    "core-spec": 0,
    "cores-per-socket": 1,
    "ntasks-per-core": 1,
    "ntasks-per-socket": 1,
    "resv-ports": 0,
    "sockets-per-node": 1,
    "thread-spec": 1,
    "threads-per-core": 1,
    "wait-all-nodes": 0,
}
_MAY_BE_EMPTY: Final = frozenset({"core-spec", "wait-all-nodes"})

_INVALID: Final = "Invalid --{name} specification"
_UNKNOWN: Final = 'unrecognized --{name} argument "{value}"'
_FORMS: Final[Mapping[str, tuple[_Check, str]]] = {
    "acctg-freq": (_each(_ACCOUNTING), "Invalid --acctg-freq specification: {value}"),
    "cpu-freq": (_form(_CPU_FREQUENCY), f"{_UNKNOWN}: Invalid --cpu-freq argument"),
    "delay-boot": (_is_time, _INVALID),
    "distribution": (_form(_DISTRIBUTION), _INVALID),
    "get-user-env": (_form(re.compile("[0-9]*[SLsl]?")), _INVALID),
    "gpu-bind": (_form(_GPU_BINDING), "Invalid --gpu-bind argument: {value}"),
    "gpu-freq": (_each(_GPU_FREQUENCY), "Invalid --gpu-freq argument: gpu:{value}"),
    "gres-flags": (_all_of(_GRES_FLAGS), "Invalid --gres-flags specification: {value}"),
    "hint": (_all_of(_HINTS), f"{_UNKNOWN}, see --hint=help"),
    "mail-type": (_any_of(frozenset(map(str.lower, _MAIL_TYPES))), _INVALID),
    "mem-bind": (_each(_MEMORY_BINDING), _UNKNOWN),
    "no-kill": (_form(re.compile("off|no", re.IGNORECASE)), _INVALID),
    "oom-kill-step": (_form(re.compile("[01]")), _INVALID),
    "open-mode": (lambda value: value[:1].lower() in ("a", "t"), _INVALID),
    "profile": (_any_of(_PROFILES), "invalid --profile={value} option"),
    "propagate": (_is_limits, "--propagate={value} is not valid."),
    "requeue": (_form(re.compile("expedite", re.IGNORECASE)), _INVALID),
    "segment": (_form(re.compile(_NUMBER)), _INVALID),
    "signal": (lambda value: read_signal(value) is not None, _INVALID),
    "tmp": (_is_size, _INVALID),
}
