"""Bids of one message that are taken from the room, and given back."""

from __future__ import annotations

from federator.model.plan import Bid
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.made_bids import MadeBids
from federator.sched.bid.running_jobs import Occupants
from federator.sched.bid.workload_plan import place_all
from tests.fakes.build import gang, rack


def placed(room: FreeCapacity, *jobs: Job) -> Bid:
    found = place_all(jobs, room, ("gpu",))
    assert isinstance(found, Bid)
    return found


def free_gpus(room: FreeCapacity) -> int:
    return sum(f.gpus for f in room.by_name.values())


def test_what_was_bid_is_in_use_until_the_message_is_answered() -> None:
    room = FreeCapacity(rack("s", 4))
    all_gpus = free_gpus(room)
    made = MadeBids(room, Occupants(room))
    first, second = placed(room, gang(1)), placed(room, gang(2))
    made.add(first, 8)
    made.add(second, 8)
    left = free_gpus(room)
    made.give_back()
    assert free_gpus(room) == all_gpus
    made.take()
    assert free_gpus(room) == left < all_gpus
    made.close()
    assert free_gpus(room) == all_gpus


def test_a_remembered_bid_is_taken_when_somebody_looks() -> None:
    room = FreeCapacity(rack("s", 4))
    all_gpus = free_gpus(room)
    bid = placed(room, gang(1))
    held = all_gpus - free_gpus(room)
    for plan in bid.jobs:
        room.release(plan)
    made = MadeBids(room, Occupants(room))
    made.remember(bid, 8)
    assert free_gpus(room) == all_gpus
    made.take_remembered()
    assert free_gpus(room) == all_gpus - held
    made.take_remembered()
    assert free_gpus(room) == all_gpus - held


def test_the_first_bid_of_a_message_was_spoilt_by_none() -> None:
    room = FreeCapacity(rack("s", 4))
    assert not MadeBids(room, Occupants(room)).may_spoil(placed(room, gang(2)))
