"""Writes the completion of zsh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from federator.cli.reference.commands import CommandOption, CommandReference
from federator.cli.reference.sources import FIRST_WORDS, Source, of_operands, of_option

_SHARED: Final = r"""
(( $+functions[_federator_live] )) || _federator_live() { # KIND: what the daemon knows
    local -a words
    words=("${(@f)$(fsqueue --complete=$1 2>/dev/null)}")
    words=("${(@)words//:/\\:}")
    words=("${(@)words/$'\t'/:}")
    compset -P '*[,:]'
    _describe -V $1 words
}
(( $+functions[_federator_after] )) || _federator_after() { # KIND WORD...: "afterok:ID"
    if compset -P '*:'; then
        _federator_live $1
    else
        shift
        compset -P '*,'
        compadd -S '' -- $@
    fi
}
(( $+functions[_federator_offer] )) || _federator_offer() { # WORD...: in a list with commas, too
    compset -P '*,'
    compadd -- $@
}
"""


def script(program: str, commands: Sequence[CommandReference]) -> str:
    """Return the completion of one program; it may be in fpath, or sourced.

    Args:
        program: its name.
        commands: it, and those below it.
    """
    lines = [f"#compdef {program}", "# made by federator completion zsh", _SHARED]
    for command in reversed(commands):
        lines += _function(command, commands)
    name = f"_{program}"
    lines += [
        f'if [[ $funcstack[1] = {name} ]]; then {name} "$@"; else compdef {name} {program}; fi',
        "",
    ]
    return "\n".join(lines)


def _named(command: CommandReference) -> str:
    return "_" + "_".join(command.words)


def _function(command: CommandReference, commands: Sequence[CommandReference]) -> Iterator[str]:
    first = command.inner or FIRST_WORDS.get(command.name, ())
    yield f"{_named(command)}() {{"
    yield "    local curcontext=$curcontext state"
    yield "    typeset -A opt_args"
    yield f"    _arguments -C {'' if first else '-s '}-S \\"
    for option in command.options:
        if not option.instead:
            yield f"        {_spec(command, option)} \\"
    if not first:
        yield f"        {_quoted(f'*:operand:{_action(of_operands(command))}')}"
    else:
        words = " ".join(first)
        yield f"        {_quoted(f'1:command:({words})')} \\"
        yield f"        {_quoted('*::operand:->operands')}"
        yield "    [[ $state = operands ]] || return"
        yield from _below(command, commands)
    yield "}"


def _below(command: CommandReference, commands: Sequence[CommandReference]) -> Iterator[str]:
    inner = [each for each in commands if each.words[:-1] == command.words]
    if not inner:
        yield f"    {_action(of_operands(command))}"
        return
    yield "    case $words[1] in"
    for each in inner:
        yield f"        {each.words[-1]}) {_named(each)} ;;"
    yield "    esac"


def _spec(command: CommandReference, option: CommandOption) -> str:
    """One argument of _arguments: ``'(-A --accounts)'{-A+,--accounts=}'[…]:NAMES:…'``."""
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    names = [f"{name}{_takes(option, name)}" for name in option.names]
    head = "{" + ",".join(names) + "}" if len(names) > 1 else names[0]
    about = option.about.replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
    tail = f"[{about}]"
    if option.value:
        value = option.value.replace(":", r"\:")
        colons = "::" if option.is_optional else ":"
        tail += f"{colons}{value}:{_action(of_option(command, option))}"
    return (_quoted(others) if others else "") + head + _quoted(tail)


def _takes(option: CommandOption, name: str) -> str:
    if not option.value:
        return ""
    if name.startswith("--"):
        return "=-" if option.is_optional else "="
    return "-" if option.is_optional else "+"


def _action(source: Source) -> str:
    words = " ".join(word.replace(":", r"\:") for word in source.words)
    if source.words and source.live:
        return f" _federator_after {source.live} {words}"
    if source.words:
        return f" _federator_offer {words}"
    if source.live:
        return f" _federator_live {source.live}"
    return "_files" if source.is_path else " "


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"
