"""Says which quotas were hardly used on the last whole days (UTC), by the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Engine

from federator.history.doctor_answer import MOST_SUMS
from federator.history.usage_query import find, question_of
from federator.model.quota_loan import UnusedQuotaRules
from federator.model.workload import TenantName
from federator.usage.days import DAY_MS
from federator.usage.quota_review import COLUMNS, daily_use
from federator.usage.report import Quota
from federator.wire.usage_messages import UsageCall

_DAY_S: Final = DAY_MS / 1000


def unused_quotas(
    engine: Engine, quotas: Mapping[TenantName, Quota], rules: UnusedQuotaRules, now_s: float
) -> dict[TenantName, float] | None:
    """Those of which too little was used, with the part of it on the busiest of the days.

    None: it is not known, as the history has nothing of the first of the days.

    Args:
        engine: of one who reads.
        quotas: that are looked at.
        rules: how little, on how many days.
        now_s: Unix time; its own day does not count.

    Raises:
        InvalidRequest: there are more sums than are read.
        HistoryError: the database cannot be read, or is of another release.
    """
    end_s = now_s // _DAY_S * _DAY_S
    asked = UsageCall(start_s=end_s - rules.days * _DAY_S, end_s=end_s, by=COLUMNS)
    use = daily_use(find(engine, question_of(asked, None), MOST_SUMS))
    if len(use.days) < rules.days:
        return None
    most = {name: max(use.of(quota.tenants)) / quota.gpus for name, quota in quotas.items()}
    return {name: frac for name, frac in most.items() if frac < rules.below_frac}
