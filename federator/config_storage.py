"""The keys of a storage domain in federation.yaml."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from federator.config_mistakes import Mistake, brief, one_of
from federator.config_services import Strict
from federator.config_tenants import SiteKey
from federator.model.dataset import MAX_PATH_BYTES, StorageDomain

_TIB: Final = 2**40


def _root(path: str) -> str:
    """The path at which a site mounts it."""
    if not path.startswith("/") or not path.isprintable() or len(path.encode()) > MAX_PATH_BYTES:
        raise ValueError("expected an absolute path, without control characters")
    normal = os.path.normpath(path)
    if not normal.strip("/") or normal != path.rstrip("/") or path.startswith("//"):
        raise ValueError("expected a path below /, without empty parts, . and ..")
    return normal


class StorageConfig(Strict):
    """What some sites mount, each at its own path."""

    mounts: Annotated[dict[SiteKey, Annotated[str, AfterValidator(_root)]], Field(min_length=1)]
    capacity_tib: Annotated[float, Field(ge=0, le=1e9)] = 0.0  # 0: not told

    @property
    def domain(self) -> StorageDomain:
        """As the core knows it."""
        return StorageDomain(
            mounts=dict(self.mounts), capacity_bytes=round(self.capacity_tib * _TIB)
        )


def storage_mistakes(
    storage: Mapping[str, StorageConfig], sites: Collection[str]
) -> Iterator[Mistake]:
    """Unknown sites, and two domains at one path of a site."""
    seen: dict[tuple[str, str], str] = {}
    for name, domain in storage.items():
        for site, root in domain.mounts.items():
            at = ("storage", name, "mounts", site)
            other = seen.setdefault((site, root), name)
            if site not in sites:
                yield at, f"unknown site '{brief(site)}'; {one_of(site, sites)}"
            elif other != name:
                yield at, f"{brief(root)} is storage domain {brief(other)} at this site"
