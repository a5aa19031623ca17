"""What the quickstart says of the auctions that its jobs went through."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from federator.model.score import Score

PATH = Path(__file__).parents[2] / "examples" / "quickstart.py"


@pytest.fixture
def quickstart() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quickstart", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_quickstart_names_each_term_of_a_score(quickstart: ModuleType) -> None:
    scores = {"alpine": list(Score(locality_cost=28.0, gpu_worth=8.0)), "boreal": list(Score())}
    said = quickstart.why_there({"site": "boreal", "offers": scores, "refusals": {}})
    assert said == "boreal won: alpine bid locality cost 28, gpu worth 8; boreal bid a perfect fit"
