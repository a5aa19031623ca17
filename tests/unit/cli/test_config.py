"""``federator reload`` and ``federator config``, as operators see them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from federator.cli import reload as cli_reload
from federator.cli.main import federator
from federator.config_keys import ABOUT, config_keys, described_schema, generic_name
from federator.config_policy import PreemptionConfig
from federator.errors import ConfigError, InvalidRequest
from federator.wire.client_protocol import ErrorReply, ReloadCall, ReloadReply
from federator.wire.replies import Reply
from federator.wire.status_rows import KeyChange

PATH = "/etc/federator/federation.yaml"
CHANGES = (
    KeyChange(key="tenants.nlp.quota.gpus", before="8", after="16"),
    KeyChange(key="sites.cedar.region", before="", after='"east"'),
)


class Daemon:
    """Answers one call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reply: Reply) -> None:
        self.asked: list[object] = []

        def call(message: object) -> Reply:
            self.asked.append(message)
            return reply

        monkeypatch.setattr(cli_reload, "call", call)


def run(*words: str) -> Result:
    return CliRunner().invoke(federator, words, catch_exceptions=True)


def test_each_changed_key_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon(monkeypatch, ReloadReply(path=PATH, changes=CHANGES))
    assert run("reload").output.splitlines() == [
        "tenants.nlp.quota.gpus: 8 -> 16",
        'sites.cedar.region: (absent) -> "east"',
        f"{PATH}: 2 changes; the daemon goes by it",
    ]
    assert daemon.asked == [ReloadCall()]


@pytest.mark.parametrize("words", [("reload", "--dry-run"), ("config", "diff")])
def test_a_dry_run_says_how_to_go_by_it(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    reply = ReloadReply(path=PATH, changes=CHANGES, dry_run=True, warnings=("no tenants",))
    daemon = Daemon(monkeypatch, reply)
    lines = run(*words).output.splitlines()
    assert lines[2:] == [
        "warning: no tenants",
        f"{PATH}: 2 changes; 'federator reload' makes the daemon go by it",
    ]
    assert daemon.asked == [ReloadCall(dry_run=True)]


def test_the_same_file_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    Daemon(monkeypatch, ReloadReply(path=PATH))
    assert run("reload").output == f"{PATH}: nothing has changed\n"


def test_json_is_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    Daemon(monkeypatch, ReloadReply(path=PATH, changes=CHANGES[:1]))
    assert json.loads(run("reload", "--json").output) == {
        "schema": 1,
        "path": PATH,
        "changes": [{"key": "tenants.nlp.quota.gpus", "before": "8", "after": "16"}],
        "dry_run": False,
        "warnings": [],
    }


def test_a_refusal_is_an_error_with_all_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    message = f"{PATH}:1: federation: changes only by a restart of the daemon\n{PATH}:9: x"
    Daemon(monkeypatch, ErrorReply(message=message))
    result = run("reload")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == message


def test_every_key_is_explained_and_no_other() -> None:
    assert {key.name for key in config_keys()} == set(ABOUT)


def test_a_key_is_explained_by_the_name_that_the_file_gives_it() -> None:
    lines = run("config", "explain", "tenants.vision.priority").output.splitlines()
    assert lines == [
        "tenants.NAME.priority: Of its work within quota: 1 is the highest, 7 the lowest.",
        "    a whole number from 1 to 7; default 7",
    ]
    assert "required; changes only by a restart" in run("config", "explain", "store").output


def test_a_key_is_explained_to_programs() -> None:
    (key,) = json.loads(run("config", "explain", "store", "--json").output)
    assert (key["name"], key["default"], key["at_restart"]) == ("store", "", True)
    assert key["expects"]
    assert key["about"]


def test_a_group_of_keys_is_explained_key_by_key() -> None:
    output = run("config", "explain", "policy.preemption").output
    keys = PreemptionConfig.model_fields
    assert [key for key in keys if f"policy.preemption.{key}:" not in output] == []
    assert output.count("policy.preemption.") == len(keys)
    assert generic_name("tenants.a.quota.gpu_types.h100") == "tenants.NAME.quota.gpu_types.TYPE"


def test_an_unknown_key_is_an_error_that_names_the_one_that_is_meant() -> None:
    error = run("config", "explain", "policy.preemption.grace").exception
    assert isinstance(error, InvalidRequest)
    assert "did you mean policy.preemption.grace_s?" in str(error)


def test_the_schema_describes_every_key() -> None:
    schema = json.loads(run("config", "schema").output)
    assert schema == described_schema()
    described: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("description"), str):
                described.append(value["description"])
            for each in value.values():
                collect(each)
        elif isinstance(value, list):
            for each in value:
                collect(each)

    collect(schema)
    # Quota and limit share one definition of their amounts: the later words stay.
    missing = {name for name, about in ABOUT.items() if about not in described}
    assert all(".quota." in name or ".limit." in name for name in missing), missing
