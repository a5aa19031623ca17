"""Puts the figures of tenants and GPU types under the names that a site's own rules know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from federator.model.site import GpuModel
from federator.model.site_names import SiteNames
from federator.wire.agent_protocol import TenantCap


def caps_there(caps: Iterable[TenantCap], names: SiteNames) -> list[TenantCap]:
    """The figures by account; none of an account that several tenants share."""
    found = [replace(cap, name=names.accounts.get(cap.name, cap.name)) for cap in caps]
    times = Counter(cap.name for cap in found)
    return [cap for cap in found if times[cap.name] == 1]


def gpus_there(gpus: Mapping[str, GpuModel], names: SiteNames) -> dict[str, GpuModel]:
    """The models by the site's gres type."""
    return {names.gpu_types.get(kind, kind): model for kind, model in gpus.items()}
