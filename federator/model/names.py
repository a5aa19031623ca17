"""Names of things that have their own types, so that none passes for another."""

from __future__ import annotations

from typing import NewType

WorkloadId = NewType("WorkloadId", int)
TenantName = NewType("TenantName", str)
SiteName = NewType("SiteName", str)
