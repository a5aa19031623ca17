"""Runs what has no end beside the daemon's turns, and logs the fault that ends it all the same."""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

log = structlog.get_logger()


class Endless(Protocol):
    """Work that goes on until it is cancelled."""

    async def run(self) -> None: ...


def run_beside(work: Endless) -> asyncio.Task[None]:
    """Start it. Nobody awaits its task: an exception that ends it is logged at once.

    The task has its ``name`` if it has one, else its class's.
    """
    task = asyncio.create_task(work.run(), name=getattr(work, "name", type(work).__name__))
    task.add_done_callback(_log_fault)
    return task


def _log_fault(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task_fault", task=task.get_name(), exc_info=error)
