"""Reasons cross the wire between releases one apart."""

from __future__ import annotations

import msgspec

from federator.model.reason import Reason, ReasonCode


def test_a_reason_of_a_later_release_can_be_read() -> None:
    packed = msgspec.msgpack.encode({"code": "FedOfTomorrow", "needed": 3})
    reason = msgspec.msgpack.decode(packed, type=Reason)
    assert reason == Reason(code=ReasonCode.UNKNOWN, needed=3)
