"""Which login node serves a site, as the daemon sees it, and since when."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

from tests.slurm.federation import Running

OTHER: Final = "login2"  # a host name of its own is all that makes a process another login node's


def login_node(running: Running, site: str) -> str:
    """The login node that serves a site, or did last."""
    (row,) = (row for row in running.sites() if row.name == site)
    return row.login_node


def up_from(running: Running, site: str, host: str) -> float | None:
    """Unix time at which a site last came up from a login node."""
    lines = [json.loads(line) for line in running.log().splitlines() if '"site_up"' in line]
    found = [e["timestamp"] for e in lines if (e["site"], e["host"]) == (site, host)]
    return datetime.fromisoformat(found[-1]).timestamp() if found else None
