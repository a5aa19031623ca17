"""Every command and every option has its place in a page, and man shows the pages unchanged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli.main import AT_SITES, COMMANDS, federator
from federator.cli.reference import roff
from federator.cli.reference.commands import PROGRAMS, every_command
from federator.cli.reference.man_pages import documents, man_pages
from federator.slurm.options.option_table import OPTIONS
from tests.options_page import PROGRAMS as BESIDE_SLURM

ALL = every_command()
PAGES = man_pages(ALL, documents())
ENGLISH = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "MANWIDTH": "100"}


def shown(page: Path) -> str:
    done = subprocess.run(
        ["man", "--warnings", "-l", page], capture_output=True, text=True, check=True, env=ENGLISH
    )
    assert done.stderr == ""
    return done.stdout


def test_every_command_has_a_page() -> None:
    names = {f"{program.name}.1" for program in PROGRAMS} | {"fsbatch.1", "federator.1"}
    assert names | {f"federator-{name}.1" for name in COMMANDS} <= set(PAGES)
    assert {program.name for program in BESIDE_SLURM.values()} <= {p.name for p in PROGRAMS}


def test_a_site_has_the_pages_of_its_own_commands_alone() -> None:
    there = {"-".join(command.words[:2]) for command in every_command(at_sites=True)}
    inner = {name for name in there if name.startswith("federator-")}
    assert inner == {f"federator-{name}" for name in AT_SITES}
    assert "fsqueue" in there


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_man_shows_every_option_and_warns_of_nothing(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    name = f"{'-'.join(command.words)}.1"
    page = tmp_path / name
    page.write_text(PAGES[name], encoding="utf-8")
    text = shown(page)
    for option in command.options:
        assert any(", ".join(option.names) in line for line in text.splitlines()), option.names
        assert option.about or option.instead
    linted = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    assert [line for line in linted if "missing date" not in line] == []


def test_fsbatch_has_every_option_of_its_table() -> None:
    (fsbatch,) = (command for command in ALL if command.name == "fsbatch")
    assert {option.long[0] for option in fsbatch.options} == {f"--{name}" for name in OPTIONS}


def test_a_page_has_the_documents_own_words(tmp_path: Path) -> None:
    page = tmp_path / "fsqueue.1"
    page.write_text(PAGES["fsqueue.1"], encoding="utf-8")
    text = " ".join(shown(page).split())
    assert "A het job has one row; its amounts are of all components." in text
    assert "number of het components" in text  # of the table of fsqueue --json
    assert "(see" not in text
    assert "](" not in text


def test_text_is_never_a_request_nor_an_escape() -> None:
    assert roff.plain(".SH x") == r"\&.SH x"
    assert roff.plain(r"a\b -x 'y'") == r"a\eb \-x \(aqy\(aq"
    assert roff.inline("`-x` **b** *i* [w](u)") == r"\&\fB\-x\fR \fBb\fR \fIi\fR w"


def test_a_tables_row_begins_with_its_first_cell() -> None:
    table = "| a | b | c |\n|---|---|---|\n| `x\\|y` | one | |\n| z | two | three |"
    assert list(roff.from_markdown(table)) == [
        *(".TP", r"\&\fBx|y\fR", "b: one."),
        *(".TP", "z", "b: two.", "c: three."),
    ]


def test_federator_man_writes_them_all(tmp_path: Path) -> None:
    done = CliRunner().invoke(federator, ["man", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()} == PAGES
    (tmp_path / "file").touch()
    failed = CliRunner().invoke(federator, ["man", str(tmp_path / "file")])
    assert "cannot be written" in str(failed.exception)
