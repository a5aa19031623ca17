"""Which orders of the queue exist? One file each, by the name used in federation.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from federator.policies.fifo import Fifo
from federator.sched.policy import Policy

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType({"fifo": Fifo()})
