"""Writes the completion of fish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from federator.cli.reference.commands import CommandOption, CommandReference
from federator.cli.reference.sources import FIRST_WORDS, Source, of_operands, of_option

_SHARED: Final = r"""
function __federator_live # KIND [WORD...]: what the daemon knows, and words; in a list, too
    set -l cur (commandline -ct | string replace -r -- '^--?[A-Za-z-]+=' '')
    set -l start (string match -r -- '.*[,:]' $cur)
    for line in $argv[2..-1] (fsqueue --complete=$argv[1] 2>/dev/null)
        echo "$start$line"
    end
end
function __federator_offer # WORD...: in a list with commas, too
    set -l cur (commandline -ct | string replace -r -- '^--?[A-Za-z-]+=' '')
    set -l start (string match -r -- '.*,' $cur)
    for word in $argv
        echo "$start$word"
    end
end
function __federator_at # WORD...: the command line begins with these commands
    set -l words (commandline -opc | string match -v -- '-*')
    for at in (seq (count $argv))
        set -l next (math $at + 1)
        test "$words[$next]" = "$argv[$at]"; or return 1
    end
end
function __federator_now # WORD...: and has no command behind them yet
    set -l words (commandline -opc | string match -v -- '-*')
    test (count $words) = (math (count $argv) + 1); and __federator_at $argv
end
"""


def script(program: str, commands: Sequence[CommandReference]) -> str:
    """Return the completion of one program.

    Args:
        program: its name.
        commands: it, and those below it.
    """
    lines = [f"# fish completion of {program}, made by federator completion fish", _SHARED]
    for command in commands:
        lines += _lines(program, command)
    return "\n".join([*lines, ""])


def _lines(program: str, command: CommandReference) -> Iterator[str]:
    place = " ".join(command.words[1:])
    given = f"complete -c {program}"
    if command.inner or place:
        named = f"__federator_{'now' if command.inner else 'at'} {place}".rstrip()
        given += f" -n {_quoted(named)}"
    first = command.inner or FIRST_WORDS.get(command.name, ())
    if first:
        yield f"complete -c {program} -n {_quoted(f'__federator_now {place}'.rstrip())} -f " + (
            f"-a {_quoted(' '.join(first))}"
        )
    if not command.inner:
        yield f"{given} {_takes(of_operands(command))}".rstrip()
    for option in command.options:
        if not option.instead:
            yield f"{given} {_option(command, option)}"


def _option(command: CommandReference, option: CommandOption) -> str:
    parts = [f"-l {name.removeprefix('--')}" for name in option.long]
    parts += [f"-s {name.removeprefix('-')}" for name in option.short]
    if option.value:
        parts.append("" if option.is_optional else "-r")
        parts.append(_takes(of_option(command, option)))
    parts.append(f"-d {_quoted(option.about)}")
    return " ".join(filter(None, parts))


def _takes(source: Source) -> str:
    words = " ".join(source.words)
    if source.live:
        return f"-f -k -a {_quoted(f'(__federator_live {source.live} {words})'.replace(' )', ')'))}"
    if source.words:
        return f"-f -k -a {_quoted(f'(__federator_offer {words})')}"
    return "-F" if source.is_path else "-f"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
