"""Processes that share one event loop, and can be killed or stopped in it.

Each task belongs to the process in whose context it was made. A process that is killed has no
effects from then on: everything by which it reaches the world asks ``check`` first, so that not
even its ``finally`` blocks do anything. A process that is stopped (SIGSTOP) does nothing until it
goes on; time passes without it. Where it may die are named points, ``point``.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

from federator.errors import FederatorError
from federator.faults.clock import VirtualClock, VirtualLoop

_PROCESS: Final[ContextVar[Process | None]] = ContextVar("process", default=None)
NOBODY: Final = Context()  # of what happens outside of every process


def here() -> Process | None:
    """The process in which this is called."""
    return _PROCESS.get()


class DiskFull(OSError):
    """A simulated disk takes nothing more."""


class Killed(BaseException):
    """Raised in a process that is dead; nothing in it may catch it."""


class Process:
    """One life of a program.

    Args:
        host: where it runs; points are named within a host.
        strikes: asked at each point whether it is the one to die at.
    """

    def __init__(self, host: str, strikes: Callable[[str, str], bool]) -> None:
        self.host = host
        self.alive = True
        self.paused = False
        self._strikes = strikes
        self._tasks: list[asyncio.Task[Any]] = []
        self._frozen: list[asyncio.Handle] = []
        self._wills: list[Callable[[], None]] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of this process."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def call(self, act: Callable[..., object], *args: object) -> None:
        """Have it called in this process, soon."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        asyncio.get_running_loop().call_soon(act, *args, context=context)

    def when_dead(self, will: Callable[[], None]) -> None:
        """Have this done when it is killed: what the kernel does for it."""
        self._wills.append(will)

    def check(self) -> None:
        """Raises: Killed: it is dead."""
        if not self.alive:
            raise Killed(self.host)

    def point(self, name: str) -> None:
        """A point at which it may die.

        Raises:
            Killed: here it did, or before.
        """
        self.check()
        if self._strikes(self.host, name):
            self.die()
            raise Killed(self.host)

    def die(self) -> None:
        """Kill it, now; harmless when it is dead."""
        if not self.alive:
            return
        self.alive = False
        self.resume()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current and not task.done():
                task.cancel()
        wills, self._wills = self._wills, []
        for will in wills:
            will()

    def pause(self) -> None:
        """Stop it, as SIGSTOP does."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._frozen:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, ManyProcesses)
            frozen, self._frozen = self._frozen, []
            loop.run_soon(frozen)

    def freeze(self, handle: asyncio.Handle) -> None:
        """Have what is due wait until the process goes on."""
        self._frozen.append(handle)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task was made in it."""
        if len(self._tasks) > 64:
            self._tasks = [t for t in self._tasks if not t.done()]
        self._tasks.append(task)
        task.add_done_callback(_keep_if_it_failed, context=NOBODY)


class _OfProcess:
    """What a loop is to call for a process: not while that stands still."""

    __slots__ = ()

    def _run(self: Any) -> None:
        process: Process | None = self._context.get(_PROCESS)
        if process is not None and process.paused:
            process.freeze(self)
        else:
            super()._run()  # type: ignore[misc]  # of the handle that it is mixed into


class _Soon(_OfProcess, asyncio.Handle):
    __slots__ = ()


class _Timer(_OfProcess, asyncio.TimerHandle):
    __slots__ = ()


class ManyProcesses(VirtualLoop):
    """A loop that knows of each callback and task whose it is."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.set_task_factory(_make_task)  # type: ignore[arg-type]  # typeshed lags behind 3.11
        self.faults: list[BaseException] = []  # what nobody caught, but of the dead
        self.failed: list[asyncio.Task[Any]] = []
        self.set_exception_handler(self._take_fault)

    def _take_fault(self, _loop: asyncio.AbstractEventLoop, said: dict[str, Any]) -> None:
        self._note(said.get("exception"))

    def take_unasked(self) -> None:
        """Note as faults how tasks failed of which nobody has asked how they ended.

        asyncio says so itself when such a task is collected as garbage; when that is, is chance.
        """
        for task in self.failed:
            if task._log_traceback:  # there is no public word for it
                self._note(task.exception())
        self.failed.clear()

    def _note(self, error: BaseException | None) -> None:
        # An error on purpose was told somebody who is gone.
        expected = Killed | asyncio.CancelledError | FederatorError | DiskFull
        if error is not None and not isinstance(error, expected):
            self.faults.append(error)

    def run_soon(self, handles: Iterable[asyncio.Handle]) -> None:
        """Call these as if they were due now; not those that were cancelled."""
        self._ready.extend(handles)  # type: ignore[attr-defined]  # there is no public word for it

    # As in asyncio, but for the class of the handles. It asks the process itself: a history has
    # tens of thousands of callbacks, and each would have another around it.

    def call_soon(  # type: ignore[override]  # the same, less precisely
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Soon(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]  # the same, less precisely
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(  # type: ignore[override]  # the same, less precisely
        self,
        executor: Any,  # noqa: ARG002
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        """Do at once what a thread would do: no other clock runs here."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # it is the caller's
            done.set_exception(error)
        return done


def _keep_if_it_failed(task: asyncio.Task[Any]) -> None:
    loop = task.get_loop()
    if isinstance(loop, ManyProcesses) and task._log_traceback:
        loop.failed.append(task)


def _make_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any],
    context: Context | None = None,
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    process = _PROCESS.get() if context is None else context.get(_PROCESS)
    if process is not None:
        process.adopt(task)
    return task


def later(after_s: float, act: Callable[..., object], *args: object) -> None:
    """Have something happen in the world, whoever lives then."""
    asyncio.get_running_loop().call_later(after_s, act, *args, context=NOBODY)


def outside(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task that belongs to no process."""
    return asyncio.get_running_loop().create_task(work, context=NOBODY.copy())
