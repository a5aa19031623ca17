"""``federator data plan`` without a file: the plan that the daemon has."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from federator.cli import data, data_live_plan
from federator.errors import InvalidRequest
from federator.model.data_placement import DataPlacement, MovedSet, PlannedMove
from federator.wire.client_protocol import ErrorReply
from federator.wire.data_rows import DataPlanReply
from federator.wire.replies import Reply

GIB = 2**30
WHY = "wiki@1: west -> east: saves 3.1 TB/day of remote reads for vision; 412 GB to move"
SETS = (MovedSet("wiki", "1", 384 * GIB),)
PLAN = DataPlacement(
    made_at_s=1000.0,
    expires_at_s=9000.0,
    moves=(
        PlannedMove(sets=SETS, to="east", home=True, why=WHY),
        PlannedMove(sets=(MovedSet("maps", "1", GIB),), to="west", why="maps\x1b[2J"),
    ),
    data_sets=7,
    jobs=3,
    cost_before=200.0,
    cost_after=102.7,
    bound=100.0,
    nowhere=1,
)
SHOWN = DataPlanReply(
    planning="automatic",
    plan=PLAN,
    progress=((1, 0), (0, 1)),
    quota_bytes=1024 * GIB,
    moved_bytes=385 * GIB,
    now_s=1600.0,
)


def run(monkeypatch: pytest.MonkeyPatch, reply: Reply, *words: str) -> str:
    monkeypatch.setattr(data_live_plan, "call", lambda _call: reply)
    found = CliRunner().invoke(data.data, ["plan", *words], catch_exceptions=False)
    assert found.exit_code == 0
    return found.output


def test_each_move_says_why_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run(monkeypatch, SHOWN).splitlines()
    assert lines[0] == (
        "2 moves, 385.0 GiB (automatic; made 10 min ago from 7 data sets and 3 kinds of jobs); "
        "385.0 of 1024.0 GiB begun in 24 h"
    )
    assert lines[1] == f"{WHY} [done]"
    assert "\x1b" not in lines[2]
    assert lines[2].endswith("[0 of 1 there, 1 copied now]")
    assert lines[3] == "kinds of jobs that can run nowhere even then: 1"
    assert lines[4].startswith("97.3 % of the best possible: cost 200 -> 102.7")
    assert run(monkeypatch, SHOWN, "--most", "1").splitlines()[2] == "and 1 more"


def test_without_a_plan_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    off = DataPlanReply(planning="off")
    assert "data.planning is off" in run(monkeypatch, off)
    none = DataPlanReply(planning="advisory", quota_bytes=GIB)
    assert "does federator planner run?" in run(monkeypatch, none)
    assert json.loads(run(monkeypatch, none, "--json"))["plan"] is None


def test_as_json_all_of_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, SHOWN, "--json"))
    assert (found["schema"], found["moved_bytes"]) == (1, 385 * GIB)
    assert found["plan"]["of_best_frac"] == pytest.approx(0.973)
    first = found["plan"]["moves"][0]
    assert (first["sets"], first["to"], first["home"]) == (["wiki@1"], "east", True)
    assert (first["bytes"], first["there"], first["copied"]) == (384 * GIB, 1, 0)


def test_who_may_not_see_it_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="may not see"):
        run(monkeypatch, ErrorReply(message="ada may not see the plan of all data sets"))


def test_options_of_a_plan_from_a_file_need_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="--warehouse"):
        run(monkeypatch, SHOWN, "--paper")
