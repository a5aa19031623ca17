"""federator data plan: reads a warehouse, tells moves and copies, refuses what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federator.cli.main import federator
from federator.errors import InvalidRequest

WAREHOUSE: dict[str, Any] = {
    "regions": [
        {"name": "west", "storage_gib": 9000, "replica_gib": 9000, "gpu_h": {"a100": 100}},
        {"name": "east", "storage_gib": 9000, "replica_gib": 9000, "gpu_h": {"a100": 100}},
    ],
    "tables": [
        {"name": "clicks", "gib": 2900, "home": "west", "partitions": 10},
        {"name": "users", "gib": 384, "home": "east"},
    ],
    "jobs": [
        {
            "name": "train",
            "tenant": "vision",
            "tables": {"clicks": 0, "users": 0},
            "priority": 2,
            "gpu_type": "a100",
            "gpu_h": 20,
        }
    ],
    "weights": {"gpus": 0, "storage": 0},
}


def run(tmp_path: Path, document: object, *options: str) -> Any:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(document))
    command = ["data", "plan", "--warehouse", str(path), "--kicks", "20", *options]
    return CliRunner().invoke(federator, command)


def test_a_plan_says_what_it_moves_and_how_good_it_is(tmp_path: Path) -> None:
    found = run(tmp_path, WAREHOUSE, "--quota-gib", "500")
    assert found.exit_code == 0, found.output
    assert "1 moves, 412 GB" in found.output
    assert (
        "users: east -> west: saves 3.5 TB/day of remote reads for vision; a100 demand of west "
        "0.00 -> 0.20 of supply; 412 GB to move" in found.output
    )
    assert "100.0 % of the best possible" in found.output


def test_the_json_has_moves_copies_and_the_certificate(tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, WAREHOUSE, "--quota-gib", "500", "--json").output)
    (move,) = found["moves"]
    assert (move["tables"], move["from"], move["to"]) == (["users"], ["east"], "west")
    assert {copy["reason"] for copy in found["copies"]} <= {"recovery", "nowhere", "hot"}
    assert found["certificate"]["of_best_frac"] == pytest.approx(1.0, abs=1e-3)
    assert set(found["certificate"]["storage_price"]) == {"west", "east"}
    assert found["nowhere"] == []


def test_the_papers_passes_alone_move_by_gain(tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, WAREHOUSE, "--paper", "--no-bound", "--json").output)
    assert [move["tables"] for move in found["moves"]] == [["clicks"]]
    assert found["certificate"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tables": [{"name": "t", "gib": 1, "home": "north"}]}, "no region 'north'"),
        ({"tables": [{"name": "t\nu", "gib": 1, "home": "west"}]}, "is no name"),
        ({"tables": [{"name": "clicks", "gib": -1, "home": "west"}]}, "no table 'users'"),
        ({"weights": {"levels": [1]}}, "7 of them in levels"),
        ({"jobs": [{"name": "j", "tables": {}}]}, "reads no table"),
        ({"regions": []}, "no region 'west'"),
        ({"size": 1}, "unknown field 'size'"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_message(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    found = run(tmp_path, {**WAREHOUSE, **change})
    assert isinstance(found.exception, InvalidRequest)
    assert message in str(found.exception)
    assert str(tmp_path / "w.json") in str(found.exception)
