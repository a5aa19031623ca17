"""Measures this process, under the names that Prometheus's client libraries use.

The library's own collector needs /proc/stat, which the daemon's unit hides (``ProcSubset=pid``);
here /proc/self is enough.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_SELF: Final = Path("/proc/self")


def process_metrics() -> list[Metric]:
    """Its CPU time, memory, open files and start."""
    resident = int((_SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    cpu = "User and system CPU time of the process"
    return [
        CounterMetricFamily("process_cpu_seconds", cpu, value=time.process_time()),
        _gauge("resident_memory_bytes", "Resident memory of the process", resident),
        _gauge("open_fds", "Open files of the process", len(os.listdir(_SELF / "fd"))),
        _gauge("max_fds", "The most that it may open", most),
        _gauge("start_time_seconds", "Unix time at which the process began", _began_s()),
    ]


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"process_{name}", about, value=value)


def _began_s() -> float:
    ticks = (_SELF / "stat").read_text().rpartition(")")[2].split()[19]  # since boot
    began_s = int(ticks) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)
