"""Options of fsqueue, fscancel and fsinfo, and how these commands end.

They do without click: its import takes longer than all else that such a command does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

import msgspec

from federator import __version__
from federator.cli import pipe
from federator.cli.text import printable
from federator.errors import FederatorError, InvalidRequest


class SlurmsOwn(InvalidRequest):
    """An error whose whole line is that of Slurm's command."""


class Flag(NamedTuple):
    """One option. ``value``: what its value is called in the help; "": it takes none."""

    name: str
    short: str = ""
    value: str = ""
    about: str = ""
    optional: bool = False  # the value may be left out; given, it is --name=value or -nvalue
    also: tuple[str, ...] = ()  # other long names
    variable: str = ""  # of the environment; it counts where the option is not given
    unless: tuple[str, ...] = ()  # nor any of these options
    is_true: bool = False  # the variable says true or false
    adds: bool = False  # repeated, its values add up to one list
    instead: str = ""  # the option is refused: what to do


class Given(msgspec.Struct, frozen=True):
    """The arguments of a command: values by option ("" of one that takes none), operands."""

    values: dict[str, str]
    operands: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str) -> str | None:
        return self.values.get(name)


class Program(NamedTuple):
    """A command: its name, its options, and the text of its help."""

    name: str
    operands: str  # in the usage line; "": it takes none
    about: str
    flags: tuple[Flag, ...]


COMMON: Final = (
    Flag("help", about="Show this text."),
    Flag("usage", about="Show how the command is called, in one line."),
    Flag("version", "V", about="Show the version."),
)


def all_flags(program: Program) -> tuple[Flag, ...]:
    """The options of a program, with those of every command that it does not have itself."""
    own = {flag.name for flag in program.flags}
    return (*program.flags, *(flag for flag in COMMON if flag.name not in own))


def read(
    program: Program, words: Sequence[str], environment: Mapping[str, str] | None = None
) -> Given:
    """Read a command line as getopt_long does; of an option that is repeated the last one holds.

    Args:
        program: the options that there are.
        words: those behind the command's name.
        environment: gives options that the command line does not; by default none.

    Raises:
        InvalidRequest: an option is unknown or refused, or lacks its value, or has one too many; or
            there are operands where none are taken.
    """
    values: dict[str, str] = {}
    operands: list[str] = []
    try:
        for flag, value in _parts(program, list(words)):
            if flag is None:
                operands.append(value)
            elif flag.adds and flag.name in values:
                values[flag.name] += f",{value}"
            else:
                values[flag.name] = value
    except ValueError as error:
        raise InvalidRequest(f"{printable(str(error))}; see {program.name} --help") from error
    for flag in program.flags:
        if flag.name in values and flag.instead:
            raise InvalidRequest(f"--{flag.name} cannot be honoured: {flag.instead}")
    values |= _of_environment(program, values, environment or {})
    if operands and not program.operands:
        raise InvalidRequest(f"unexpected argument {operands[0]!r}; see {program.name} --help")
    return Given(values, tuple(operands))


