"""What evictions take of a budget that is bounded in GPUs and in work that is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.event import decode_event, encode_event
from federator.policies.mast import Mast
from federator.sched.passes.eviction import prices_of
from federator.sched.state.preemption_cost import SAVE_EVERY_S
from federator.sched.state.rules import Rules
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_claims import (
    GUEST,
    OWNER,
    RULES,
    RUNS,
    WAITS,
    WINDOW_S,
    evictions,
    guests_on,
    of,
)

# One that has just started is predicted to lose 15 min and two start-ups of 150 s on each GPU.
LOST_S = SAVE_EVERY_S / 2 + 300.0
PER_GUEST_GPU_S = 8 * LOST_S


def fleet(most_guests: float, gpus: float = 64.0) -> Loopback:
    """Eight nodes of 8 GPUs; a window may lose the work of so many guests of 8 GPUs."""
    rules = replace(RULES, preempt_gpus=gpus, preempt_lost_gpu_s=most_guests * PER_GUEST_GPU_S)
    return Loopback({"alpine": rack("a", 8)}, rules, None, Mast(), (OWNER, GUEST))


def test_the_work_that_a_window_may_lose_bounds_its_evictions() -> None:
    f = fleet(most_guests=2.0)
    guests_on(f)
    began_s = f.clock.now_s
    owner = f.submit(of("owner", nodes=6))
    f.run_for(5.0)
    promised_by_s = f.federation.ledger.claims[owner].promised_by_s
    assert len(evictions(f)) == 2  # of six that 64 GPUs would allow
    f.run_for(WINDOW_S - 20.0)
    assert len(evictions(f)) == 2
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=4 * WINDOW_S)
    # By then it is known that guests save on notice, and so lose little.
    assert WINDOW_S <= f.clock.now_s - began_s <= WINDOW_S + RULES.grace_s
    assert f.clock.now_s <= promised_by_s


def test_a_victim_that_loses_more_than_a_window_may_takes_as_many_windows() -> None:
    f = fleet(most_guests=0.5)
    guests_on(f)
    owners = [f.submit(of("owner")) for _ in range(2)]
    f.run_for(20.0)
    assert sorted(f.state(id_).value for id_ in owners) == sorted([RUNS.value, WAITS.value])
    f.run_for(2 * WINDOW_S - 60.0)
    assert len(evictions(f)) == 1
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in owners), limit_s=120.0)


def test_gpus_bound_them_where_little_work_is_lost() -> None:
    f = fleet(most_guests=100.0, gpus=16.0)
    guests_on(f)
    f.submit(of("owner", nodes=6))
    f.run_for(5.0)
    assert len(evictions(f)) == 2
    assert [e.gpus for e in f.federation.ledger.evictions.within] == [8, 8]


def test_what_an_eviction_counted_is_in_the_log() -> None:
    f = fleet(most_guests=2.0)
    guests_on(f)
    f.submit(of("owner"))
    f.run_for(5.0)
    (told,) = evictions(f)
    assert decode_event(encode_event(told)) == told
    assert told.counts_gpus == pytest.approx(32, abs=1)  # half of the 64
    before = f.federation.ledger.evictions.within
    f.compact()
    f.restart()
    assert f.federation.ledger.evictions.within == before


def test_without_a_bound_on_lost_work_a_victim_counts_what_it_holds() -> None:
    f = Loopback({"alpine": rack("a", 8)}, RULES, None, Mast(), (OWNER, GUEST))
    (guest, *_) = guests_on(f)
    prices = prices_of(f.federation.ledger, Rules(preempt_gpus=16), 64, f.clock.now_s)
    assert prices.counted_gpus(f.entry(guest)) == 8
    assert evictions(f) == []
