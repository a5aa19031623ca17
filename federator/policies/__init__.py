"""The policies that order the queue: one file each, by the name used in federation.yaml.

``fifo`` is the one to copy; the interface is ``federator.sched.queue.policy``. ``settings`` is no
policy: it names the keys that all of them read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from federator.policies.fifo import Fifo
from federator.policies.mast import Mast
from federator.sched.queue.policy import Policy
from federator.sched.state.credit import CreditWeights

POLICIES: Final[Mapping[str, Callable[[CreditWeights], Policy]]] = MappingProxyType(
    {
        "mast": Mast,
        "global-fifo": lambda _: Fifo(),
    }
)
ONCE_NAMED: Final[Mapping[str, str]] = MappingProxyType({"fifo": "global-fifo"})
"""Names in federation.yaml that are taken until 0.2, and not listed."""
