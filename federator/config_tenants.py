"""The keys of a tenant in federation.yaml, and the kinds of values that other keys share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from federator.config_mistakes import one_word_of
from federator.config_services import Strict
from federator.model.lending import Lending
from federator.model.site_mode import SiteMode
from federator.model.tenant import Allowance, JobLimits
from federator.model.workload import MAX_AMOUNT, SiteName, TenantName
from federator.usage.report import Quota

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Count = Annotated[int, Field(ge=0, le=MAX_AMOUNT, strict=True)]  # strict: "yes" is no count


def checked_name(name: str) -> str:
    """The name of a tenant, site, region or GPU type.

    Raises:
        ValueError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("expected a name of 1 to 64 of A-Z a-z 0-9 . _ -, the first no . _ -")
    return name


TenantKey = Annotated[TenantName, AfterValidator(checked_name)]
SiteKey = Annotated[SiteName, AfterValidator(checked_name)]


def _mode_of(word: object) -> object:
    return None if word is None else one_word_of(Lending, word)


class LimitConfig(Strict):
    """The most of each resource in simultaneous use; what is left out is not limited."""

    gpus: Count | None = None
    cpus: Count | None = None
    gpu_types: dict[str, Count] = Field(default={})  # of ``gpus``

    @property
    def bounds(self) -> dict[str, int]:
        """The amounts that are bounded, by their key."""
        plain = {"gpus": self.gpus, "cpus": self.cpus}
        typed = {f"gpu_types.{name}": amount for name, amount in self.gpu_types.items()}
        return {key: amount for key, amount in plain.items() if amount is not None} | typed

    @property
    def allowance(self) -> Allowance:
        bounds = self.bounds
        return Allowance(
            gpus=bounds.get("gpus", inf), cpus=bounds.get("cpus", inf), gpu_types=self.gpu_types
        )


class QuotaConfig(LimitConfig):
    """The amounts that a tenant is guaranteed in simultaneous use.

    GPUs are what a federation shares, so CPUs count only where the admin says so, and GPUs always:
    ``quota: {gpus: 64}`` guarantees 64 GPUs with whatever CPUs they need, and
    ``quota: {cpus: 1024}`` guarantees 1024 CPUs and no GPU. A tenant without the key ``quota`` is
    guaranteed nothing of its own.
    """

    @property
    def bounds(self) -> dict[str, int]:
        return {"gpus": 0} | super().bounds

    @model_validator(mode="after")
    def _says_something(self) -> QuotaConfig:
        if self.gpus is None and self.cpus is None and not self.gpu_types:
            raise ValueError("give 'gpus' or 'cpus'; a tenant without a quota has no such key")
        return self


class TenantConfig(Strict):
    """A Slurm account of the federation."""

    priority: Annotated[int, Field(ge=1, le=7)] = 7
    parent: TenantKey | None = None
    quota: QuotaConfig | None = None
    home: tuple[SiteKey, ...] = ()  # where the quota is guaranteed; none: at every site
    start_within_s: Annotated[float, Field(ge=0, le=30 * 86_400)] = 0.0  # 0: as the budget allows
    unused_quota: Annotated[Lending | None, BeforeValidator(_mode_of)] = None  # None: its parent's
    mode: Annotated[SiteMode, BeforeValidator(partial(one_word_of, SiteMode))] = SiteMode.ENFORCED
    limit: LimitConfig = LimitConfig()
    max_submit_jobs: Count | None = None  # of all its users together, as the next
    max_jobs: Count | None = None
    max_submit_jobs_per_user: Count | None = None
    max_jobs_per_user: Count | None = None
    users: tuple[str, ...] = ()
    admin_groups: tuple[str, ...] = ()  # Unix groups that may hold, requeue and cancel its work
    require_project: Annotated[bool, Field(strict=True)] = False  # no job without --fed-project

    @property
    def job_limits(self) -> JobLimits:
        """How many jobs there may be."""
        given = {
            "submit": self.max_submit_jobs,
            "running": self.max_jobs,
            "submit_per_user": self.max_submit_jobs_per_user,
            "running_per_user": self.max_jobs_per_user,
        }
        return JobLimits(**{name: most for name, most in given.items() if most is not None})

    @property
    def amounts(self) -> dict[str, LimitConfig]:
        """Quota and limit, by their key."""
        return ({} if self.quota is None else {"quota": self.quota}) | {"limit": self.limit}


def unused_quota_mode(
    name: TenantName, tenants: Mapping[TenantName, TenantConfig], default: Lending
) -> Lending:
    """Whether a tenant's quota is lent fully while it is hardly used: its word, or those above."""
    words = (tenants[at].unused_quota for at in chain_of(name, tenants))
    return next((word for word in words if word is not None), default)


def mode_of(name: TenantName, tenants: Mapping[TenantName, TenantConfig]) -> SiteMode:
    """How far the federation acts for a tenant: the lowest of its mode and those above it."""
    return SiteMode.lowest(tenants[at].mode for at in chain_of(name, tenants))


def lendable_quotas(
    tenants: Mapping[TenantName, TenantConfig], default: Lending
) -> dict[TenantName, Quota]:
    """The quotas of GPUs that are looked at, each with all the tenants that share it."""
    found: dict[TenantName, Quota] = {}
    for name, tenant in tenants.items():
        gpus = tenant.quota.bounds["gpus"] if tenant.quota is not None else 0
        if gpus and unused_quota_mode(name, tenants, default) is not Lending.OFF:
            sharing = frozenset(each for each in tenants if name in chain_of(each, tenants))
            found[name] = Quota(name, float(gpus), sharing)
    return found


def chain_of(name: TenantName, tenants: Mapping[TenantName, TenantConfig]) -> list[TenantName]:
    """A tenant and those above it, nearest first."""
    chain = [name]
    while (parent := tenants[chain[-1]].parent) is not None:
        chain.append(parent)
    return chain


def gpu_quotas(tenants: Mapping[TenantName, TenantConfig]) -> list[Quota]:
    """The highest quotas of GPUs, each with all the tenants that share it."""
    found: dict[str, Quota] = {}
    for name in tenants:
        chain = chain_of(name, tenants)
        top = next((at for at in reversed(chain) if tenants[at].quota is not None), None)
        quota = tenants[top].quota if top is not None else None
        if top is None or quota is None or not quota.bounds.get("gpus"):
            continue
        before = found.get(top, Quota(top, float(quota.bounds["gpus"]), frozenset()))
        found[top] = before._replace(tenants=before.tenants | {name})
    return list(found.values())
