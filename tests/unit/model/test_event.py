"""The event log reads back what was written."""

from __future__ import annotations

from dataclasses import replace

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
from federator.model.submission import pack_submission, unpack_submission
from tests.fakes.build import attempt, draft, gang, plan_on, workload

EVENTS: list[LogRecord] = [
    EpochBegan(at_s=1.5, epoch=3),
    Submitted(at_s=2.0, draft=draft(gang(2), gang(1, 4, "serve")), first_id=workload().id, key="k"),
    Awarded(at_s=3.0, attempt=attempt(), site="alpine", jobs=plan_on("a1", "a2")),
    Changed(at_s=4.0, workload=workload().id, happening=Happening.DECLINED, attempt=1,
            reason=Reason(code=ReasonCode.LAUNCH_REFUSED, detail="taken")),
    Changed(at_s=5.0, workload=workload().id, happening=Happening.LIMIT_NEAR, attempt=1,
            reason=Reason(code=ReasonCode.TIME_LIMIT)),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_survives_the_log(event: LogRecord) -> None:
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_a_torn_record_is_refused(event: LogRecord) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_event(encode_event(event)[:-1])


def test_a_submission_of_an_older_release_says_nothing_of_evictions_and_time_limits() -> None:
    plain = Submitted(at_s=2.0, draft=draft(requeue=False), first_id=workload().id, key="k")
    fields = msgspec.msgpack.decode(encode_event(plain))
    for name in ("no_preempt", "continues", "signal_lead_s"):
        del fields["draft"][name]
    old = decode_event(msgspec.msgpack.encode(fields))
    assert old == plain
    assert isinstance(old, Submitted)
    assert not old.draft.preemptible  # --no-requeue meant that already


def test_an_array_costs_the_log_one_script_however_many_tasks_it_has() -> None:
    one = draft(array_indices=tuple(range(10_000)))
    script = "#!/bin/sh\n" + "#" * 6_000
    typed = msgspec.structs.replace(unpack_submission(one.submission), script=script)
    large = replace(one, submission=pack_submission(typed))
    record = encode_event(Submitted(at_s=2.0, draft=large, first_id=workload().id, key="k"))
    assert len(record) < 50_000
