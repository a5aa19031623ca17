"""``federator faults``: what can be asked for together, and what is said when a promise breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from federator.cli.faults import faults
from federator.faults.history import HistoryEnd


def test_stories_are_not_dropped_silently_where_json_is_asked_for() -> None:
    done = CliRunner().invoke(faults, ["--histories", "1", "--verbose", "--json"])
    assert done.exit_code == 2
    assert "choose one" in done.output


def test_a_broken_promise_is_told_at_once_so_that_a_run_may_be_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def one_breaks(seeds: range, processes: int) -> Iterator[HistoryEnd]:
        assert (seeds, processes) == (range(7, 10), 1)
        yield HistoryEnd(
            seed=7,
            broken=("4 runs twice",),
            struck=Counter(),
            counts=Counter(),
            digest="",
            lasted_s=0.0,
            story=(),
        )
        raise KeyboardInterrupt

    monkeypatch.setattr("federator.cli.faults.run_histories", one_breaks)
    done = CliRunner().invoke(faults, ["--histories", "3", "--seed", "7", "--processes", "1"])
    assert done.exit_code != 0
    assert "seed 7: 4 runs twice" in done.output
