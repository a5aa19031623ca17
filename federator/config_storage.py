"""The keys of a storage domain in federation.yaml."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from federator.config_mistakes import Mistake, brief, one_of, one_word_of
from federator.config_services import Strict
from federator.config_tenants import SiteKey
from federator.model.data_placement import DataPlanning
from federator.model.dataset import MAX_PATH_BYTES, StorageDomain
from federator.model.workload import SiteName
from federator.sched.state.rules import DataMoving, Staging

_REMOTE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,63}:[!-~]{0,512}")
_GIB: Final = 2**30
_TIB: Final = 2**40


def _root(path: str) -> str:
    """The path at which a site mounts it."""
    if not path.startswith("/") or not path.isprintable() or len(path.encode()) > MAX_PATH_BYTES:
        raise ValueError("expected an absolute path, without control characters")
    normal = os.path.normpath(path)
    if not normal.strip("/") or normal != path.rstrip("/") or path.startswith("//"):
        raise ValueError("expected a path below /, without empty parts, . and ..")
    return normal


def _remote(text: str) -> str:
    """An object store as rclone names it."""
    if text and not _REMOTE.fullmatch(text):
        raise ValueError("expected REMOTE:BUCKET/PATH of an rclone remote")
    path = text.partition(":")[2]
    if text and any(part in (".", "..") for part in path.split("/")):
        raise ValueError("expected a path without . and ..")
    return text


class StorageConfig(Strict):
    """What some sites mount, each at its own path; or an object store, which none mounts."""

    mounts: dict[SiteKey, Annotated[str, AfterValidator(_root)]] = Field(default_factory=dict)
    rclone: Annotated[str, AfterValidator(_remote)] = ""
    capacity_tib: Annotated[float, Field(ge=0, le=1e9)] = 0.0  # 0: not told
    keep_free_gib: Annotated[float, Field(ge=0, le=1e9)] = 10.0  # that no copy takes
    copy_mib_per_s: Annotated[float, Field(ge=0, le=1e6)] = 0.0  # of each copy; 0: no bound
    copy_streams: Annotated[int, Field(ge=1, le=16)] = 1  # of each copy, side by side

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if bool(self.mounts) == bool(self.rclone):
            raise ValueError("expected either mounts or rclone")
        return self

    @property
    def domain(self) -> StorageDomain:
        """As the core knows it."""
        return StorageDomain(
            mounts=dict(self.mounts),
            rclone=self.rclone,
            capacity_bytes=round(self.capacity_tib * _TIB),
            keep_free_bytes=round(self.keep_free_gib * _GIB),
            copy_kib_per_s=math.ceil(self.copy_mib_per_s * 1024),
            copy_streams=self.copy_streams,
        )


_WORDS: Final = ("off", "auto")
_Auto = Annotated[Literal["off", "auto"], BeforeValidator(partial(one_word_of, _WORDS))]
_CHECKPOINTS: Final = ("off", "auto", "ahead")
_Checkpoints = Annotated[
    Literal["off", "auto", "ahead"], BeforeValidator(partial(one_word_of, _CHECKPOINTS))
]
_Planning = Annotated[DataPlanning, BeforeValidator(partial(one_word_of, DataPlanning))]


class DataConfig(Strict):
    """Copies that nobody asked for, of data sets and of checkpoints; what outputs leave, and when
    replicas go.
    """

    stage: _Auto = "off"  # for jobs that wait
    stage_max_gib: Annotated[float, Field(gt=0, le=1e9)] = 1024.0  # of a data set
    stage_at_once: Annotated[int, Field(ge=1, le=1000)] = 2
    checkpoints: _Checkpoints = "off"  # to other regions: of jobs that wait, or are at risk too
    checkpoint_mib_per_s: Annotated[float, Field(ge=0, le=1e6)] = 0.0  # of each; 0: no bound
    checkpoint_keep_free_gib: Annotated[float, Field(ge=0, le=1e9)] = 10.0  # that none takes
    output_grace_h: Annotated[float, Field(ge=0, le=168)] = 24.0  # of what a job left that failed
    planning: _Planning = DataPlanning.OFF  # of where data sets should be
    move_quota_gib_per_day: Annotated[float, Field(ge=0, le=1e9)] = 1024.0  # that plans copy
    removal_grace_h: Annotated[float, Field(ge=0, le=8760)] = 24.0  # of a retired replica's files
    unused_days: Annotated[float, Field(ge=0, le=3650)] = 0.0  # then jobs' copies go; 0: never

    @property
    def staging(self) -> Staging:
        """As the core knows it."""
        return Staging(
            auto=self.stage == "auto",
            most_bytes=round(self.stage_max_gib * _GIB),
            at_once=self.stage_at_once,
            checkpoints=self.checkpoints != "off",
            ahead=self.checkpoints == "ahead",
            checkpoint_kib_per_s=math.ceil(self.checkpoint_mib_per_s * 1024),
        )

    @property
    def moving(self) -> DataMoving:
        """As the core knows it."""
        return DataMoving(
            planning=self.planning,
            quota_bytes=round(self.move_quota_gib_per_day * _GIB),
            removal_grace_s=self.removal_grace_h * 3600,
            unused_s=self.unused_days * 86400,
        )

    def region(self, shared: Mapping[SiteName, str]) -> StorageDomain:
        """What a region's sites share, as a place that checkpoints are copied to."""
        return StorageDomain(
            mounts=shared,
            keep_free_bytes=round(self.checkpoint_keep_free_gib * _GIB),
            copy_kib_per_s=self.staging.checkpoint_kib_per_s,
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
