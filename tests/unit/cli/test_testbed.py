"""``federator testbed debs`` finds the tools for releases in a checkout, and nowhere else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli import testbed as command
from federator.testbed import layout


@pytest.fixture(autouse=True)
def _path_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_an_installation_that_is_no_checkout_makes_no_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "REPOSITORY", tmp_path)
    done = CliRunner().invoke(command.testbed, ["debs"])
    assert done.exit_code == os.EX_CONFIG
    assert "packages are made from a checkout" in done.output


def test_a_checkout_has_the_tools() -> None:
    tools = command._release_tools()
    assert tools.make.__module__ == "fedbuild.debs"
    assert Path(str(tools.__file__)).is_relative_to(layout.REPOSITORY / "packaging")
