"""Reads the state of the node's InfiniBand and RoCE ports from sysfs."""

import os
import re
from typing import Dict, NamedTuple

_FILES = ("state", "phys_state", "rate")
_MOST_BYTES = 4096


class Port(NamedTuple):
    """One port: the words of sysfs without their numbers, and Gb/s (0 if not known)."""

    state: str
    phys_state: str
    rate_gbps: float


def ports(sysfs: str) -> "Dict[str, Port]":
    """Return every port, called ``<device>/<port>``; nothing where there are none."""
    found: "Dict[str, Port]" = {}
    devices = os.path.join(sysfs, "class", "infiniband")
    for device in _names(devices):
        folder = os.path.join(devices, device, "ports")
        for port in _names(folder):
            words = {name: _text(os.path.join(folder, port, name)) for name in _FILES}
            rate = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec", words["rate"])
            found[f"{device}/{port}"] = Port(
                _word(words["state"]), _word(words["phys_state"]), float(rate[1]) if rate else 0.0
            )
    return found


def _names(folder: str) -> "list[str]":
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read(_MOST_BYTES).strip()
    except OSError:
        return ""


def _word(text: str) -> str:
    """Return ``ACTIVE`` of "4: ACTIVE"; "" if it is of another form."""
    found = re.fullmatch(r"[0-9]{1,3}: ([A-Za-z_]{1,30})", text)
    return found.group(1) if found else ""
