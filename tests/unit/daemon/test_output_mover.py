"""What jobs wrote is sealed or removed step by step, from a site that mounts its domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from federator.config import FederationConfig
from federator.daemon.output_mover import (
    AT_ONCE,
    FIRST_RETRY_S,
    LEAST_GRACE_S,
    STEP_S,
    TURN_S,
    UNANSWERED_S,
    OutputMover,
)
from federator.model.data_output import KeptOutput, OutputState
from federator.model.dataset import CopyPhase
from federator.model.message import OutputSeen
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.sched.passes.job_outputs import GIVE_UP_S
from federator.sched.state.ledger import Ledger
from federator.wire.agent_protocol import OutputOrder, OutputStatus
from tests.unit.daemon.test_data_mover import config

ALPINE, BAKER, CEDAR = map(SiteName, ("alpine", "baker", "cedar"))
HOUR_S = 3600.0
SEALING, LEFT = OutputState.SEALING, OutputState.LEFT


def output(id_: int = 7, state: OutputState = SEALING, **more: Any) -> KeptOutput:
    fields: dict[str, Any] = {
        "id": WorkloadId(id_),
        "user": "ada",
        "tenant": TenantName("vision"),
        "name": "maps",
        "version": str(id_),
        "attempt": 1,
        "site": "cedar",
        "folders": ("east",),
        "state": state,
        "over_at_s": 1000.0,
    }
    return KeptOutput(**(fields | more))


class Rig:
    """A mover, and the ledger that it reads."""

    def __init__(self, *outputs: KeptOutput) -> None:
        given: FederationConfig = config(alpine="gate:2222")
        self.ledger = Ledger()
        self.ledger.catalogue.domains = {n: each.domain for n, each in given.storage.items()}
        self.ledger.outputs.restore(outputs)
        self.able, self.seen = {ALPINE, BAKER, CEDAR}, list[OutputSeen]()
        self.mover = OutputMover(given, self.ledger, self.able.__contains__, self.seen.append)
        self.now_s = 1000.0

    def due(self, after_s: float = 0.0) -> list[tuple[SiteName, OutputOrder]]:
        self.now_s += after_s
        return list(self.mover.due(self.now_s))

    def answer(
        self, order: OutputOrder, phase: CopyPhase, site: SiteName = BAKER, **more: Any
    ) -> OutputSeen | None:
        place = order.place
        fields: dict[str, Any] = {
            "workload": place.id,
            "attempt": order.attempt,
            "domain": place.domain,
            "phase": phase,
        }
        return self.mover.taken(site, OutputStatus(**(fields | more)), self.now_s)

    def ordered(self, turns: int, *, answered: Mapping[int, CopyPhase]) -> list[int]:
        """The jobs whose folders were ordered in so many turns; only some sites answer."""
        found: list[int] = []
        for _ in range(turns):
            for _site, order in self.due(STEP_S):
                found.append(order.place.id)
                if order.place.id in answered:
                    self.answer(order, answered[order.place.id])
        return found


def test_it_is_sealed_at_the_site_where_it_was_written_step_by_step() -> None:
    rig = Rig(output())
    ((site, order),) = rig.due()
    assert (site, order.drop, order.user, order.place.root) == (CEDAR, False, "ada", "/mnt/e")
    assert rig.due(STEP_S / 2) == []
    assert rig.due(STEP_S) == [(site, order)]
    rig.able.remove(CEDAR)
    ((site, order),) = rig.due(STEP_S)
    assert (site, order.place.root) == (BAKER, "/e")
    rig.able.remove(BAKER)
    assert rig.due(STEP_S) == []


def test_what_is_registered_loses_its_working_folder_at_once() -> None:
    rig = Rig(output())
    ((_, order),) = rig.due()
    assert rig.answer(order, CopyPhase.CHECKING) is None
    assert rig.answer(order, CopyPhase.DONE) is not None
    rig.ledger.outputs.restore([output(state=OutputState.REGISTERED)])
    ((_, order),) = rig.due()
    assert order.drop
    assert rig.answer(order, CopyPhase.DROPPED) is not None


def test_without_a_grace_it_still_stays_until_no_sbatch_can_make_it_anew() -> None:
    """One that is under way when its job is cancelled makes the folder yet (history 79003)."""
    rig = Rig(output(state=LEFT))
    data = rig.mover.config.data.model_copy(update={"output_grace_h": 0.0})
    rig.mover.config = rig.mover.config.model_copy(update={"data": data})
    assert rig.due(LEAST_GRACE_S - 1.0) == []
    ((_, order),) = rig.due(2.0)
    assert order.drop


def test_what_a_job_left_that_failed_goes_after_its_grace() -> None:
    rig = Rig(output(state=LEFT))
    assert rig.due() == []
    assert rig.due(23.9 * HOUR_S) == []
    ((_, order),) = rig.due(0.2 * HOUR_S)
    assert order.drop


def test_what_an_attempt_left_elsewhere_is_not_removed_before_the_output_is_safe() -> None:
    rig = Rig(output(folders=("west", "east")))
    assert [(s, o.drop) for s, o in rig.due()] == [(CEDAR, False)]
    rig.ledger.outputs.restore([output(folders=("west", "east"), state=OutputState.REGISTERED)])
    assert [(s, o.drop) for s, o in rig.due()] == [(ALPINE, True), (CEDAR, True)]


def test_a_failure_is_tried_again_later_and_at_another_site() -> None:
    rig = Rig(output())
    ((site, order),) = rig.due()
    assert rig.answer(order, CopyPhase.FAILED) is not None
    assert rig.due(FIRST_RETRY_S / 2) == []
    ((again, order),) = rig.due(FIRST_RETRY_S)
    assert (site, again) == (CEDAR, BAKER)
    rig.answer(order, CopyPhase.FAILED)
    assert rig.due(1.5 * FIRST_RETRY_S) == []
    assert rig.due(FIRST_RETRY_S)


def test_only_so_many_of_one_domain_at_once() -> None:
    rig = Rig(*map(output, range(1, 6)))
    assert [order.place.id for _, order in rig.due()] == list(range(1, 1 + AT_ONCE))
    assert [order.place.id for _, order in rig.due(STEP_S)] == list(range(1, 1 + AT_ONCE))


def test_what_nobody_can_do_for_two_weeks_is_given_up() -> None:
    rig = Rig(output())
    rig.able.clear()
    assert rig.due() == []
    assert rig.due(GIVE_UP_S + 1.0) == []
    (seen,) = rig.seen
    assert seen.phase is CopyPhase.FAILED
    assert "no site that mounts its storage domain" in seen.detail


def test_there_is_nothing_to_wake_for_without_outputs() -> None:
    assert Rig().mover.next_s() == 0.0
    rig = Rig(output(state=LEFT))
    rig.due()
    assert rig.mover.next_s() > rig.now_s
    rig.ledger.outputs.restore([replace(output(), over_at_s=0.0)])
    assert rig.mover.next_s() == 0.0


def test_an_order_that_nobody_answers_is_tried_at_another_site_and_makes_room() -> None:
    rig = Rig(*map(output, range(1, 4)))
    assert set(rig.ordered(round(UNANSWERED_S / STEP_S), answered={})) == {1, 2}
    ((site, order),) = rig.due(STEP_S)
    assert (site, order.place.id) == (CEDAR, 3)
    rig.answer(order, CopyPhase.DONE)
    rig.ledger.outputs.restore([output(3, state=OutputState.REGISTERED)])
    again = {order.place.id: site for site, order in rig.due(FIRST_RETRY_S)}
    assert again == {1: BAKER, 2: BAKER, 3: CEDAR}


def test_folders_that_get_nowhere_keep_no_slot_from_the_others() -> None:
    rig = Rig(*map(output, range(1, 6)))
    rest = dict.fromkeys((3, 4, 5), CopyPhase.DONE)
    assert set(rig.ordered(20, answered=rest)) == {1, 2, 3, 4, 5}
    rig = Rig(*map(output, range(1, 6)))
    stuck = dict.fromkeys((1, 2), CopyPhase.CHECKING)
    turns = round(TURN_S / STEP_S)
    assert set(rig.ordered(turns, answered=rest | stuck)) == {1, 2}
    assert set(rig.ordered(20, answered=rest | stuck)) == {1, 2, 3, 4, 5}


def test_as_many_are_removed_at_once_whatever_is_sealed() -> None:
    left = [output(id_, state=OutputState.REGISTERED) for id_ in (4, 5, 6)]
    rig = Rig(*map(output, (1, 2, 3)), *left)
    assert {order.place.id for _, order in rig.due()} == {1, 2, 4, 5}
    rig.ledger.outputs.restore([output(9, site="baker")])
    assert rig.due(STEP_S / 2) == [], "others are under way, although there is something new"


def test_what_no_site_was_asked_is_no_news() -> None:
    rig = Rig(output())
    unasked = OutputOrder(place=rig.due()[0][1].place, attempt=1, user="ada")
    rig = Rig(output())
    assert rig.answer(unasked, CopyPhase.DONE) is None
    ((_, order),) = rig.due()
    assert rig.answer(order, CopyPhase.DROPPED) is None, "it was to be sealed"
    assert rig.answer(order, CopyPhase.DONE, ALPINE) is None, "it does not mount the domain"
    assert rig.answer(order, CopyPhase.DONE, domain="nowhere") is None
    assert rig.answer(order, CopyPhase.DONE, workload=8) is None
    assert rig.answer(order, CopyPhase.DONE) is not None
    assert rig.answer(order, CopyPhase.DONE) is None
    rig.ledger.outputs.restore([output(state=OutputState.REGISTERED)])
    ((_, order),) = rig.due()
    assert rig.answer(order, CopyPhase.DONE) is None, "it was to be removed"
    assert rig.answer(order, CopyPhase.DROPPED) is not None


def test_a_failure_is_news_once_for_each_order_and_its_words_are_few() -> None:
    rig = Rig(output())
    ((_, order),) = rig.due()
    told = [rig.answer(order, CopyPhase.FAILED, detail=f"{k}" * 1000) for k in range(9)]
    (seen,) = [each for each in told if each is not None]
    assert seen.detail == "0" * 300
    ((_, order),) = rig.due(FIRST_RETRY_S)
    assert rig.answer(order, CopyPhase.FAILED, detail="again") is not None
    assert rig.due(1.5 * FIRST_RETRY_S) == [], "nine were one failure"


def test_what_is_told_late_is_believed_and_fails_no_second_time() -> None:
    rig = Rig(output())
    orders = [order for _ in range(5) for _, order in rig.due(STEP_S)]
    assert rig.due(UNANSWERED_S) == []
    assert rig.answer(orders[0], CopyPhase.FAILED) is not None
    assert len(rig.due(FIRST_RETRY_S)) == 1
    rig.due(UNANSWERED_S)
    assert rig.answer(orders[0], CopyPhase.DONE) is not None
