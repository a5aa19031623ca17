"""Work beside the daemon's turns does not end unnoticed."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from federator.daemon.beside import run_beside

pytestmark = pytest.mark.asyncio


class Work:
    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault

    async def run(self) -> None:
        if self.fault is not None:
            raise self.fault
        await asyncio.Event().wait()


async def test_a_fault_that_ends_it_is_logged_while_the_daemon_goes_on() -> None:
    fault = KeyError("alpine")
    with capture_logs() as logs:
        task = run_beside(Work(fault))
        await asyncio.wait({task})
        await asyncio.sleep(0)
    expected = {"event": "task_fault", "log_level": "error", "task": "Work", "exc_info": fault}
    assert logs == [expected]


async def test_a_task_has_the_name_of_its_work_or_of_its_class() -> None:
    named = Work()
    named.name = "Work quotas"  # type: ignore[attr-defined]
    tasks = [run_beside(each) for each in (Work(), named)]
    assert [task.get_name() for task in tasks] == ["Work", "Work quotas"]
    for task in tasks:
        task.cancel()


async def test_that_it_is_cancelled_is_no_fault() -> None:
    with capture_logs() as logs:
        task = run_beside(Work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0)
    assert logs == []
