"""The supported generations of Slurm are the same in every place that has to name them."""

from __future__ import annotations

import re
from typing import Final

from click.testing import CliRunner

from federator.agent.services.site_check import version
from federator.cli.testbed import testbed as command
from federator.slurm.generations import SUPPORTED_SLURM
from federator.testbed.layout import REPOSITORY, SITES
from federator.wire.client_protocol import Verdict

JOIN: Final = REPOSITORY / "federator" / "site_installer" / "shell" / "join.sh"
RECORDED: Final = REPOSITORY / "tests" / "contract" / "transcripts"


def test_they_are_listed_oldest_first() -> None:
    assert list(SUPPORTED_SLURM) == sorted(SUPPORTED_SLURM)


def test_join_sh_chooses_among_them_and_no_others() -> None:
    (choice,) = re.findall(r"print \((n >= .+)\)$", JOIN.read_text(encoding="utf-8"), re.MULTILINE)
    *newer, oldest = choice.split(" : ")
    bounds = {re.sub(r'.*"(.+)"', r"\1", each): int(each.split()[2]) for each in newer}
    assert [*bounds, oldest.strip('"')] == list(reversed(SUPPORTED_SLURM))
    assert bounds == {name: int(name.replace(".", "")) for name in bounds}


def test_the_testbeds_sites_are_of_them_and_its_help_says_which() -> None:
    generations = [site.slurm for site in SITES]
    assert set(generations) <= set(SUPPORTED_SLURM)
    shown = CliRunner().invoke(command, ["--help"]).output
    assert re.findall(r"Slurm (\d\d\.\d\d)", shown) == generations


def test_whatever_was_recorded_is_of_them() -> None:
    recorded = {path.name.removesuffix("-pyslurm") for path in RECORDED.iterdir()}
    assert recorded <= set(SUPPORTED_SLURM)


def test_an_agent_warns_of_any_other() -> None:
    assert {version(f"{name}.1").verdict for name in SUPPORTED_SLURM} == {Verdict.OK}
    assert version("21.08.8").verdict is Verdict.WARN
