"""Reads ``--signal=[{R|B}:]SIG[@SECONDS]`` as sbatch does: which signal, to whom, how early.

Every spelling that some sbatch takes is taken (``passed_values.json`` of the tests holds their
answers): blanks, signs, numbers, small letters, no colon, and no SECONDS behind the ``@``.
"""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass
from typing import Final

from federator.wire.agent_protocol import SignalTo

_NAMES: Final = (
    "HUP|INT|QUIT|ABRT|KILL|ALRM|TERM|USR1|USR2|URG|CONT|STOP|TSTP|TTIN|TTOU|CHLD|PIPE|XCPU"
)
_FORM: Final = re.compile(
    rf"(?P<to>R?B?R?):? *(?:(?:SIG)?(?P<name>{_NAMES})|(?P<number>[+-]?[0-9]{{1,18}})) *"
    r"(?:@(?P<lead> *\+?[0-9]{1,18}|))?",
    re.IGNORECASE,
)
_NAME_OF: Final = {each.value: each.name.removeprefix("SIG") for each in signals.Signals}
_LARGEST_NUMBER: Final = 0xFFFF  # of a signal; sbatch drops the bits above
_USUAL_LEAD_S: Final = 60
_LARGEST_LEAD_S: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOption:
    """The signal that a job asked for, its recipients, and the lead.

    Args:
        signal: without SIG; "" of a number that is no signal here; sbatch takes such a number.
        to: the batch script or the srun steps.
        lead_s: so long before the job's time limit Slurm itself sends it; 0: it does not.
    """

    signal: str
    to: SignalTo
    lead_s: float


def read_signal(text: str) -> SignalOption | None:
    """Read the option's value; None of what no sbatch takes."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    number = int(match["number"] or 1) & _LARGEST_NUMBER
    lead_s = _USUAL_LEAD_S if match["lead"] is None else int(match["lead"] or 0)
    if not number or lead_s > _LARGEST_LEAD_S:
        return None
    name = match["name"].upper() if match["name"] else _NAME_OF.get(number, "")
    to = SignalTo.BATCH if "B" in match["to"].upper() else SignalTo.STEPS
    return SignalOption(signal=name, to=to, lead_s=float(lead_s))
