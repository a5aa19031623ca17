"""Declares agent.yaml, the settings of a site's agent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from federator.model.site_mode import SiteMode
from federator.traces.destination import NOT_TRACED, Destination


class DialTo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A daemon's host, as ``federator agent --dial`` reaches it: a key and a pinned host key."""

    host: str
    key: str
    known_hosts: str
    user: str = "federator"
    port: int = 22

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise ValueError(f"port: expected 1 to 65535, got {self.port}")
        for name in ("key", "known_hosts"):
            path = getattr(self, name)
            # ssh takes several files, separated by blanks, and fills in "%h" and "${HOME}".
            if not Path(path).is_absolute() or set(path) & set(' \t\n"%$'):
                raise ValueError(
                    f"{name}: expected an absolute path without blanks, % and $, got {path!r}"
                )


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """agent.yaml of a site."""

    site: str
    socket: str  # users' commands connect here
    state_dir: str  # the journal's folder, writable by the agent alone
    spool_dir: str = ""  # for the site's own hooks, see ``agent.spool``; "": there is none
    consume_lease: Literal["gate", "wrapper"] = (
        "gate"  # the site's prolog, or ``agent.lease_wrapper``
    )
    settings_interval_s: float = 1.0  # between two looks at partitions and reservations
    mode: SiteMode = SiteMode.ENFORCED  # shadow, advisory: no daemon that acts is served
    log_level: Literal["debug", "info", "warning", "error"] = "info"  # of lines in syslog
    traces: Destination = NOT_TRACED  # of this agent's part of launches
    daemons: tuple[DialTo, ...] = ()  # that it dials, with ``federator agent --dial``

    def __post_init__(self) -> None:
        if self.consume_lease == "wrapper" and not self.spool_dir:
            raise ValueError("consume_lease: wrapper needs a spool_dir, which has the leases")
        if not 0.5 <= self.settings_interval_s <= 60:
            raise ValueError(
                f"settings_interval_s: expected 0.5 to 60, got {self.settings_interval_s}"
            )
        if self.spool_dir and not Path(self.spool_dir).is_absolute():
            raise ValueError(f"spool_dir: expected an absolute path, got {self.spool_dir!r}")
