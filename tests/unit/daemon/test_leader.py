"""One daemon leads: a standby waits, takes over, and a leader whose lease is over does nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from math import inf
from typing import Any

import pytest

from federator.daemon.leader import HUNG_S, TRY_S, Leadership, in_a_thread
from federator.errors import LeadershipLost, StoreError
from federator.faults.clock import VirtualClock, run_virtual
from federator.store.chain import LogPlace
from federator.store.memory import MemoryLog, MemoryStore

LEASE_S = 3.0


class Shaky:
    """A store on a shared log that may fail, or not answer."""

    def __init__(self, log: MemoryLog, clock: VirtualClock) -> None:
        self._store = MemoryStore(log)
        self._clock = clock
        self.fails: StoreError | None = None
        self.hangs = False
        self.renewal_takes_s = 0.0

    def lead(self, at_least: int) -> int | None:
        self._try()
        return self._store.lead(at_least)

    def renew(self) -> float:
        self._try()
        return self._store.renew()

    def append(self, records: Sequence[bytes]) -> None:
        self._store.append(records)

    def records(self) -> Iterator[bytes]:
        return self._store.records()

    def read_on(self, place: LogPlace | None) -> Generator[tuple[LogPlace, bytes]]:
        return self._store.read_on(place)

    def leader(self) -> str:
        return self._store.leader()

    def compact(self, records: Sequence[bytes]) -> None:
        self._store.compact(records)

    def close(self) -> None:
        self._store.close()

    def _try(self) -> None:
        if self.fails is not None:
            raise self.fails

    async def act(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Stands for a thread; what hangs does so without holding up the loop."""
        if self.hangs:
            await asyncio.Event().wait()
        answer = call(*arguments)
        await asyncio.sleep(self.renewal_takes_s)
        return answer


