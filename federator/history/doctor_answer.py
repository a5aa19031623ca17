"""Answers ``federator doctor`` from the history, for the daemon and for ``--config`` alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Engine

from federator.errors import InvalidRequest, NotAllowed
from federator.history.doctor_query import DoctorQuestion, attempts, power_times, queue
from federator.history.usage_query import find, question_of
from federator.model.viewer import Viewer
from federator.usage.days import DAY_MS
from federator.usage.diagnosis import THRESHOLDS, JudgedAttempt, Thresholds
from federator.usage.job_doctor import examine
from federator.usage.quota_review import DailyUse, daily_use, review, with_power
from federator.usage.report import Quota
from federator.wire.usage_messages import DoctorCall, DoctorReply, UsageCall

MOST_FINDINGS: Final = 2_000  # in one answer
MOST_SUMS: Final = 50_000  # that a review is made of, by day, site, partition and GPU type


def answer(
    engine: Engine,
    call: DoctorCall,
    viewer: Viewer | None,
    federation: str,
    quotas: Sequence[Quota] = (),
    bounds: Thresholds = THRESHOLDS,
) -> DoctorReply:
    """All findings about what the asker may see.

    Args:
        engine: of one who reads.
        call: what is asked.
        viewer: who asks, and sees a part; None: one who sees all.
        federation: its name.
        quotas: for their review.
        bounds: of the findings.

    Raises:
        InvalidRequest: the end is before the start, or there is more than a review reads.
        NotAllowed: a review of quotas is asked for by one who does not see all.
        HistoryError: the database cannot be read, or is of another release.
    """
    if call.end_s < call.start_s:
        raise InvalidRequest("Start time requested is after end time")
    if call.quotas:
        if viewer is not None:
            raise NotAllowed("a review of quotas shows every tenant: it is an operator's")
        return _of_quotas(engine, call, federation, quotas, bounds)
    question = DoctorQuestion(
        start_s=call.start_s,
        end_s=call.end_s,
        tenants=call.tenants,
        users=call.users,
        viewer=viewer,
    )
    found = attempts(engine, question)
    made = examine(found.records, found.at_s, bounds)
    return DoctorReply(
        findings=tuple(made),
        federation=federation,
        at_s=found.at_s,
        attempts=len(found.records),
        measured=sum(map(_is_measured, found.records)),
        is_whole=found.is_whole,
    )


def cut(reply: DoctorReply, most: int = MOST_FINDINGS) -> DoctorReply:
    """As much as crosses the wire in one answer: the first findings."""
    left_off = max(0, len(reply.findings) - most)
    return msgspec.structs.replace(reply, findings=reply.findings[:most], left_off=left_off)


def _of_quotas(
    engine: Engine,
    call: DoctorCall,
    federation: str,
    quotas: Sequence[Quota],
    bounds: Thresholds,
) -> DoctorReply:
    asked = UsageCall(start_s=call.start_s, end_s=call.end_s, by=("day", "tenant"))
    found = find(engine, question_of(asked, None), MOST_SUMS)
    use = daily_use(found)
    waits = queue(engine, found.start_s, found.end_s) if use.days else []
    if waits is None:
        raise InvalidRequest("more workloads than a review reads; ask for less time (--since)")
    use = _with_power(engine, use, bounds)
    made = (
        each
        for each in review(use, quotas, waits, bounds)
        if not call.tenants or each.tenant in call.tenants
    )
    return DoctorReply(
        findings=tuple(made), federation=federation, at_s=found.at_s, days=len(use.days)
    )


def _with_power(engine: Engine, use: DailyUse, bounds: Thresholds) -> DailyUse:
    """With the power of the days by which a fall is judged; of too many attempts without."""
    if len(use.days) <= bounds.norm_days:
        return use
    start_s = use.end_s - (bounds.norm_days + 1) * DAY_MS / 1000
    return with_power(use, power_times(engine, start_s, use.end_s) or [])


def _is_measured(record: JudgedAttempt) -> bool:
    uses = (
        record.gpu_busy_frac,
        record.cpu_s,
        record.used_mem_mib,
        record.save_s,
        record.gpu_looks,
        record.step_s,
    )
    return any(use is not None for use in uses)
