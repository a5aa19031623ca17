"""Processes that share one event loop, and can be killed or stopped in it.

Each task belongs to the process in whose context it was made. A process that is killed has no
effects from then on: everything by which it reaches the world asks ``check`` first, so that not
even its ``finally`` blocks do anything. A process that is stopped (SIGSTOP) does nothing until it
goes on; time passes without it. Where it may die are named points, ``point``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
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


class _Callback:
    """A callback of a process: one that was cancelled is not called, also once it was frozen."""

    __slots__ = ("_act", "_args", "handle")

    def __init__(self, act: Callable[..., object], args: tuple[object, ...]) -> None:
        self._act = act
        self._args = args
        self.handle: asyncio.Handle  # set by the loop that made it

    def __call__(self) -> None:
        if not self.handle.cancelled():
            self._act(*self._args)


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
        self._frozen: deque[tuple[Callable[[], object], Context]] = deque()
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
        loop = asyncio.get_running_loop()
        while self._frozen:
            act, context = self._frozen.popleft()
            loop.call_soon(act, context=context)

    def run(self, act: Callable[[], object]) -> None:
        """Let a callback of this process run, or wait until the process goes on."""
        if self.paused:
            self._frozen.append((act, copy_context()))
        else:
            act()

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task was made in it."""
        if len(self._tasks) > 64:
            self._tasks = [t for t in self._tasks if not t.done()]
        self._tasks.append(task)
        task.add_done_callback(_keep_if_it_failed, context=NOBODY)


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

    def call_soon(  # type: ignore[override]  # the same, less precisely
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        due = _Callback(callback, args)
        due.handle = super().call_soon(process.run, due, context=context)
        return due.handle

    def call_at(  # type: ignore[override]  # the same, less precisely
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        due = _Callback(callback, args)
        due.handle = super().call_at(when, process.run, due, context=context)
        return due.handle

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
