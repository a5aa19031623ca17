"""``federator check`` says what is wrong, and what is allowed but probably not meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli.services import check

WARNING = "tenant nlp has no quota, nor has an ancestor: all its work is over quota"
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
