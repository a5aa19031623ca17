"""Reads the Xid errors that the NVIDIA driver has reported since the node booted.

The kernel's log is read record by record without waiting. A note of an admin (``fed-gate clear``)
that what was reported until then has been seen to lies in the state directory.
"""

import contextlib
import errno
import os
import re
from typing import List, NamedTuple, Optional

# A report begins its record, and the kernel itself wrote it (facility 0): any user can get a text
# of their own into the middle of a message, by the option of a mount for instance.
_XID = re.compile(
    r"(?:(?P<priority>[0-9]{1,9}),[0-9]+,(?P<at_us>[0-9]{1,18}),[^;]*;|\[ *[0-9]+\.[0-9]+\] )"
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,20})\): (?P<code>[0-9]{1,4})\b"
)
_FACILITY = 8  # a record's first number is its level plus this times its facility
_MOST_BYTES = 16 << 20


class Xid(NamedTuple):
    """One report; ``at_us`` is in microseconds since boot, 0 where the log does not say."""

    pci: str
    code: int
    at_us: int


def read_log(path: str) -> "Optional[str]":
    """Return the kernel's log, or None where it cannot be read."""
    parts: "List[bytes]" = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        left = _MOST_BYTES
        while left > 0:
            try:
                part = os.read(descriptor, 65536)
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten while we read: go on behind it
                    continue
                break
            if not part:
                break
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def parse_xids(text: str) -> "List[Xid]":
    """Return the reports in a log of /dev/kmsg's form, or of dmesg's."""
    found = []
    for line in text.split("\n"):
        match = _XID.match(line)
        if match is not None and int(match.group("priority") or 0) < _FACILITY:
            at_us = int(match.group("at_us") or 0)
            found.append(Xid(match.group("pci"), int(match.group("code")), at_us))
    return found


def seen_file(state_dir: str, node: str) -> str:
    """Return where it is noted which reports an admin has seen to."""
    return os.path.join(state_dir, node, "xid-seen")


def seen_until_us(file: str, boot: str) -> int:
    """Return the noted time in microseconds since boot; 0 if nothing is noted of this boot."""
    with contextlib.suppress(OSError, ValueError):
        with open(file, encoding="ascii") as stream:
            noted, until = stream.read(256).split()
        if noted == boot:
            return int(until)
    return 0


def note_seen(file: str, boot: str, until_us: int) -> None:
    """Note that reports until ``until_us`` have been seen to.

    Raises:
        OSError: it cannot be written.
    """
    os.makedirs(os.path.dirname(file), mode=0o755, exist_ok=True)
    with open(file + ".new", "w", encoding="ascii") as stream:
        stream.write(f"{boot} {until_us}\n")
    os.rename(file + ".new", file)
