"""What would not fit a site where nothing runs is refused for good."""

from __future__ import annotations

from dataclasses import replace

from federator.model.reason import ReasonCode, RefusalKind
from federator.model.site import NodeState
from federator.sched.bid.empty_site import EmptySite, capacity_of
from tests.fakes.build import gang, rack

NODES = rack("a", 2)


def test_capacity_counts_nodes_as_if_they_were_up_and_idle() -> None:
    used = (replace(NODES[0], state=NodeState.DOWN), replace(NODES[1], gpus_alloc=3))
    assert capacity_of(used) == capacity_of(NODES)


def test_what_fits_the_capacity_is_not_refused() -> None:
    assert EmptySite(capacity_of(NODES)).never_fits((gang(2),), ("gpu",)) is None


def test_what_does_not_is_refused_for_good() -> None:
    refusal = EmptySite(capacity_of(NODES)).never_fits((gang(3),), ("gpu",))
    assert refusal is not None
    assert refusal.kind is RefusalKind.REJECT


def test_a_qos_that_the_site_does_not_have_is_refused_before_all_else() -> None:
    site = EmptySite(capacity_of(NODES, qos=("normal",)))
    refusal = site.never_fits((replace(gang(3), qos="urgent"),), ("gpu",))
    assert refusal is not None
    assert [reason.code for reason in refusal.reasons] == [ReasonCode.NO_QOS]
