"""``traces`` of federation.yaml and of agent.yaml say the same, or are refused in one message."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from federator.agent.config import AgentConfig
from federator.errors import ConfigError
from federator.traces.destination import Destination
from tests.unit.test_config import load

AGENT = "site: alpine\nsocket: /s\nstate_dir: /d\n"


def test_traces_are_off_unless_they_are_asked_for(tmp_path: Path) -> None:
    assert not load(tmp_path, "", "").traces.destination.is_on
    assert not msgspec.yaml.decode(AGENT, type=AgentConfig).traces.is_on


@pytest.mark.parametrize(
    "keys", ["{file: /t, ratio: 0.1}", '{endpoint: "http://127.0.0.1:4318", ratio: 0.1}']
)
def test_both_files_have_the_same_keys(tmp_path: Path, keys: str) -> None:
    loaded = load(tmp_path, "policy:", f"traces: {keys}\npolicy:").traces.destination
    assert loaded == msgspec.yaml.decode(f"{AGENT}traces: {keys}", type=AgentConfig).traces
    assert loaded.is_on
    assert isinstance(loaded, Destination)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ("{file: t}", "expected an absolute path"),
        ("{endpoint: 'http://10.0.0.1:4318'}", "expected http://HOST:PORT on loopback"),
        ("{file: /t, endpoint: 'http://127.0.0.1:4318'}", "give one of"),
        ("{file: /t, ratio: 2}", "ratio"),
        ("{to: /t}", "unknown"),
    ],
)
def test_what_is_wrong_is_refused_by_both(tmp_path: Path, keys: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        load(tmp_path, "policy:", f"traces: {keys}\npolicy:")
    with pytest.raises(msgspec.ValidationError, match=what):
        msgspec.yaml.decode(f"{AGENT}traces: {keys}", type=AgentConfig)
