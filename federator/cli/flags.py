"""Options of fsqueue, fscancel and fsinfo, and how these commands end.

They do without click: its import takes longer than all else that such a command does.
"""

from __future__ import annotations

import getopt
import sys
from collections.abc import Callable, Sequence
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


_COMMON: Final = (
    Flag("help", about="Show this text."),
    Flag("version", "V", about="Show the version."),
)


def read(program: Program, words: Sequence[str]) -> Given:
    """Read a command line as getopt_long does; of an option that is repeated the last one holds.

    Raises:
        InvalidRequest: an option is unknown, or lacks its value, or has one too many; or there
            are operands where none are taken.
    """
    flags = (*program.flags, *_COMMON)
    names = {f"-{flag.short}": flag.name for flag in flags if flag.short}
    shorts = "".join(flag.short + ":" * bool(flag.value) for flag in flags)
    longs = [flag.name + "=" * bool(flag.value) for flag in flags]
    try:
        options, operands = getopt.gnu_getopt(list(words), shorts, longs)
    except getopt.GetoptError as error:
        raise InvalidRequest(f"{error.msg}; see {program.name} --help") from error
    values = {names.get(option) or option[2:]: value for option, value in options}
    if operands and not program.operands:
        raise InvalidRequest(f"unexpected argument {operands[0]!r}; see {program.name} --help")
    return Given(values, tuple(operands))


def help_text(program: Program) -> str:
    """The text of ``--help``."""
    heads = [_head(flag) for flag in (*program.flags, *_COMMON)]
    width = max(map(len, heads)) + 2
    usage = f"Usage: {program.name} [OPTIONS] {program.operands}".rstrip()
    lines = [usage, "", program.about, "", "Options:"]
    lines += [
        f"  {head:<{width}}{flag.about}"
        for head, flag in zip(heads, (*program.flags, *_COMMON), strict=True)
    ]
    return "\n".join(lines)


def _head(flag: Flag) -> str:
    short = f"-{flag.short}, " if flag.short else "    "
    return f"{short}--{flag.name}" + (f"={flag.value}" if flag.value else "")


def main(program: Program, body: Callable[[Given], int]) -> NoReturn:
    """Run a command and exit; errors are one line and exit status 1, as those of Slurm's.

    Args:
        program: what it takes.
        body: does the work and returns the exit status; may raise errors of ours.
    """
    sys.exit(ended_well(program.name, lambda: _run(program, body)))


def _run(program: Program, body: Callable[[Given], int]) -> int:
    given = read(program, sys.argv[1:])
    if "help" in given:
        print(help_text(program))
        return 0
    if "version" in given:
        print(f"{program.name}, version {__version__}")
        return 0
    return body(given)


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
