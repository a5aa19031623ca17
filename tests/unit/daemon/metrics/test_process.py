"""The process is measured from /proc/self alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from federator.daemon.metrics.process import process_metrics
from tests.fakes.counted import values_of


def value(name: str) -> float:
    return values_of(process_metrics(), f"process_{name}")[()]


def test_the_process_is_measured_by_the_names_of_prometheus() -> None:
    before_s = time.process_time()
    assert before_s <= value("cpu_seconds_total") <= time.process_time()
    assert 1e6 < value("resident_memory_bytes") < 1e11
    assert 3 <= value("open_fds") <= value("max_fds")
    assert time.time() - 86_400 < value("start_time_seconds") <= time.time() + 1.0


def test_nothing_but_its_own_folder_of_proc_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's unit hides the rest: ``ProcSubset=pid``."""
    read = Path.read_text

    def only_own(path: Path, encoding: str | None = None) -> str:
        assert str(path).startswith("/proc/self/"), path
        return read(path, encoding)

    monkeypatch.setattr(Path, "read_text", only_own)
    assert os.path.isdir("/proc/self/fd")
    assert len(process_metrics()) == 5
