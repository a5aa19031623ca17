"""What the doctor finds is counted for metrics, and a look that fails changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec
import structlog

from federator.config import FederationConfig
from federator.daemon.doctor_look import DoctorLook
from federator.daemon.own_config import OwnConfig
from federator.errors import HistoryError
from federator.history.service import JobHistory
from federator.usage.diagnosis import OF_JOBS, OF_QUOTAS
from federator.wire.usage_messages import DoctorCall, DoctorReply
from tests.unit.cli.test_doctor import IDLE

NOW_S = 1_764_072_000.0


class History:
    """Answers, or fails, as it is told; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[DoctorCall] = []
        self.fault: Exception | None = None

    async def read(self, read: Callable[..., Any]) -> DoctorReply:
        call = read.keywords["call"]  # type: ignore[attr-defined]
        self.asked.append(call)
        if self.fault is not None:
            raise self.fault
        surge = msgspec.structs.replace(IDLE, kind="surge")
        found = (surge,) if call.quotas else (IDLE,) * 3_000
        return DoctorReply(findings=found, federation="demo", at_s=NOW_S)


def look_of(history: History) -> DoctorLook:
    config = FederationConfig.model_validate(
        {
            "federation": "demo",
            "store": "memory:",
            "regions": {"r": {"shared": "/s"}},
            "sites": {"alpine": {"region": "r", "partitions": ["gpu"], "command": ["true"]}},
        }
    )

    class Own:
        now = config

    return DoctorLook(cast(JobHistory, history), cast(OwnConfig, Own()), lambda: NOW_S)


def test_findings_of_jobs_and_of_quotas_are_counted_by_kind() -> None:
    history = History()
    look = look_of(history)
    assert look.findings == dict.fromkeys((*OF_JOBS, *OF_QUOTAS), 0)
    asyncio.run(look.look())
    assert {kind: n for kind, n in look.findings.items() if n} == {"idle": 3_000, "surge": 1}
    days = [(call.quotas, (call.end_s - call.start_s) / 86_400) for call in history.asked]
    assert days == [(False, 7), (True, 28)]


def test_a_look_that_fails_leaves_the_last_counts() -> None:
    history = History()
    look = look_of(history)
    asyncio.run(look.look())
    for fault in (HistoryError("away"), RuntimeError("ours")):
        history.fault = fault
        with structlog.testing.capture_logs() as logs:
            asyncio.run(look.look())
        assert look.findings["idle"] == 3_000
        assert len(logs) == (2 if isinstance(fault, RuntimeError) else 0)


class Waits:
    """In the place of ``asyncio.timeout``: the time is over at once, until the third wait."""

    def __init__(self) -> None:
        self.spans_s: list[float] = []

    @asynccontextmanager
    async def timeout(self, span_s: float) -> AsyncIterator[None]:
        self.spans_s.append(span_s)
        if len(self.spans_s) == 3:
            raise asyncio.CancelledError
        raise TimeoutError
        yield


def test_it_looks_soon_and_then_once_an_hour(monkeypatch: Any) -> None:
    history, waits = History(), Waits()
    monkeypatch.setattr(asyncio, "timeout", waits.timeout)
    with suppress(asyncio.CancelledError):
        asyncio.run(look_of(history).run())
    assert waits.spans_s == [300.0, 3600.0, 3600.0]
    assert len(history.asked) == 4


def test_it_looks_at_once_when_it_is_told_to() -> None:
    history = History()

    async def told() -> None:
        look = look_of(history)
        looking = asyncio.create_task(look.run())
        for looks in (1, 2):
            look.look_now()
            async with asyncio.timeout(5.0):
                while len(history.asked) < 2 * looks:  # of jobs, and of quotas
                    await asyncio.sleep(0)
        looking.cancel()

    asyncio.run(told())
    assert len(history.asked) == 4
