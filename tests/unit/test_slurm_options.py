"""Every option that Slurm's own commands know is honoured, or refused with what to do instead."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from federator.cli.accounting_columns import COLUMNS as ACCOUNTING_COLUMNS
from federator.cli.columns import by_names, by_sacct_names
from federator.cli.control_words import COMMANDS, SHOWN
from federator.cli.flags import all_flags, help_text
from federator.cli.fscontrol import CARRIED_OUT
from federator.cli.node_columns import COLUMNS as NODE_COLUMNS
from federator.cli.queue_columns import COLUMNS as QUEUE_COLUMNS
from federator.slurm.options.update_fields import FIELDS, about
from tests.options_page import (
    PAGE,
    PROGRAMS,
    RECORDED,
    flag_of,
    known_options,
    known_words,
    page,
    recorded,
    recorded_words,
    spec_of,
)

RELEASES = ("22.05", "24.11", "26.05")
OURS = {"complete", "json", "why"}  # that squeue and scancel of no release have, or mean otherwise


def test_three_releases_are_recorded() -> None:
    assert tuple(recorded()) == RELEASES
    for told in recorded().values():
        assert {command: len(names) > 12 for command, names in told.items()} == dict.fromkeys(
            ("sbatch", *PROGRAMS), True
        )
    for words in recorded_words().values():
        assert {kind: len(told) > 18 for kind, told in words.items()} == dict.fromkeys(
            ("commands", "shows", "fields"), True
        )


def test_every_command_of_scontrols_is_carried_out_or_refused_with_what_to_do() -> None:
    assert known_words("commands").keys() <= COMMANDS.keys()
    before = {name for name, word in COMMANDS.items() if "before" in word.about}
    before |= {"oneliner", "quiet", "verbose"}  # which act on what follows
    honoured = {name for name, word in COMMANDS.items() if word.about}
    assert honoured - before == CARRIED_OUT.keys()
    assert all(bool(word.about) != bool(word.instead) for word in COMMANDS.values())


def test_everything_that_scontrol_shows_is_shown_or_refused_with_what_to_do() -> None:
    names = {name.lower() for name in SHOWN}
    assert known_words("shows").keys() == names - {"site"}
    assert all(bool(word.about) != bool(word.instead) for word in SHOWN.values())


def test_every_field_of_update_is_set_or_refused_with_what_to_do() -> None:
    names = [field.name.lower() for field in FIELDS]
    assert known_words("fields").keys() == set(names)
    assert len(names) == len(set(names))
    for field in FIELDS:
        assert field.refusal or (field.about or field.option) in about(field), field.name


@pytest.mark.parametrize(
    ("command", "accepts"),
    [
        ("squeue", lambda name: by_names(name, QUEUE_COLUMNS)),
        ("sinfo", lambda name: by_names(name, NODE_COLUMNS)),
        ("sacct", lambda name: by_sacct_names(name, ACCOUNTING_COLUMNS)),
    ],
)
def test_every_field_of_a_format_is_known(command: str, accepts: Callable[[str], object]) -> None:
    recorded = json.loads(RECORDED.with_name("fields.json").read_text(encoding="utf-8"))
    assert tuple(recorded) == RELEASES
    names = {name for told in recorded.values() for name in told[command]}
    assert len(names) > 40
    for name in sorted(names - {"all"}):  # sinfo's, which is no field
        accepts(name)


@pytest.mark.parametrize("command", PROGRAMS)
def test_every_option_is_honoured_or_refused_with_what_to_do(command: str) -> None:
    for known in known_options(command):
        flag = flag_of(command, known.name)
        assert flag is not None, f"{command} --{known.name}"
        assert flag.about or flag.instead, f"{command} --{known.name}"


def test_every_option_of_sbatch_is_honoured_or_refused_with_what_to_do() -> None:
    for known in known_options("sbatch"):
        spec = spec_of(known.name)
        assert spec is not None, f"sbatch --{known.name}"
        assert (spec.treatment.value == "refused") is bool(spec.instead), spec.name
        assert known.letter in ("", spec.short), spec.name


@pytest.mark.parametrize("command", PROGRAMS)
def test_letters_are_slurms(command: str) -> None:
    for known in known_options(command):
        flag = flag_of(command, known.name)
        assert flag is not None
        assert known.letter in ("", flag.short), f"{command} -{known.letter} --{known.name}"


@pytest.mark.parametrize("command", PROGRAMS)
def test_what_is_no_option_of_slurms_is_ours_on_purpose(command: str) -> None:
    known = {flag_of(command, option.name) for option in known_options(command)}
    ours = {flag.name for flag in PROGRAMS[command].flags if flag not in known}
    assert ours <= OURS


@pytest.mark.parametrize("command", PROGRAMS)
def test_help_shows_what_is_honoured(command: str) -> None:
    program = PROGRAMS[command]
    text = help_text(program)
    for flag in all_flags(program):
        assert (f"--{flag.name}" in text) or flag.instead
        assert not flag.instead or f"  --{flag.name}" not in text


def test_the_page_is_as_it_should_be() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/options_page.py"
