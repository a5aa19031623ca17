"""Notifies the service manager that started the daemon: ready, alive, ending.

The protocol is systemd's, sd_notify(3): datagrams to the socket that $NOTIFY_SOCKET names. Of a
daemon that was started by hand nobody wants to know.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from math import inf
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"


def status(text: str) -> str:
    """The text that ``systemctl status`` shows of the daemon."""
    return f"STATUS={text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """A service manager; without ``address`` there is none.

    Args:
        address: path of its socket; in the abstract namespace if it begins with ``@``.
        watchdog_s: it kills a daemon that has not said for so long that it is alive.
    """

    address: str = ""
    watchdog_s: float = inf

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str], pid: int) -> Supervisor:
        """Read, and remove: what the daemon starts is not to speak for it.

        Args:
            environment: as systemd leaves it; what is no number in it counts as absent.
            pid: of this process; a watchdog that is meant for another does not bind it.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        period_us = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", str(pid))
        bound = period_us.isdecimal() and int(period_us) > 0 and meant == str(pid)
        return cls(address=address, watchdog_s=int(period_us) / 1e6 if bound else inf)

    def tell(self, *states: str) -> None:
        """Send ``states`` at once; a manager that cannot be reached is no reason to end."""
        if not self.address:
            return
        path = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(os.fsencode("\n".join(states)), os.fsencode(path))
