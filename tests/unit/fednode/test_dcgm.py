"""DCGM's mapping files: there while a job runs, gone after it, right for those who share a GPU."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fednode import dcgm
from hypothesis import given, settings
from hypothesis import strategies as st


def read(folder: Path) -> dict[str, list[str]]:
    """What dcgm-exporter reads: files whose names are numbers, a job a line."""
    return {f.name: f.read_text().splitlines() for f in folder.iterdir() if f.name.isdigit()}


def test_each_gpu_names_its_jobs_until_they_are_over(tmp_path: Path) -> None:
    folder = tmp_path / "map"
    dcgm.write(str(folder), (0, 3), 7)
    dcgm.write(str(folder), (3,), 8)
    dcgm.write(str(folder), (3,), 8)
    assert read(folder) == {"0": ["7"], "3": ["7", "8"]}
    assert (folder / "0").stat().st_mode & 0o777 == 0o644
    dcgm.remove(str(folder), 7)
    assert read(folder) == {"3": ["8"]}
    dcgm.remove(str(folder), 8)
    assert read(folder) == {}


def test_removing_where_nothing_was_written_is_harmless(tmp_path: Path) -> None:
    dcgm.remove(str(tmp_path / "absent"), 7)
    (tmp_path / "README").write_text("7\n")
    dcgm.remove(str(tmp_path), 7)
    assert (tmp_path / "README").exists()


def test_the_directory_may_name_the_node() -> None:
    assert dcgm.directory("/run/map/%n", "n1") == "/run/map/n1"
    assert dcgm.directory("/run/map", "n1") == "/run/map"


@settings(max_examples=30, deadline=None)  # a busy disk is no fault
@given(st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 3), max_size=4))))
def test_any_order_of_starts_and_ends_leaves_no_file_behind(
    jobs: list[tuple[int, set[int]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for job, gpus in jobs:
            dcgm.write(folder, gpus, job)
        for job, _ in jobs:
            dcgm.remove(folder, job)
        assert read(Path(folder)) == {}
