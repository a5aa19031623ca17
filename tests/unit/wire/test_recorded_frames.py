"""The wire format is that of release 0.1.0: its frames are read, and written again to the byte."""

from __future__ import annotations

import msgspec
import pytest

from federator.model.site_message import Ask
from federator.wire.agent_protocol import from_agent_decoder, to_agent_decoder
from tests.fakes.frames import FROM_AGENT, TO_AGENT, as_then


@pytest.mark.parametrize("name", TO_AGENT)
def test_an_agent_reads_what_an_older_daemon_sent(name: str) -> None:
    message = to_agent_decoder.decode(TO_AGENT[name])
    assert as_then(message, TO_AGENT[name]) == TO_AGENT[name]


@pytest.mark.parametrize("name", FROM_AGENT)
def test_a_daemon_reads_what_an_older_agent_sent(name: str) -> None:
    message = from_agent_decoder.decode(FROM_AGENT[name])
    assert as_then(message, FROM_AGENT[name]) == FROM_AGENT[name]


def test_a_request_without_a_budget_evicts_nobody() -> None:
    fields = msgspec.msgpack.decode(TO_AGENT["ask_for_a_test"])
    (request,) = fields["requests"]
    del request["preempt_gpus"]
    asked = to_agent_decoder.decode(msgspec.msgpack.encode(fields))
    assert isinstance(asked, Ask)
    assert asked.requests[0].preempt_gpus == 0


@pytest.mark.parametrize("field", ["id", "tenant", "user", "priority", "jobs", "time_limit_s"])
def test_a_request_without_any_other_field_is_refused(field: str) -> None:
    fields = msgspec.msgpack.decode(TO_AGENT["ask_for_a_test"])
    del fields["requests"][0][field]
    with pytest.raises(msgspec.ValidationError, match=field):
        to_agent_decoder.decode(msgspec.msgpack.encode(fields))
