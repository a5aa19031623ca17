"""Reads ``--deadline``: by when a job is to have ended, and so when it starts at the latest.

As sbatch of 22.05, 24.11 and 26.05: without ``--time`` and ``--time-min`` a job is to have a minute
at least. slurmctld of 24.11 and 26.05 refuses what cannot end in time when it is submitted; that of
22.05 takes it, and ends it when it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf, isinf
from typing import Final, NamedTuple

from federator.errors import InvalidRequest
from federator.slurm.options import quantities

_WITHIN_S: Final = 1.0
_LEAST_S: Final = 60.0  # of a job without a limit of its own
TOO_LATE: Final = (
    "Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)"
)


class Deadline(NamedTuple):
    """Unix times; inf: there is none."""

    at_s: float = inf
    starts_by_s: float = inf


NO_DEADLINE: Final = Deadline()


def deadline(
    text: str | None, limit: str | None, time_min: str | None, begin_at_s: float
) -> Deadline:
    """Read it, beside ``--time``, ``--time-min`` and ``--begin``.

    Raises:
        InvalidRequest: in sbatch's words; the job has no time limit, or begins too late.
    """
    if text is None:
        return NO_DEADLINE
    at_s = quantities.unix_time_s(text, "deadline")
    if at_s < begin_at_s:
        raise InvalidRequest("Incompatible begin and deadline time specification")
    given = time_min or limit
    takes_s = _LEAST_S if given is None else quantities.time_limit_s(given)
    if isinf(takes_s) and given is not None:
        raise InvalidRequest(TOO_LATE)
    # Slurm counts limits in minutes and times in seconds: it may start within the last one.
    found = Deadline(at_s, at_s - ceil(takes_s / 60) * 60 + _WITHIN_S)
    if found.starts_by_s <= begin_at_s:
        raise InvalidRequest(TOO_LATE)
    return found


def earliest(each: Iterable[Deadline]) -> Deadline:
    """The one of a het job, all of whose components start together."""
    found = tuple(each)
    return Deadline(min(d.at_s for d in found), min(d.starts_by_s for d in found))
