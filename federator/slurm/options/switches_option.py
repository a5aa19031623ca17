"""Reads ``--switches=COUNT[@TIME]``: under how many leaf switches, and how long to hold out for it.

Without a time, or with one that is none, sbatch of all releases leaves it to slurmctld, whose
``max_switch_wait`` is 300 s unless it is set; so it is here.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from federator.errors import InvalidRequest
from federator.slurm.options import quantities

USUAL_WAIT_S: Final = 300.0
MOST: Final = 2**31
_COUNT: Final = re.compile(r" *\+?([0-9]{1,18})", re.ASCII)


class Switches(NamedTuple):
    """How many; 0: any."""

    most: int = 0
    wait_s: float = USUAL_WAIT_S


def switches(text: str | None) -> Switches:
    """Read it; None: it was not given.

    Raises:
        InvalidRequest: in sbatch's words.
    """
    if text is None:
        return Switches()
    count, _, time = text.partition("@")
    match = _COUNT.fullmatch(count)
    if match is None or not int(match[1]):
        raise InvalidRequest(f'Invalid numeric value "{count[:60]}" for --switches.')
    if int(match[1]) > MOST:
        raise InvalidRequest(f"Numeric argument ({match[1]}) too large for --switches.")
    try:
        wait_s = float(quantities.duration_s(time))
    except InvalidRequest:
        wait_s = USUAL_WAIT_S
    return Switches(int(match[1]), wait_s)