def _of_environment(
    program: Program, values: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    return {
        flag.name: environment[flag.variable] if flag.value else ""
        for flag in program.flags
        if flag.variable in environment
        and values.keys().isdisjoint({flag.name, *flag.unless})
        and (not flag.is_true or environment[flag.variable].lower() in ("true", "t"))
    }


def _parts(program: Program, words: list[str]) -> Iterator[tuple[Flag | None, str]]:
    """The options and, with None, the operands of a command line; ``words`` is used up."""
    flags = all_flags(program)
    longs = {name: flag for flag in flags for name in (flag.name, *flag.also)}
    shorts = {flag.short: flag for flag in flags if flag.short}
    while words:
        word = words.pop(0)
        if word == "--":
            yield from ((None, operand) for operand in words)
            return
        if word.startswith("--"):
            yield _long(word[2:], longs, words)
        elif word.startswith("-") and word != "-":
            yield from _shorts(word[1:], shorts, words)
        else:
            yield None, word


def _long(word: str, longs: Mapping[str, Flag], rest: list[str]) -> tuple[Flag, str]:
    name, equals, value = word.partition("=")
    flag = longs.get(name) or _unabbreviated(name, longs)
    if not flag.value:
        if equals:
            raise ValueError(f"option '--{name}' doesn't allow an argument")
        return flag, ""
    if not equals and not flag.optional:
        if not rest:
            raise ValueError(f"option '--{name}' requires an argument")
        value = rest.pop(0)
    return flag, value


def _unabbreviated(name: str, longs: Mapping[str, Flag]) -> Flag:
    found = {flag.name: flag for long, flag in longs.items() if name and long.startswith(name)}
    if not found:
        raise ValueError(f"unrecognized option '--{name}'")
    if len(found) > 1:
        possible = " ".join(f"'--{each}'" for each in found)
        raise ValueError(f"option '--{name}' is ambiguous; possibilities: {possible}")
    return next(iter(found.values()))


def _shorts(
    letters: str, shorts: Mapping[str, Flag], rest: list[str]
) -> Iterator[tuple[Flag, str]]:
    while letters:
        letter, letters = letters[0], letters[1:]
        flag = shorts.get(letter)
        if flag is None:
            raise ValueError(f"invalid option -- '{letter}'")
        if not flag.value:
            yield flag, ""
            continue
        if not letters and not flag.optional:
            if not rest:
                raise ValueError(f"option requires an argument -- '{letter}'")
            letters = rest.pop(0)
        yield flag, letters
        return


def help_text(program: Program) -> str:
    """The text of ``--help``."""
    flags = [flag for flag in all_flags(program) if not flag.instead]
    heads = [_head(flag) for flag in flags]
    width = max(map(len, heads)) + 2
    lines = [usage_text(program), "", program.about, "", "Options:"]
    lines += [f"  {head:<{width}}{flag.about}" for head, flag in zip(heads, flags, strict=True)]
    return "\n".join(lines)


def usage_text(program: Program) -> str:
    """The text of ``--usage``."""
    return f"Usage: {program.name} [OPTIONS] {program.operands}".rstrip()


def _head(flag: Flag) -> str:
    short = f"-{flag.short}, " if flag.short else "    "
    value = f"={flag.value}" if flag.value else ""
    return f"{short}--{flag.name}" + (f"[{value}]" if flag.optional else value)


def main(program: Program, body: Callable[[Given], int]) -> NoReturn:
    """Run a command and exit; errors are one line and exit status 1, as those of Slurm's.

    Args:
        program: what it takes.
        body: does the work and returns the exit status; may raise errors of ours.
    """
    sys.exit(ended_well(program.name, lambda: _run(program, body)))


def _run(program: Program, body: Callable[[Given], int]) -> int:
    given = read(program, sys.argv[1:], os.environ)
    if given.get("json") == "" and called_as_slurms(program):
        given = Given({**given.values, "json": "slurm"}, given.operands)  # as one of Slurm's
    if "usage" in given:
        print(usage_text(program))
        return 0
    if "help" in given:
        return say_help(program)
    if "version" in given:
        return say_version(program)
    return body(given)


def called_as_slurms(program: Program) -> bool:
    """Tell whether it goes by the name of Slurm's own command, by a link of ``federator shims``."""
    return os.path.basename(sys.argv[0]) == program.name[1:]


def say_help(program: Program) -> int:
    """Print the help; 0."""
    print(help_text(program))
    return 0


def say_version(program: Program) -> int:
    """Print name and version; 0."""
    print(f"{program.name}, version {__version__}")
    return 0


def ended_well(name: str, work: Callable[[], int]) -> int:
    """Do the work, and make of its errors a line on stderr and an exit status."""
    try:
        status = work()
        pipe.flush()
    except FederatorError as error:
        said = str(error) if isinstance(error, SlurmsOwn) else f"{name}: error: {error}"
        print(printable(said), file=sys.stderr)
        return 1
    except BrokenPipeError:
        pipe.end_by_sigpipe()
    except KeyboardInterrupt:
        return 130
    return status
