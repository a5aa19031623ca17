"""Signals by the names and numbers that scancel takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from federator.errors import InvalidRequest

_NUMBERS: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "HUP", 2: "INT", 3: "QUIT", 6: "ABRT", 9: "KILL", 10: "USR1", 12: "USR2", 14: "ALRM",
        15: "TERM", 16: "STKFLT", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU",
        23: "URG", 24: "XCPU", 25: "XFSZ",
    }
)  # fmt: skip
SIGNALS: Final = tuple(_NUMBERS.values())


def signal_of(number: int) -> str:
    """A signal's name without SIG; "" of none."""
    return _NUMBERS.get(number, "")


def signal_name(text: str) -> str:
    """A signal's name without SIG: of ``SIGUSR1``, ``usr1`` or ``10`` ``USR1``.

    Raises:
        InvalidRequest: there is none such.
    """
    name = text.strip().upper().removeprefix("SIG")
    if name.isascii() and name.isdecimal():
        name = _NUMBERS.get(int(name[:4]), "")
    if name not in _NUMBERS.values():
        raise InvalidRequest(f"Unknown job signal: {text}")
    return name
