"""``federator log decide``: an award made again, and compared with the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from federator.audit.decisions import DecisionRing
from federator.cli.log import log
from federator.errors import InvalidRequest
from federator.model.event import Awarded, encode_event
from federator.model.workload import SiteName
from federator.store.opening import open_store
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback


@pytest.fixture
def fleet(tmp_path: Path) -> Loopback:
    """Two sites, two awards, and their log and audit in ``tmp_path``."""
    fleet = Loopback(
        {SiteName("alpine"): rack("a", 2), SiteName("boreal"): rack("b", 2, gpu_type="h100")}
    )
    fleet.federation.rounds.tells_decisions = True
    for nodes in (1, 2):
        fleet.submit(draft(gang(nodes)))
        fleet.run_for(5.0)
    assert len(fleet.decided) == 2
    store = open_store(f"sqlite://{tmp_path}/queue.db")
    assert store.lead(1)
    store.append([encode_event(event) for event in fleet.log])
    store.close()
    (tmp_path / "queue-audit").mkdir()
    DecisionRing(tmp_path / "queue-audit", 10**6).append(fleet.decided)
    return fleet


def asked(folder: Path, *words: str) -> Result:
    url = f"sqlite://{folder}/queue.db"
    return CliRunner().invoke(log, ["decide", *words, "--store", url], catch_exceptions=False)


def name(fleet: Loopback, k: int = 0) -> str:
    return str(fleet.decided[k].attempt.workload)


def test_it_says_what_was_offered_what_decided_and_that_it_comes_out_the_same(
    fleet: Loopback, tmp_path: Path
) -> None:
    done = asked(tmp_path, name(fleet))
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith(f"award fed:{name(fleet)}:1 of ")
    assert lines[1].startswith("decided by ")
    assert any(line.startswith("alpine: ") for line in lines)
    assert any(line.startswith("boreal: ") for line in lines)
    assert "bit for bit" in lines[-1]


def test_an_award_goes_by_its_workload_its_attempt_or_its_record(
    fleet: Loopback, tmp_path: Path
) -> None:
    found = json.loads(asked(tmp_path, name(fleet, 1), "--json").output)
    assert found["differs"] == []
    assert isinstance(fleet.log[found["record"] - 1], Awarded)
    assert json.loads(asked(tmp_path, str(found["record"]), "--json").output) == found
    assert json.loads(asked(tmp_path, f"fed:{name(fleet, 1)}:1", "--json").output) == found
    assert found["decided_by"]["term"]


def test_an_award_that_comes_out_otherwise_is_said_to_and_in_what(
    fleet: Loopback, tmp_path: Path
) -> None:
    folder = tmp_path / "queue-audit"
    (folder / "decisions").unlink()
    from msgspec import structs  # noqa: PLC0415

    DecisionRing(folder, 10**6).append([structs.replace(fleet.decided[0], credit=-7.0)])
    done = asked(tmp_path, name(fleet))
    assert done.exit_code == 65
    assert "differs from record" in done.output
    assert done.output.rstrip().endswith("in credit")


@pytest.mark.parametrize("words", ["nonsense", "4294969999", "1", "99999"])
def test_what_is_no_award_or_is_not_kept_is_said_so(
    words: str, fleet: Loopback, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest):
        asked(tmp_path, words)
