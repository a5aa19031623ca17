"""``federator whatif --live``: the queue of a running daemon, as it is and as it would be."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli import whatif_live
from federator.cli.whatif import whatif
from federator.errors import FederatorError, InvalidRequest
from federator.model.event import EpochBegan, encode_event
from federator.model.site import Snapshot
from federator.model.workload import SiteName
from federator.store.sqlite import SqliteStore
from federator.wire.agent_protocol import packed
from federator.wire.client_protocol import (
    Call,
    ErrorKind,
    ErrorReply,
    SnapshotCall,
    SnapshotReply,
)
from federator.wire.replies import Reply
from tests.fakes.build import rack
from tests.unit.sim.test_live import CONFIG, id_of, submitted

DOWN = ErrorReply(message="site boreal is down", kind=ErrorKind.UNAVAILABLE)


@pytest.fixture
def replies() -> dict[str, Reply]:
    """Of each site."""
    nodes = tuple(rack("a", 1))
    taken = Snapshot(site=SiteName("alpine"), now_s=1.0, nodes=nodes)
    return {"alpine": SnapshotReply(snapshot=packed(taken)), "boreal": DOWN}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: dict[str, Reply]) -> str:
    """A federation.yaml, whose log has two that wait."""
    with closing(SqliteStore(tmp_path / "queue.db")) as store:
        store.lead(0)
        waiting = submitted(0), submitted(1, tenant="nlp")
        store.append([encode_event(e) for e in (EpochBegan(at_s=1.0, epoch=1), *waiting)])

    def call(message: Call) -> Reply:
        assert isinstance(message, SnapshotCall)
        return replies[message.site]

    monkeypatch.setattr(whatif_live, "call", call)
    config = tmp_path / "federation.yaml"
    config.write_text(CONFIG.replace("memory:", f"sqlite://{tmp_path}/queue.db"))
    return str(config)


def told(*words: str) -> str:
    result = CliRunner().invoke(whatif, ["--live", *words])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def refusal(*words: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        told(*words)
    return str(caught.value)


def test_a_site_as_if_it_were_drained(path: str) -> None:
    found = json.loads(told("--config", path, "--drain", "alpine", "--json", "--hours", "2"))
    assert found["name"] == f"{path}, alpine drained"
    assert (found["sites"], found["draws"], found["span_s"]) == (["alpine"], 5, 7200.0)
    first, second = (found["starts_s"][str(id_of(k))] for k in range(2))
    assert first == [0.0, None]
    assert second[0] > 0
    assert second[1] is None
    assert found["in_all"]["later"] == 2


def test_each_other_configuration_has_a_table_and_sites_that_are_not_there_are_named(
    path: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(Path(path).read_text().replace("priority: 2", "priority: 5", 1))
    lines = told("--config", path, "--config", str(other), "--draws", "1").splitlines()
    assert lines[0].endswith(f"1 draw; as it is > {other}")
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["TENANT", "WAITING"],
        ["nlp", "1"],
        ["vision", "1"],
        ["ALL", "2"],
    ]
    assert lines[-1] == "left out: boreal: site boreal is down"


def test_without_anything_to_compare_with_it_says_what_to_name(path: str) -> None:
    assert "a second --config, or --drain SITE" in refusal("--config", path)


def test_a_site_that_is_none_is_refused(path: str) -> None:
    said = refusal("--config", path, "--drain", "dune")
    assert said == f"--drain: dune: expected a site of {path} (alpine, boreal)"


@pytest.mark.parametrize("words", [["--evict"], ["--sacct", "x"], ["--seed", "0"]])
def test_options_of_a_history_are_refused(path: str, words: list[str]) -> None:
    said = refusal("--config", path, "--drain", "alpine", *words)
    assert said == f"--live: {words[0]} is for a history; leave one of them out"


def test_options_of_the_live_queue_are_refused_for_a_history(path: str) -> None:
    with pytest.raises(InvalidRequest, match="--drain: expected --live"):
        CliRunner().invoke(
            whatif, ["--sacct", "x", "--config", path, "--drain", "alpine"], catch_exceptions=False
        )


def test_where_no_site_is_there_it_says_so(path: str, replies: dict[str, Reply]) -> None:
    replies["alpine"] = ErrorReply(message="site alpine is down", kind=ErrorKind.UNAVAILABLE)
    said = refusal("--config", path, "--drain", "alpine")
    assert "no site to look at" in said
    assert "site alpine is down" in said


def test_it_is_an_operators(path: str, replies: dict[str, Reply]) -> None:
    replies["alpine"] = ErrorReply(message="for operators", kind=ErrorKind.DENIED)
    with pytest.raises(FederatorError, match="for operators"):
        told("--config", path, "--drain", "alpine")
