"""What may not be said at all is refused where it is made, and where it comes in."""

from __future__ import annotations

import msgspec
import pytest

from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site_message import SiteAnswer
from federator.model.workload import WorkloadId


def test_a_refusal_without_a_reason_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one reason"):
        Refusal(kind=RefusalKind.WAIT, reasons=())


def test_a_sites_refusal_without_a_reason_cannot_be_read() -> None:
    refusal = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.RESOURCES),))
    sound = msgspec.to_builtins(SiteAnswer(id=WorkloadId(7), refusal=refusal))
    assert msgspec.convert(sound, SiteAnswer).refusal == refusal
    sound["refusal"]["reasons"] = []
    with pytest.raises(msgspec.ValidationError, match="at least one reason"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(sound), type=SiteAnswer)
