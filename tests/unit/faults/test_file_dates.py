"""Files of a simulated site have its own dates."""

from __future__ import annotations

from pathlib import Path

from federator.faults.clock import VirtualClock
from federator.faults.file_dates import FileDates


def test_files_have_the_dates_at_which_the_sites_clock_saw_them(tmp_path: Path) -> None:
    clock = VirtualClock(1_000.0)
    dates = FileDates(clock)
    for at_s, name in ((1_000.0, "one"), (2_000.0, "two")):
        clock.now_s = at_s
        (tmp_path / name).write_text("")
        dates.date(tmp_path)
    assert {p.name: p.stat().st_mtime for p in tmp_path.iterdir()} == {"one": 1e3, "two": 2e3}
    clock.now_s = 3_000.0
    (tmp_path / "one").write_text("anew")
    dates.date(tmp_path, tmp_path / "missing")
    assert (tmp_path / "one").stat().st_mtime == 3_000.0
    assert (tmp_path / "two").stat().st_mtime == 2_000.0