class Two:
    """Two claims on one log."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        log = MemoryLog(LEASE_S, self.clock)
        self.stores = [Shaky(log, self.clock) for _ in range(2)]
        self.first, self.second = (Leadership(s, self.clock, s.act) for s in self.stores)
        self.stood_by = 0
        self.stopping = asyncio.Event()

    async def gain(self, leadership: Leadership) -> int | None:
        async def stand_by() -> bool:
            self.stood_by += 1
            return True

        return await leadership.gain(lambda: int(self.clock()), stand_by, self.stopping)


async def kept(leadership: Leadership) -> None:
    """Keep the lead of a process that is alive."""
    living = asyncio.create_task(leadership.show_life())
    try:
        await leadership.keep()
    finally:
        living.cancel()


def play(script: Callable[[Two], Coroutine[Any, Any, None]]) -> None:
    two = Two()
    run_virtual(two.clock, script(two))


def test_the_first_leads_at_once_and_the_second_when_the_lease_is_over() -> None:
    async def script(two: Two) -> None:
        assert await two.gain(two.first) == int(two.clock())
        began_s = two.clock()
        assert two.first.holds
        epoch = await two.gain(two.second)
        assert LEASE_S <= two.clock() - began_s <= LEASE_S + TRY_S
        assert epoch is not None
        assert epoch > began_s
        assert two.second.holds
        assert not two.first.holds

    play(script)


def test_who_renews_leads_on() -> None:
    async def script(two: Two) -> None:
        await two.gain(two.first)
        keeping = asyncio.create_task(kept(two.first))
        waiting = asyncio.create_task(two.gain(two.second))
        await asyncio.sleep(60.0)
        assert two.first.holds
        assert not waiting.done()
        assert two.stood_by >= 60.0 / TRY_S
        keeping.cancel()
        waiting.cancel()

    play(script)


def test_the_lease_is_over_here_before_another_can_have_it() -> None:
    """The store counts from when it grants; this process from before it asks."""

    async def script(two: Two) -> None:
        two.stores[0].renewal_takes_s = 0.7
        asked_s = two.clock()
        await two.gain(two.first)
        two.clock.now_s = asked_s + 0.7 + LEASE_S + 0.01
        assert not two.first.holds
        two.clock.now_s = asked_s + 0.7 + LEASE_S - 0.01
        assert two.first.holds

    play(script)


def test_a_leader_that_was_stopped_for_longer_than_its_lease_does_not_go_on() -> None:
    async def script(two: Two) -> None:
        await two.gain(two.first)
        two.clock.advance(LEASE_S)
        assert not two.first.holds
        with pytest.raises(LeadershipLost, match="the lease ran out"):
            two.first.check()

    play(script)


def test_a_leader_that_another_has_replaced_hears_so_from_the_store() -> None:
    async def script(two: Two) -> None:
        await two.gain(two.first)
        await two.gain(two.second)
        two.first._until_s = inf  # as if its clock had stood still: a virtual machine on hold
        assert two.first.holds
        with pytest.raises(LeadershipLost, match=r"epoch .* leads"):
            await kept(two.first)
        assert not two.first.holds

    play(script)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_store_that_does_not_answer_ends_the_leader_with_its_lease(hangs: bool) -> None:
    async def script(two: Two) -> None:
        await two.gain(two.first)
        began_s = two.clock()
        two.stores[0].hangs = hangs
        two.stores[0].fails = StoreError("connection refused")
        reason = "no answer" if hangs else "connection refused"
        with pytest.raises(LeadershipLost, match=f"the lease ran out .*{reason}"):
            await kept(two.first)
        assert two.clock() - began_s == pytest.approx(LEASE_S)

    play(script)


def test_a_store_that_is_away_for_less_than_the_lease_ends_nobody() -> None:
    async def script(two: Two) -> None:
        await two.gain(two.first)
        keeping = asyncio.create_task(kept(two.first))
        for _ in range(20):
            two.stores[0].fails = StoreError("connection refused")
            await asyncio.sleep(LEASE_S - 1.5)
            two.stores[0].fails = None
            await asyncio.sleep(1.5)
            assert two.first.holds
            assert not keeping.done()
        keeping.cancel()

    play(script)


def test_a_log_that_cannot_be_led_is_told_at_once() -> None:
    async def script(two: Two) -> None:
        two.stores[0].fails = StoreError("appendfsync is everysec")
        with pytest.raises(StoreError, match="appendfsync"):
            await two.gain(two.first)

    play(script)


def test_a_standby_outlasts_a_store_that_is_away() -> None:
    async def script(two: Two) -> None:
        await two.gain(two.first)
        waiting = asyncio.create_task(two.gain(two.second))
        await asyncio.sleep(TRY_S)
        two.stores[1].fails = StoreError("connection refused")
        await asyncio.sleep(60.0)
        assert not waiting.done()
        two.stores[1].fails = None
        await asyncio.sleep(TRY_S)
        assert waiting.result() is not None

    play(script)


def test_a_standby_that_is_told_to_stop_stops() -> None:
    async def script(two: Two) -> None:
        await two.gain(two.first)
        keeping = asyncio.create_task(kept(two.first))
        waiting = asyncio.create_task(two.gain(two.second))
        await asyncio.sleep(10.0)
        two.stopping.set()
        assert await waiting is None
        keeping.cancel()

    play(script)


def test_a_leader_that_closes_its_store_is_followed_at_once() -> None:
    async def script(two: Two) -> None:
        await two.gain(two.first)
        waiting = asyncio.create_task(two.gain(two.second))
        await asyncio.sleep(0.1)
        two.stores[0].close()
        await asyncio.sleep(TRY_S)
        assert waiting.result() is not None

    play(script)


def test_a_daemon_that_hangs_is_not_kept_in_the_lead() -> None:
    """Renewals may run beside its event loop; they are not to go on for a loop that is stuck."""

    async def script(two: Two) -> None:
        await two.gain(two.first)
        began_s = two.clock()
        with pytest.raises(LeadershipLost, match="the daemon hung"):
            await two.first.keep()  # nobody shows life
        assert HUNG_S < two.clock() - began_s < HUNG_S + 1.5
        assert await two.gain(two.second) is not None
        assert two.clock() - began_s <= HUNG_S + 1.5 + LEASE_S + TRY_S

    play(script)


def test_what_keeps_the_lead_is_not_held_up_by_a_long_turn() -> None:
    renewed = threading.Event()

    async def work() -> None:
        renewed.set()

    async def script() -> None:
        beside = asyncio.create_task(in_a_thread(work))
        await asyncio.sleep(0)
        assert renewed.wait(10.0)  # this event loop does nothing else meanwhile
        await beside

    asyncio.run(script())


def test_what_ends_it_is_told_while_a_call_of_the_store_hangs() -> None:
    hangs = threading.Event()

    async def work() -> None:
        renewal = asyncio.create_task(asyncio.to_thread(hangs.wait, 20.0))
        await asyncio.sleep(0)
        renewal.cancel()
        raise LeadershipLost("the lease ran out")

    async def script() -> None:
        try:
            async with asyncio.timeout(10.0):
                await in_a_thread(work)
        finally:
            hangs.set()

    with pytest.raises(LeadershipLost, match="the lease ran out"):
        asyncio.run(script())


def test_what_ends_it_in_its_thread_is_told() -> None:
    async def work() -> None:
        raise LeadershipLost("epoch 7 leads")

    with pytest.raises(LeadershipLost, match="epoch 7"):
        asyncio.run(in_a_thread(work))
