"""The workloads that somebody may see: ``privacy`` of federation.yaml, for one user."""

from __future__ import annotations

from enum import Enum

import msgspec


class Privacy(Enum):
    """Whose workloads a user sees; an operator sees all."""

    OPEN = "open"  # everybody's, as Slurm's default
    TENANT = "tenant"  # one's own, and those of the tenants that one belongs to
    OWN = "own"


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """A user who does not see everything."""

    user: str
    tenants: frozenset[str] = frozenset()  # whose workloads are seen, too

    def sees(self, user: str, tenant: str) -> bool:
        """Whether a workload of this user, charged to this tenant, is shown."""
        return user == self.user or tenant in self.tenants
