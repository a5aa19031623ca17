"""The ring of decisions keeps the last ones in a bounded room."""

from __future__ import annotations

from pathlib import Path

from federator.audit.decisions import BEFORE, NAME, DecisionRing, kept_decisions
from federator.model.decision import SeenDecision
from federator.model.workload import SiteName
from tests.fakes.build import attempt


def decision(k: int) -> SeenDecision:
    return SeenDecision(
        at_s=float(k),
        attempt=attempt(k),
        pass_id=k,
        sites=(SiteName("alpine"),),
        answered=(),
        priority=1,
        within_quota=True,
        credit=0.0,
        offers=(),
    )


def kept(folder: Path) -> list[int]:
    return [int(each.at_s) for each in kept_decisions(folder)]


def test_the_last_ones_are_kept_in_bounded_room(tmp_path: Path) -> None:
    ring = DecisionRing(tmp_path, 2_000)
    for k in range(200):
        ring.append([decision(k)])
    found = kept(tmp_path)
    assert found == list(range(found[0], 200))
    assert 4 < len(found) < 100
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(sizes) <= 2_000
    assert {path.name for path in tmp_path.iterdir()} <= {NAME, BEFORE}


def test_a_torn_end_is_cut_off_before_more_is_written(tmp_path: Path) -> None:
    DecisionRing(tmp_path, 10_000).append([decision(1), decision(2)])
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:-3])
    assert kept(tmp_path) == [1]
    DecisionRing(tmp_path, 10_000).append([decision(3)])
    assert kept(tmp_path) == [1, 3]


def test_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    DecisionRing(tmp_path, 10_000).append([decision(1)])
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b"alpine", b"alpene"))
    assert kept(tmp_path) == []
    assert kept(tmp_path / "nowhere") == []
