"""A site keeps room in a pass for the first that it refuses and that could start there later."""

from __future__ import annotations

from collections.abc import Mapping

from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site_message import SiteAnswer
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.kept_room import KeptRoom
from federator.sched.passes.round import Round
from tests.fakes.build import bid_request, gang

ALPINE = SiteName("alpine")
FIRST, SECOND = WorkloadId(1), WorkloadId(2)


def kept(refused: Mapping[WorkloadId, ReasonCode]) -> WorkloadId | None:
    """For whom a site keeps room that could start all of these in some minutes, in this order."""
    requests = {id_: bid_request(id=id_, jobs=(gang(1),)) for id_ in refused}
    round_ = Round(pass_id=1, requests=requests, waiting_for={ALPINE}, deadline_s=10.0)
    answers = []
    for id_, code in refused.items():
        reasons = (Reason(code=code, job="train"),)
        refusal = Refusal(kind=RefusalKind.WAIT, reasons=reasons, starts_in_s=600.0)
        answers.append(SiteAnswer(id=id_, refusal=refusal))
    round_.take(ALPINE, answers)
    room = KeptRoom()
    room.assign(tuple(refused), (ALPINE,), round_)
    return room.at[ALPINE].id if ALPINE in room.at else None


def test_room_is_kept_for_the_first_that_waits_for_resources() -> None:
    assert kept({FIRST: ReasonCode.RESOURCES, SECOND: ReasonCode.RESOURCES}) == FIRST


def test_one_that_waits_for_a_reservation_to_begin_takes_no_kept_room_from_a_gang() -> None:
    """The reservation itself keeps its nodes; the gang would else starve until it begins."""
    assert kept({FIRST: ReasonCode.RESERVATION, SECOND: ReasonCode.RESOURCES}) == SECOND
    assert kept({FIRST: ReasonCode.RESERVATION}) is None
