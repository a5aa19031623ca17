"""Answers ``federator quotas review``, from the history and the quotas alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Engine

from federator.errors import InvalidRequest
from federator.history.doctor_answer import MOST_SUMS
from federator.history.doctor_query import DoctorQuestion, attempts, queue
from federator.history.usage_query import find, question_of
from federator.usage.days import DAY_MS
from federator.usage.quota_fit import Demand, OverCommitment, QuotaFit, fits, over_commitment
from federator.usage.quota_review import COLUMNS, daily_use
from federator.usage.report import Quota
from federator.wire.usage_messages import UsageCall

MOST_RUNS: Final = 1_000_000  # attempts, and waits, of one review
_DAY_S: Final = DAY_MS / 1000


class QuotaReview(msgspec.Struct, frozen=True, kw_only=True):
    """How quotas fit; Unix times."""

    start_s: float
    end_s: float
    days: int  # whole ones of which the history has anything
    fits: list[QuotaFit]
    over_commitment: OverCommitment | None


def quota_review(
    engine: Engine, quotas: Sequence[Quota], weeks: int, until_s: float, risk_frac: float
) -> QuotaReview:
    """Review quotas by whole weeks.

    Args:
        engine: of one who reads.
        quotas: the highest ones.
        weeks: that are looked at.
        until_s: Unix time; its own day (UTC) does not count.
        risk_frac: see ``over_commitment``.

    Raises:
        InvalidRequest: there is more than a review reads.
        HistoryError: the database cannot be read, or is of another release.
    """
    end_s = until_s // _DAY_S * _DAY_S
    start_s = end_s - weeks * 7 * _DAY_S
    asked = UsageCall(start_s=start_s, end_s=end_s, by=COLUMNS)
    use = daily_use(find(engine, question_of(asked, None), MOST_SUMS))
    if not use.days:
        return QuotaReview(
            start_s=start_s, end_s=end_s, days=0, fits=fits(use, quotas, []), over_commitment=None
        )
    question = DoctorQuestion(start_s=start_s, end_s=max(end_s, until_s))
    runs, waits = attempts(engine, question, MOST_RUNS), queue(engine, start_s, end_s, MOST_RUNS)
    if not runs.is_whole or waits is None:
        raise InvalidRequest("more jobs than a review reads; ask for less time (--weeks)")
    demands = [Demand(r.tenant, r.gpus, r.started_at_s, r.ended_at_s) for r in runs.records]
    demands += [Demand(w.tenant, w.gpus, w.eligible_at_s, w.left_at_s) for w in waits]
    return QuotaReview(
        start_s=start_s,
        end_s=end_s,
        days=len(use.days),
        fits=fits(use, quotas, waits),
        over_commitment=over_commitment(use, quotas, demands, risk_frac),
    )
