"""The experiment on data placement: later versions are better at what they look at."""

from __future__ import annotations

import pytest

from federator.sim.experiments.base import run_here
from federator.sim.experiments.tetris import VERSIONS, TetrisExperiment


@pytest.mark.slow
def test_planned_placement_is_better_balanced_than_that_by_hand() -> None:
    experiment = TetrisExperiment(tables=150, regions=4, jobs=80, days=2, draws=1, quota_frac=0.2)
    table = run_here(experiment, 0).table("versions")
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert tuple(rows) == VERSIONS
    assert rows["V0"]["moved_frac"] == 0.0
    for version in ("V1", "V2", "ours"):
        assert 0.0 < float(rows[version]["moved_frac"] or 0) <= 0.4 + 1e-9
        assert float(rows[version]["load_deviation"] or 0) <= float(
            rows["V0"]["load_deviation"] or 0
        )
