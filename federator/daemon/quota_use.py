"""Looks once an hour which quotas are hardly used, where the configuration lends those."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sqlalchemy import Engine

from federator.config_tenants import lendable_quotas
from federator.daemon.hourly_look import HourlyLook
from federator.daemon.own_config import OwnConfig
from federator.history.quota_use import unused_quotas
from federator.history.service import JobHistory
from federator.model.message import QuotasMeasured
from federator.model.workload import TenantName

FIRST_S: Final = 330.0  # not with the doctor's look

Unused = dict[TenantName, float]


def quota_look(
    history: JobHistory,
    own: OwnConfig,
    clock: Callable[[], float],
    observe: Callable[[QuotasMeasured], None],
) -> HourlyLook[Unused | None]:
    """Measures the use of quotas for the core.

    Args:
        history: is read.
        own: the daemon's configuration, which a reload may change.
        clock: Unix time.
        observe: takes what was measured.
    """

    def question() -> Callable[[Engine], Unused | None] | None:
        config = own.now
        quotas = lendable_quotas(config.tenants, config.policy.unused_quota.mode)
        if not quotas:
            return None
        rules = config.policy.unused_quota.rules
        return partial(unused_quotas, quotas=quotas, rules=rules, now_s=clock())

    def tell(unused: Unused | None) -> None:
        if unused is not None:
            observe(QuotasMeasured(unused=unused))

    return HourlyLook("quotas", FIRST_S, history, question, tell)
