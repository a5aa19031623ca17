"""Answers ``federator doctor`` from the history, for the daemon and for ``--config`` alike."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine

from federator.errors import InvalidRequest
from federator.history.doctor_query import DoctorQuestion, attempts
from federator.model.viewer import Viewer
from federator.usage.diagnosis import THRESHOLDS, JudgedAttempt, Thresholds
from federator.usage.job_doctor import examine
from federator.wire.usage_messages import DoctorCall, DoctorReply

MOST_FINDINGS: Final = 2_000  # in one answer


def answer(
    engine: Engine,
    call: DoctorCall,
    viewer: Viewer | None,
    federation: str,
    bounds: Thresholds = THRESHOLDS,
) -> DoctorReply:
    """The findings about what the asker may see.

    Args:
        engine: of one who reads.
        call: what is asked.
        viewer: who asks, and sees a part; None: one who sees all.
        federation: its name.
        bounds: of the findings.

    Raises:
        InvalidRequest: the end is before the start.
        HistoryError: the database cannot be read, or is of another release.
    """
    if call.end_s < call.start_s:
        raise InvalidRequest("Start time requested is after end time")
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
        findings=tuple(made[:MOST_FINDINGS]),
        federation=federation,
        at_s=found.at_s,
        attempts=len(found.records),
        measured=sum(map(_is_measured, found.records)),
        is_whole=found.is_whole,
        left_off=max(0, len(made) - MOST_FINDINGS),
    )


def _is_measured(record: JudgedAttempt) -> bool:
    uses = (record.gpu_busy_frac, record.cpu_s, record.used_mem_mib, record.save_s)
    return any(use is not None for use in uses)
