"""Simulated processes in one loop: what a stopped one may do once it goes on."""

from __future__ import annotations

import asyncio

from federator.faults.clock import VirtualClock
from federator.faults.process import ManyProcesses, Process


def stopped_at_a_time_limit(*, data_first: bool) -> list[str]:
    """What a process does that waits for data for 5 s, is stopped meanwhile, and then goes on."""
    said: list[str] = []
    process = Process("host", lambda _host, _point: False)

    async def world() -> None:
        loop = asyncio.get_running_loop()
        data: asyncio.Future[None] = loop.create_future()

        async def wait_for_data() -> None:
            try:
                async with asyncio.timeout(5.0):
                    await data
                said.append("data")
            except TimeoutError:
                said.append("time is over")

        process.spawn(wait_for_data())
        loop.call_later(1.0, process.pause)
        loop.call_later(2.0 if data_first else 6.0, data.set_result, None)
        loop.call_later(7.0, process.resume)
        await asyncio.sleep(8.0)

    clock = VirtualClock()
    loop = ManyProcesses(clock)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(world())
    assert not loop.faults
    return said


def test_a_timer_that_was_cancelled_in_a_stopped_process_does_nothing_once_it_goes_on() -> None:
    assert stopped_at_a_time_limit(data_first=True) == ["data"]


def test_a_timer_that_came_first_in_a_stopped_process_counts() -> None:
    assert stopped_at_a_time_limit(data_first=False) == ["time is over"]
