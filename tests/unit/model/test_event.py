"""The event log reads back what was written."""

from __future__ import annotations

import msgspec
import pytest

from federator.model.event import (
    Awarded,
    Changed,
    EpochBegan,
    LogRecord,
    Submitted,
    decode_event,
    encode_event,
)
from federator.model.lifecycle import Happening
from federator.model.reason import Reason, ReasonCode
from tests.fakes.build import attempt, gang, plan_on, workload

EVENTS: list[LogRecord] = [
    EpochBegan(at_s=1.5, epoch=3),
    Submitted(at_s=2.0, workloads=(workload(0, gang(2), gang(1, 4, "serve")),), key="k"),
    Awarded(at_s=3.0, attempt=attempt(), site="alpine", jobs=plan_on("a1", "a2")),
    Changed(at_s=4.0, workload=workload().id, happening=Happening.DECLINED, attempt=1,
            reason=Reason(code=ReasonCode.LAUNCH_REFUSED, detail="taken")),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_survives_the_log(event: LogRecord) -> None:
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_a_torn_record_is_refused(event: LogRecord) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_event(encode_event(event)[:-1])
