"""A history beside each daemon that says, now and then, of a quota that it is hardly used.

There is none in a fault history: what it would say is drawn. The core must take any of it, at any
time, and lend nobody's quota but by its steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from federator.faults.daemon_host import DaemonHost
from federator.model.message import QuotasMeasured
from federator.model.workload import TenantName

EVERY_S: Final = (4.0, 12.0)
UNUSED_PART: Final = 0.7  # of the looks


async def look_for_ever(
    daemons: Sequence[DaemonHost], tenants: Sequence[TenantName], rng: Random
) -> None:
    """Tell whichever daemon leads what was measured.

    Args:
        daemons: that may lead.
        tenants: whose quotas may be lent.
        rng: decides what is told, and when.
    """
    while True:
        await asyncio.sleep(rng.uniform(*EVERY_S))
        unused = {name: rng.uniform(0.0, 0.2) for name in tenants if rng.random() < UNUSED_PART}
        for host in daemons:
            process = host.process
            if process is None or host.daemon is None or host.daemon.term is None:
                continue
            process.call(host.daemon.term.inbox.put, QuotasMeasured(unused=unused))
