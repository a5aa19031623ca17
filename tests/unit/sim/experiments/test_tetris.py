"""The experiment on data placement: a row of figures for each version."""

from __future__ import annotations

import pytest

from federator.sim.experiments.base import run_here
from federator.sim.experiments.tetris import VERSIONS, TetrisExperiment


@pytest.mark.slow
def test_each_version_has_its_figures_and_planned_ones_move_tables() -> None:
    experiment = TetrisExperiment(tables=150, regions=4, jobs=80, days=2, draws=1, quota_frac=0.2)
    table = run_here(experiment, 0).table("versions")
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert tuple(rows) == VERSIONS
    assert rows["V0"]["moved_frac"] == 0.0
    assert 0.0 < float(rows["ours"]["moved_frac"] or 0) <= 0.4 + 1e-9
    for name in VERSIONS:
        assert 0.0 <= float(rows[name]["home_frac"] or 0) <= 1.0
        assert float(rows[name]["with_copies_frac"] or 0) >= float(
            rows[name]["collocated_frac"] or 0
        )
