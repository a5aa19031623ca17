"""``federator site verify`` prints a table of findings; its status says whether all is well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federator.cli import verify as module
from federator.cli.site import site
from federator.errors import InvalidRequest, NotAllowed, SiteUnavailable
from federator.wire.client_protocol import (
    ErrorKind,
    ErrorReply,
    Finding,
    Verdict,
    VerifyCall,
    VerifyReply,
)

CONFIG = """\
federation: demo
store: 'memory:'
regions: {west: {shared: /shared}}
sites: {alpine: {region: west, partitions: [gpu], command: [agent]}}
"""
GOOD = Finding(check="spool", verdict=Verdict.OK, detail="/var/spool/federator")
BAD = Finding(check="node n2", verdict=Verdict.FAIL, detail="fed-gate: ecc: GPU 3\x1b[2J")
MEH = Finding(check="KillWait", verdict=Verdict.WARN, detail="600 s")


def invoke(monkeypatch: pytest.MonkeyPatch, path: Path, reply: object, *more: str) -> Any:
    asked: list[object] = []

    def call(message: object, timeout_s: float, path: str) -> object:
        asked.append((message, timeout_s))
        if isinstance(reply, Exception):
            raise reply
        return reply

    monkeypatch.setattr(module, "call", call)
    config = path / "federation.yaml"
    config.write_text(CONFIG)
    arguments = ["verify", "alpine", "--config", str(config), *more]
    result = CliRunner().invoke(site, arguments)
    return result, asked


def test_warnings_are_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result, _ = invoke(monkeypatch, tmp_path, VerifyReply(findings=(GOOD, MEH)))
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "spool     ok    /var/spool/federator",
        "KillWait  warn  600 s",
        "1 ok, 1 warn, 0 fail",
    ]


def test_one_failed_check_is_status_1_and_a_sites_words_cannot_move_the_cursor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, _ = invoke(monkeypatch, tmp_path, VerifyReply(findings=(GOOD, BAD)))
    assert result.exit_code == 1
    assert "node n2  fail  fed-gate: ecc: GPU 3?[2J" in result.output


def test_names_that_a_site_lacks_are_found_by_their_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = "[agent],\n  names: {qos: {high: fed-high}}}}"
    monkeypatch.setitem(globals(), "CONFIG", CONFIG.replace("[agent]}}", names))
    detail = "Slurm does not know names.qos.high: fed-high; names.features.ib: x"
    bad = Finding(check="names", verdict=Verdict.FAIL, detail=detail)
    result, _ = invoke(monkeypatch, tmp_path, VerifyReply(findings=(bad,)))
    assert result.exit_code == 1
    assert "federation.yaml:5: sites.alpine.names.qos.high: no fed-high there; " in result.output
    assert "sites.alpine.names.features.ib: no x there" in result.output


def test_json_has_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result, _ = invoke(monkeypatch, tmp_path, VerifyReply(findings=(BAD,)), "--json")
    told = json.loads(result.output)
    assert (result.exit_code, told["ok"], told["site"]) == (1, False, "alpine")
    assert told["findings"][0]["verdict"] == "fail"


def test_nodes_are_a_host_list_and_the_user_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, asked = invoke(
        monkeypatch, tmp_path, VerifyReply(findings=()), "--nodes", "n[1-3],c1", "--user", "eva"
    )
    ((message, _),) = asked
    assert isinstance(message, VerifyCall)
    assert sorted(message.nodes) == ["c1", "n1", "n2", "n3"]
    assert message.user == "eva"


@pytest.mark.parametrize("nodes", ["n[1-", "n 1", "n[1-65]", "$(id)", "n[x-y]"])
def test_what_is_no_host_list_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nodes: str
) -> None:
    result, asked = invoke(monkeypatch, tmp_path, VerifyReply(findings=()), "--nodes", nodes)
    assert result.exception is not None
    assert not asked


def test_no_daemon_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result, _ = invoke(monkeypatch, tmp_path, SiteUnavailable("no daemon"))
    assert isinstance(result.exception, SiteUnavailable)


def test_a_site_that_is_down_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    down = ErrorReply(kind=ErrorKind.UNAVAILABLE, message="alpine is down")
    result, _ = invoke(monkeypatch, tmp_path, down)
    assert result.exit_code == 1
    assert "agent  fail  alpine is down" in result.output


def test_only_operators_may_ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result, _ = invoke(monkeypatch, tmp_path, ErrorReply(kind=ErrorKind.DENIED, message="no"))
    assert isinstance(result.exception, NotAllowed)


def test_an_unknown_site_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "federation.yaml"
    config.write_text(CONFIG)
    result = CliRunner().invoke(site, ["verify", "x", "--config", str(config)])
    assert isinstance(result.exception, InvalidRequest)
