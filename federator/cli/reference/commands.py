"""Every command with its options, as values, read from the parser that the command itself uses."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import click

from federator.cli import (
    fsacct,
    fsbatch_help,
    fscancel,
    fscontrol,
    fseff,
    fsinfo,
    fsprio,
    fsqueue,
    fsshare,
    session_words,
)
from federator.cli.flags import Flag, Program, all_flags
from federator.cli.main import AT_SITES, COMMANDS, federator
from federator.slurm.options.option_table import ALIASES, OPTIONS, Arity, OptionSpec, Treatment

PROGRAMS: Final = tuple(
    module.PROGRAM
    for module in (fsqueue, fscancel, fscontrol, fsinfo, fsacct, fseff, fsprio, fsshare)
)
_TREATED: Final = {
    Treatment.READ: "As with sbatch; the federation plans with it.",
    Treatment.PASSED: "Passed to the site's sbatch as it is.",
    Treatment.CLIENT: "As with sbatch.",
}


class CommandOption(NamedTuple):
    """One option as its parser takes it."""

    long: tuple[str, ...]  # names, with their dashes; the first is the usual one
    short: tuple[str, ...]
    value: str  # what its value is called; "": it takes none
    is_optional: bool  # the value may be left out
    about: str
    instead: str = ""  # it is refused: what to do
    variable: str = ""  # of the environment
    words: tuple[str, ...] = ()  # all values there are
    is_path: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.short, *self.long)


class CommandReference(NamedTuple):
    """One command, or one below another: ``federator site render`` is called ``words``."""

    words: tuple[str, ...]
    operands: str  # as in the usage line
    about: str  # paragraphs, the first is one sentence
    options: tuple[CommandOption, ...]
    inner: tuple[str, ...] = ()  # commands below it
    variables: tuple[tuple[str, str], ...] = ()  # of the environment, and what each does
    operand_path: bool = False  # an operand is a file or a folder

    @property
    def name(self) -> str:
        return " ".join(self.words)


def every_command(*, at_sites: bool = False) -> tuple[CommandReference, ...]:
    """Return all commands that this installation has, those below another behind it.

    Args:
        at_sites: only those that a site has.
    """
    names = AT_SITES if at_sites else tuple(COMMANDS)
    return (
        _fsbatch(),
        *map(_of_session, (session_words.FSALLOC, session_words.FSRUN)),
        *map(_of_program, PROGRAMS),
        *_of_click(("federator",), _only(names)),
    )


def _only(names: Iterable[str]) -> click.Group:
    """The program ``federator`` with these commands alone."""
    group = click.Group("federator", params=list(federator.params), help=federator.help)
    for name in names:
        module, function, _ = COMMANDS[name]
        with contextlib.suppress(ModuleNotFoundError):  # of a library that a site does not have
            group.add_command(getattr(importlib.import_module(module), function), name)
    return group


# ---- the short commands ----


def _of_program(program: Program) -> CommandReference:
    return CommandReference(
        words=(program.name,),
        operands=f"[OPTIONS] {program.operands}".rstrip(),
        about=program.about,
        options=tuple(_of_flag(flag) for flag in all_flags(program)),
    )


def _of_flag(flag: Flag) -> CommandOption:
    return CommandOption(
        long=tuple(f"--{name}" for name in (flag.name, *flag.also)),
        short=(f"-{flag.short}",) if flag.short else (),
        value=flag.value,
        is_optional=flag.optional,
        about=flag.about,
        instead=flag.instead,
        variable=flag.variable,
    )


# ---- fsbatch ----


def _fsbatch() -> CommandReference:
    """Names and arity are of the table of options, words of ``fsbatch --help`` where it has any."""
    flags = {flag.name: flag for group in fsbatch_help.GROUPS for flag in group.options}
    examples = "\n".join(fsbatch_help.EXAMPLES)
    return CommandReference(
        words=("fsbatch",),
        operands=fsbatch_help.USAGE.removeprefix("Usage: fsbatch "),
        about=f"{fsbatch_help.ABOUT}\n\nExamples: {examples}",
        options=tuple(_of_spec(spec, flags.get(name)) for name, spec in OPTIONS.items()),
        variables=fsbatch_help.VARIABLES,
        operand_path=True,
    )


def _of_session(program: Program) -> CommandReference:
    """The options of fsalloc or fsrun: its own, and those of fsbatch that have a meaning there."""
    own = _of_program(program)
    taken = {name for option in own.options for name in option.names}
    said = {flag.name: flag for group in fsbatch_help.GROUPS for flag in group.options}
    of_sbatch = (
        _of_spec(spec, said.get(name))
        for name, spec in OPTIONS.items()
        if f"--{name}" not in taken and name not in session_words.NOT_HERE
    )
    fitting = (
        option._replace(short=tuple(s for s in option.short if s not in taken))
        for option in of_sbatch
    )
    return own._replace(options=(*own.options, *fitting))


def _of_spec(spec: OptionSpec, said: Flag | None) -> CommandOption:
    value, about = (said.value, said.about) if said is not None else ("", "")
    takes = spec.arity is not Arity.NONE
    also = (f"--{alias}" for alias, name in ALIASES.items() if name == spec.name)
    return CommandOption(
        long=(f"--{spec.name}", *also),
        short=(f"-{spec.short}",) if spec.short else (),
        value=(value or "VALUE") if takes else "",
        is_optional=spec.arity is Arity.OPTIONAL,
        about=about or _TREATED.get(spec.treatment, ""),
        instead=spec.instead,
    )


# ---- federator ----


def _of_click(words: tuple[str, ...], command: click.Command) -> Iterator[CommandReference]:
    inner = dict(command.commands) if isinstance(command, click.Group) else {}
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    operands = [p.make_metavar(click.Context(command)) for p in arguments]
    yield CommandReference(
        words=words,
        operands=" ".join(["[OPTIONS]", *operands, *(["COMMAND"] if inner else [])]),
        about=_paragraphs(inspect.cleandoc(command.help or "")),
        options=(
            *(_of_click_option(p) for p in command.params if isinstance(p, click.Option)),
            CommandOption(("--help",), ("-h",), "", is_optional=False, about="Show this text."),
        ),
        inner=tuple(inner),
        operand_path=any(isinstance(p.type, click.Path) for p in arguments),
    )
    for name, below in inner.items():
        yield from _of_click((*words, name), below)


def _paragraphs(text: str) -> str:
    """Each on one line, but for those that click is not to wrap: their lines are indented."""
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    if "\b" not in text:
        return " ".join(text.split())
    lines = [line.rstrip() for line in text.replace("\b", "").splitlines() if line.strip("\b ")]
    return "\n".join(lines if lines[0].startswith("Example") else (f"  {line}" for line in lines))


def _of_click_option(option: click.Option) -> CommandOption:
    names = (*option.opts, *option.secondary_opts)
    takes = not (option.is_flag or option.count)
    choices = tuple(map(str, option.type.choices)) if isinstance(option.type, click.Choice) else ()
    value = "|".join(choices) or option.metavar or option.type.name.upper()
    return CommandOption(
        long=tuple(name for name in names if name.startswith("--")),
        short=tuple(name for name in names if not name.startswith("--")),
        value=value if takes else "",
        is_optional=False,
        about=option.help or "",
        words=choices,
        is_path=isinstance(option.type, click.Path),
    )
