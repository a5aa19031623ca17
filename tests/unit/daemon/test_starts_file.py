"""What was learned of estimated starts outlives a daemon, and its file can harm none."""

from __future__ import annotations

import asyncio
import threading
import time
from math import inf, nan
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from federator.config import load_config
from federator.daemon.daemon import Daemon
from federator.daemon.edges import DaemonEdges
from federator.daemon.start_forecasts import StartForecasts
from federator.daemon.starts_file import MOST_BYTES, NOWHERE, SAVE_S, StartsFile, starts_file
from federator.sched.starts.calibration import SavedCalibration, Wait
from federator.store.memory import MemoryStore
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_start import CONFIG

GIVEN = Wait(0.0, 10.0, 100.0)
KEPT = SavedCalibration(parts=(("size 1", 0.25, -0.5, 0.5, 7),), hits="1101", judged=9)


def forecasts(file: StartsFile) -> tuple[Loopback, StartForecasts]:
    f = Loopback({"alpine": rack("a", 1)}, duration_s=600.0)
    return f, StartForecasts(f.federation, f.clock, f.clock, kept=file)


def test_what_was_kept_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    StartsFile(path).write(KEPT)
    assert StartsFile(path).read() == KEPT
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["starts.json"]


def test_it_stands_beside_a_log_that_is_a_file(tmp_path: Path) -> None:
    starts_file(f"sqlite://{tmp_path}/queue.db").write(KEPT)
    assert [each.name for each in tmp_path.iterdir()] == ["queue-starts.json"]
    assert starts_file("redis://host") is starts_file("memory:") is NOWHERE
    NOWHERE.write(KEPT)
    assert NOWHERE.read() == SavedCalibration()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"schema": 3, "calibration": {}}',
        b" " * (MOST_BYTES + 1),
        b'{"schema": 2, "calibration": {"parts": [["all", "wide", 0, 0, 1]]}}',
        b'{"schema": 2, "calibration": {"judged": -30}}',
        b'{"schema": 2, "calibration": {"parts": [["all", 0, 0, 0, -1]], "judged": 30}}',
        b'{"schema": 2, "calibration": {"parts": [["all", null, 0, 0, 1]], "judged": 30}}',
    ],
    ids=["empty", "torn", "binary", "newer", "large", "other", "owed", "part owed", "no number"],
)
def test_a_spoilt_file_means_to_start_anew(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "starts.json"
    path.write_bytes(text)
    with capture_logs() as logged:
        _, starts = forecasts(StartsFile(path))
    assert starts.row().judged == 0
    assert [line["event"] for line in logged] == ["starts_file_unread"]
    starts.estimates.calibration.judge(GIVEN, (), 50.0)
    starts.learned.save()
    assert StartsFile(path).read().judged == 1


def test_a_file_that_cannot_be_written_is_logged_once(tmp_path: Path) -> None:
    file = StartsFile(tmp_path / "gone" / "starts.json")
    with capture_logs() as logged:
        file.write(KEPT)
        file.write(KEPT)
    assert [line["event"] for line in logged] == ["starts_file_unwritten"]


@pytest.mark.parametrize("part", [nan, inf, -inf])
def test_a_part_that_is_not_finite_is_refused(part: float) -> None:
    """It would be written as null, and a file with null in it is not read."""
    for at in range(3):
        shift, early, late = (part if k == at else 0.0 for k in range(3))
        with pytest.raises(ValueError, match="not all finite"):
            SavedCalibration(parts=(("all", shift, early, late, 1),))


def test_what_is_written_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, there = tmp_path / "starts.json", list[bool]()
    monkeypatch.setattr("os.fsync", lambda _: there.append(path.exists()))
    StartsFile(path).write(KEPT)
    assert there == [False]


def test_a_write_that_comes_late_does_not_replace_what_was_learned_since(tmp_path: Path) -> None:
    file = StartsFile(tmp_path / "starts.json")
    file.write(KEPT)
    file.write(SavedCalibration(judged=KEPT.judged - 1))
    assert file.read() == KEPT


def test_a_look_writes_in_a_thread_and_the_end_of_a_term_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StartsFile(tmp_path / "starts.json")
    _, starts = forecasts(file)
    threads: list[int] = []
    monkeypatch.setattr(file, "write", lambda _: threads.append(threading.get_ident()))
    starts.estimates.calibration.judge(GIVEN, (), 50.0)
    asyncio.run(starts.look())
    starts.estimates.calibration.judge(GIVEN, (), 50.0)
    starts.learned.save()
    beside, own = threads
    assert beside != own == threading.get_ident()


def test_a_look_keeps_what_was_learned_a_minute_at_the_least_apart(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    f, starts = forecasts(StartsFile(path))

    def learn_and_look() -> int:
        starts.estimates.calibration.judge(GIVEN, (), 50.0)
        asyncio.run(starts.look())
        return StartsFile(path).read().judged

    assert learn_and_look() == 1
    assert learn_and_look() == 1
    f.run_for(SAVE_S)
    assert learn_and_look() == 3
    _, later = forecasts(StartsFile(path))
    assert later.row() == starts.row()


def test_the_next_daemon_goes_on_with_what_the_last_has_learned(tmp_path: Path) -> None:
    config = tmp_path / "federation.yaml"
    config.write_text(CONFIG)
    path = tmp_path / "starts.json"

    async def lead(learned: int) -> int:
        edges = DaemonEdges(starts=StartsFile(path))
        daemon = Daemon(load_config(config), MemoryStore(), edges=edges)
        task = asyncio.create_task(daemon.run())
        until_s = time.monotonic() + 10.0
        while daemon.term is None:
            assert time.monotonic() < until_s
            await asyncio.sleep(0)
        calibration = daemon.term._starts.estimates.calibration
        known = calibration.judged
        for _ in range(learned):
            calibration.judge(GIVEN, (), 50.0)
        daemon.stop()
        await task
        return known

    assert asyncio.run(lead(3)) == 0
    assert asyncio.run(lead(0)) == 3
