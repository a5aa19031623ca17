"""Gives each process of a parallel run a testbed of its own, and says where its time went.

Under pytest-xdist the first worker uses the testbed that ``./test`` brought up; each other one
makes three containers more, beside those, and removes them at its end. It must be settled before
anything imports ``federator.testbed``, which reads these variables once.
"""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.slow_tests import names
from tests.turns import suiting, turn_of

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
_IS_SIDE = _WORKER != "gw0"

if _IS_SIDE:
    usual = os.environ.get("FEDERATOR_TESTBED_DIR") or Path(__file__).parents[1] / ".testbed"
    name = os.environ.get("FEDERATOR_TESTBED_NAME")
    os.environ["FEDERATOR_TESTBED_NAME"] = f"{name}-{_WORKER}" if name else _WORKER
    os.environ["FEDERATOR_TESTBED_DIR"] = str(Path(usual).resolve() / "side" / _WORKER)


# A run judges the change, not the draw: examples follow from the test's own text. Others are
# looked for by ``./test explore``. No test judges by wall time.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("repeatable")

_LONG_RUN_S = 300.0  # of tests; a shorter run says nothing of its times
_SLOWEST = 25
_CPU = "cpu_s"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the tests, neither while they are collected nor later.

    They and the modules they import, millions of objects, stay for the whole run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()  # once, and of what it leaves no more
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tiers one after the other, of each the long files first; a file's tests as they are."""
    items.sort(key=lambda item: turn_of(item.path))
    slow = names()
    for item in items:
        if item.nodeid.removeprefix("tests/").partition("[")[0] in slow:
            item.add_marker("slow")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of ``--dist loadfile``: as pytest-xdist does it, but for the choice of the next file."""
    return suiting(config, log) if config.option.dist == "loadfile" else None


class Crashes:
    """Makes a run that a dead worker has cut short an interrupted one: the rest was not tried.

    Its exit status would be that of a run to the end, in which one test failed.
    """

    crashed = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self) -> None:
        self.crashed = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        if self.crashed:
            session.exitstatus = pytest.ExitCode.INTERRUPTED


class _Failures:
    """Says at once what failed, and how busy the machine was: of a long log often a part is read.

    Args:
        say: writes a line to the terminal.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = str(report.longrepr) if crash is None else crash.message
            self._say(f"\n{report.nodeid}: {' '.join(said.split())[:500]} [{_busy()}]")


def _busy() -> str:
    """The load, and the share of the last minute in which work waited for each resource."""
    load = "/".join(f"{of:.1f}" for of in os.getloadavg())
    waits = [f"{of.stem} {_waited(of)}" for of in sorted(Path("/proc/pressure").glob("*"))]
    return f"load {load}; waited for {', '.join(waits)}"


def _waited(pressure: Path) -> str:
    """E.g. ``12.50 %``, of the kernel's pressure-stall information."""
    try:
        some, *_ = pressure.read_text().splitlines()
    except (OSError, ValueError):
        return "unknown"
    return dict(word.split("=") for word in some.split()[1:]).get("avg60", "unknown") + " %"


class _Cpu:
    """Adds to each report the CPU seconds since the one before: this process and ended children.

    What runs in containers is no child. A daemon counts where it is stopped.
    """

    def __init__(self) -> None:
        self._seen_s = 0.0

    def pytest_collection_finish(self) -> None:
        self._seen_s = sum(os.times()[:4])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = sum(os.times()[:4])
        report.user_properties.append((_CPU, now_s - self._seen_s))
        self._seen_s = now_s
        return report


class _Times:
    """Says at the end where the time of a run went: by tier, and the files that took longest."""

    def __init__(self) -> None:
        self._by_file: defaultdict[str, float] = defaultdict(float)
        self._cpu: defaultdict[str, float] = defaultdict(float)  # by file, and by tier
        self._by_tier: defaultdict[str, float] = defaultdict(float)
        self._ends: dict[str, float] = {}  # of tiers, in the order in which they end
        self._began_s = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.split("::")[0]
        tier = file.removeprefix("tests/").split("/")[0]
        cpu_s = sum(float(str(value)) for name, value in report.user_properties if name == _CPU)
        self._by_file[file] += report.duration
        self._by_tier[tier] += report.duration
        self._cpu[file] += cpu_s
        self._cpu[tier] += cpu_s
        self._ends.pop(tier, None)
        self._ends[tier] = time.monotonic() - self._began_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(self._by_file.values()) < _LONG_RUN_S:
            return
        write = terminalreporter.write_line
        terminalreporter.section("where the time went")
        for tier, end_s in self._ends.items():
            write(f"{tier}: {self._shown(tier, self._by_tier[tier])}, last test at {end_s:.0f} s")
        for file, took_s in sorted(self._by_file.items(), key=lambda each: -each[1])[:_SLOWEST]:
            write(f"{self._shown(file, took_s)} {file}")

    def _shown(self, of: str, took_s: float) -> str:
        return f"{took_s:7.0f} s, CPU {self._cpu[of]:5.0f} s"


@pytest.hookimpl(trylast=True)  # the terminal is there then
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    config.pluginmanager.register(_Cpu())
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(terminal.write_line))
        config.pluginmanager.register(_Times())
        config.pluginmanager.register(Crashes())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove what a side testbed left running."""
    if _IS_SIDE and any("tests/slurm" in str(item.path) for item in session.items):
        from federator.testbed import cluster  # noqa: PLC0415 - see the module's docstring
        from federator.testbed.layout import StateDir  # noqa: PLC0415

        cluster.down(StateDir.default())
