"""What launch orders take at a site, and who leaves for them."""

from __future__ import annotations

from math import inf

from federator.model.plan import Shrink
from federator.model.workload import WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.holds import Holds
from tests.fakes.build import attempt, plan_on, rack

FIRST, SECOND = attempt(1), attempt(2)
VICTIM = Shrink(WorkloadId(7), 0)


def test_a_room_that_is_read_anew_lacks_what_is_held() -> None:
    holds, nodes = Holds(), rack("n", 2)
    holds.add(FIRST, plan_on("n1", "n2"), inf, frozenset())
    room, again = FreeCapacity(nodes), FreeCapacity(nodes)
    holds.take_from(room)
    holds.take_again(again, {"n1"})
    whole = nodes[0].gpus
    assert room.by_name["n1"].gpus == room.by_name["n2"].gpus == again.by_name["n1"].gpus < whole
    assert again.by_name["n2"].gpus == whole
    assert holds.nodes_of(FIRST) == ("n1", "n2")
    assert list(holds.endings()) == [(inf, plan_on("n1", "n2"))]


def test_those_who_leave_for_a_hold_do_so_until_they_have() -> None:
    holds = Holds()
    holds.add(FIRST, plan_on("n1"), inf, frozenset({VICTIM}))
    holds.add(SECOND, plan_on("n2"), inf, frozenset())
    assert holds.leaving == {VICTIM}
    assert not holds.cleared(SECOND)
    holds.remove(FIRST)
    assert holds.leaving == {VICTIM}
    assert holds.cleared(FIRST)
    assert holds.leaving == frozenset()
    assert list(holds) == [SECOND]
