"""Which quotas were hardly used, and how quotas fit: from the history's tables alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from federator.history import schema
from federator.history.database import open_reader, open_writer, put_rows, transaction
from federator.history.quota_answer import quota_review
from federator.history.quota_use import unused_quotas
from federator.model.quota_loan import UnusedQuotaRules
from federator.model.workload import TenantName
from federator.usage.classes import AttemptTimes
from federator.usage.days import DIMENSIONS, MEASURES
from federator.usage.report import Quota
from tests.fakes.usage_rows import attempt_use, attempt_values

DAY_S = 86_400.0
NOW_S = 20_417 * DAY_S + 40_000.0
VISION, NLP = TenantName("vision"), TenantName("nlp")
RULES = UnusedQuotaRules(below_frac=0.2, days=3)
QUOTAS = {name: Quota(name, 10.0, frozenset({name})) for name in (VISION, NLP)}


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """Of 30 days: vision has held 1 GPU and nlp 8, for 12 hours of each day."""
    url = f"sqlite:///{tmp_path}/history.db"
    writer = open_writer(url)
    with transaction(writer) as connection:
        schema.prepare(connection)
        rows: list[dict[str, Any]] = []
        sums: list[dict[str, Any]] = []
        for back in range(30):
            end_s = NOW_S // DAY_S * DAY_S - back * DAY_S - 3600
            for tenant, gpus in ((VISION, 1), (NLP, 8)):
                use = attempt_use(len(rows), end_s)
                started_s = end_s - 12 * 3600
                times = AttemptTimes(
                    attempt=1,
                    awarded_at_s=started_s,
                    started_at_s=started_s,
                    ended_at_s=end_s,
                    known_at_s=end_s,
                    state="COMPLETED",
                )
                use = replace(use, times=times, tenant=tenant, gpus=gpus, gpu_types="")
                rows.append(attempt_values(len(rows) + 1, use))
                key = dict.fromkeys(DIMENSIONS, "") | {"tenant": tenant}
                measures = dict.fromkeys(MEASURES, 0) | {"productive_gpu_ms": gpus * 12 * 3_600_000}
                sums.append({"day": int(end_s // DAY_S), **key, **measures})
        put_rows(connection, schema.attempts, iter(rows), replace=False)
        put_rows(connection, schema.usage_days, iter(sums), replace=False)
        supply = {"site": "a", "gpu_type": "", "since_s": (NOW_S // DAY_S - 30) * DAY_S, "gpus": 32}
        values = dict.fromkeys((c.name for c in schema.supply.c), 0) | supply
        put_rows(connection, schema.supply, iter([values | {"up": 1}]), replace=False)
        connection.execute(
            schema.log_place.insert().values(
                one=1, first=0, next=1, crc=0, within_snapshot=False, at_s=NOW_S
            )
        )
    return open_reader(url)


def test_a_quota_is_unused_if_each_of_the_days_says_so(engine: Engine) -> None:
    found = unused_quotas(engine, QUOTAS, RULES, NOW_S)
    assert found is not None
    assert found == {VISION: pytest.approx(0.05)}
    more = unused_quotas(engine, QUOTAS, replace(RULES, below_frac=0.5), NOW_S)
    assert set(more or {}) == {
        VISION,
        NLP,
    }


def test_of_days_before_the_history_nothing_is_known(engine: Engine) -> None:
    early_s = NOW_S - 28 * DAY_S  # two whole days
    assert unused_quotas(engine, QUOTAS, RULES, early_s) is None


def test_a_review_is_made_of_whole_weeks_and_is_the_same_again(engine: Engine) -> None:
    quotas = list(QUOTAS.values())
    found = quota_review(engine, quotas, 4, NOW_S, 0.01)
    assert found.days == 28
    assert {fit.tenant: fit.verdict for fit in found.fits} == {"nlp": "less", "vision": "less"}
    (vision,) = [fit for fit in found.fits if fit.tenant == VISION]
    assert vision.held_gpus == pytest.approx(0.5)
    bound = found.over_commitment
    assert bound is not None
    assert bound.promised_gpus == 20.0
    assert bound.supply_gpus == pytest.approx(32.0)
    assert bound.factor == pytest.approx(20 / 9)  # 9 are held at a time
    assert quota_review(engine, quotas, 4, NOW_S + 3600, 0.01).fits == found.fits
