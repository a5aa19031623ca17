"""``federator check`` says what is wrong, and what is allowed but probably not meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli import services, verify
from federator.cli.services import check
from federator.errors import ConfigError, SiteUnavailable
from federator.wire.client_protocol import Finding, Verdict

WARNING = "tenant nlp has no quota, nor has an ancestor: all its work is over quota"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n"
CONFIG = """\
federation: demo
store: 'memory:'
regions: {west: {shared: /shared}}
sites: {alpine: {region: west, partitions: [gpu], command: [agent]}}
tenants: {vision: {quota: {gpus: 8}}, nlp: {}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG)
    return path


def test_warnings_follow_the_files_name(path: Path) -> None:
    result = CliRunner().invoke(check, ["--config", str(path)])
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        f"{path}: ok (1 sites, 2 tenants)",
        f"{path}: warning: {WARNING}",
        "alpine: not tried",
    ]


def test_warnings_are_a_list_in_json(path: Path) -> None:
    result = CliRunner().invoke(check, ["--config", str(path), "--json"])
    assert json.loads(result.output)["warnings"] == [WARNING]
    path.write_text(CONFIG.replace("nlp: {}", "nlp: {parent: vision}"))
    result = CliRunner().invoke(check, ["--config", str(path), "--json"])
    assert json.loads(result.output)["warnings"] == []


def test_a_site_that_dials_is_not_connected_to(path: Path) -> None:
    path.write_text(CONFIG.replace("command: [agent]", "connect: outbound"))
    result = CliRunner().invoke(check, ["--config", str(path), "--sites"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "alpine: not tried")


def test_key_files_that_are_not_there_or_are_others_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    ssh = "{host: login1, key: k/site, known_hosts: k/hosts}"
    path.write_text(CONFIG.replace("command: [agent]", f"ssh: {ssh}"))

    def said() -> list[str]:
        done = CliRunner().invoke(check, ["--config", str(path)])
        if done.exception is None:
            return []
        assert isinstance(done.exception, ConfigError)
        return [
            text.removeprefix(f"{path}:4: sites.alpine.ssh.")
            for text in str(done.exception).splitlines()
        ]

    key, hosts = tmp_path / "k/site", tmp_path / "k/hosts"
    wants_key = f"key: expected a private SSH key that this user can read; {key}: "
    wants_host = (
        f"known_hosts: expected the host key of login1, as ssh-keyscan prints it; {hosts}: "
    )
    absent = "No such file or directory"
    assert said() == [wants_key + absent, wants_host + absent]
    key.mkdir(parents=True)
    hosts.write_text("login2 " + HOST_KEY)
    assert said() == [wants_key + "Is a directory", wants_host + "has none"]
    key.rmdir()
    key.write_text(HOST_KEY)
    hosts.write_text("nonsense")
    assert said()[0] == wants_key + "is no private key"
    assert said()[1].startswith(wants_host)
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    hosts.write_text("login1 " + HOST_KEY)
    assert said() == []


def test_no_tenants_is_warned_of(path: Path) -> None:
    path.write_text(CONFIG[: CONFIG.index("tenants")])
    result = CliRunner().invoke(check, ["--config", str(path)])
    assert f"{path}: warning: no tenants: nobody can submit" in result.output.splitlines()


NAMED = "command: [agent],\n  names: {partitions: {gpu: gpu-a}}}"


@pytest.mark.parametrize("answers", [True, False])
def test_with_sites_names_that_a_site_lacks_are_told_by_line_if_a_daemon_can_be_asked(
    path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    async def reach(_: object) -> dict[str, str]:
        return {"alpine": "ok"}

    def ask(*_: object) -> tuple[Finding, ...]:
        if not answers:
            raise SiteUnavailable("no daemon")
        detail = "Slurm does not know names.partitions.gpu: gpu-a"
        return (Finding(check="names", verdict=Verdict.FAIL, detail=detail),)

    monkeypatch.setattr(services, "_reach", reach)
    monkeypatch.setattr(verify, "_ask", ask)
    path.write_text(CONFIG.replace("command: [agent]}", NAMED))
    result = CliRunner().invoke(check, ["--config", str(path), "--sites"])
    wrong = f"alpine: {path}:5: sites.alpine.names.partitions.gpu: no gpu-a there"
    assert result.output.splitlines()[-1] == (wrong if answers else "alpine: ok")
    assert result.exit_code == (69 if answers else 0)
