"""Writes the completion of bash."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from federator.cli.reference.commands import CommandOption, CommandReference
from federator.cli.reference.sources import FIRST_WORDS, Source, of_operands, of_option

# "--users=ada" reaches a function as three words, "afterok:7" likewise. Nothing that the daemon
# tells is ever expanded, as compgen -W would.
_SHARED: Final = r"""
_federator_offer() { # WORD...: those that fit, of a list with commas its last part
    local start= word
    [[ $cur != *,* ]] || start=${cur%,*},
    for word; do
        [[ $word != "${cur##*,}"* ]] || COMPREPLY+=("$start$word")
    done
    [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *[=:] ]] || compopt -o nospace 2>/dev/null
}
_federator_live() { # KIND: what the daemon knows
    local words
    mapfile -t words < <(fsqueue --complete="$1" 2>/dev/null)
    _federator_offer "${words[@]%%$'\t'*}"
}
_federator_files() {
    compopt -o default 2>/dev/null
}
_federator_words() { # sets cur and given: the option whose value is typed, "=" before it if typed
    cur=${COMP_WORDS[COMP_CWORD]} given=${COMP_WORDS[COMP_CWORD - 1]}
    if [[ $cur = = ]]; then
        cur= given="=$given"
    elif [[ $given = = ]]; then
        given="=${COMP_WORDS[COMP_CWORD - 2]}"
    fi
    [[ $cur != : ]] || cur= given=:
    COMPREPLY=()
}
"""


def script(program: str, commands: Sequence[CommandReference]) -> str:
    """Return the completion of one program.

    Args:
        program: its name.
        commands: it, and those below it.
    """
    lines = [f"# bash completion of {program}, made by federator completion bash", _SHARED]
    for command in commands:
        lines += _function(command)
    lines += _chosen(program, commands)
    lines.append(f"complete -F _{_named(program)} {program}\n")
    return "\n".join(lines)


def _named(name: str) -> str:
    return name.replace(" ", "_").replace("-", "_")


def _chosen(program: str, commands: Sequence[CommandReference]) -> Iterator[str]:
    """The function that bash calls: it finds the command that the line names so far."""
    yield f"_{_named(program)}() {{"
    yield f"    local cur given word command={_named(program)}"
    if len(commands) > 1:
        below = " | ".join(_named(each.name) for each in commands[1:])
        yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
        yield f"        case ${{command}}_${{word//-/_}} in {below})"
        yield "            command=${command}_${word//-/_} ;;"
        yield "        esac"
        yield "    done"
    yield "    _federator_words"
    yield '    "_federator_of_$command"'
    yield "}"


def _function(command: CommandReference) -> Iterator[str]:
    options = [option for option in command.options if not option.instead]
    yield f"_federator_of_{_named(command.name)}() {{"
    yield "    case $given in"
    for pattern, action in _values(command, options):
        yield f"        {pattern}) {action}; return ;;"
    yield "    esac"
    yield "    if [[ $cur = -* ]]; then"
    yield f"        _federator_offer {' '.join(_offered(options))}"
    yield "        return"
    yield "    fi"
    yield from (f"    {line}" for line in _operands(command))
    yield "}"


def _offered(options: Iterable[CommandOption]) -> Iterator[str]:
    for option in options:
        for name in option.long:
            yield f"{name}=" if option.is_optional else name
        yield from option.short


def _values(
    command: CommandReference, options: Iterable[CommandOption]
) -> Iterator[tuple[str, str]]:
    """A pattern of options that take a value, and what offers it."""
    by_action: dict[str, list[str]] = {}
    for option in options:
        if not option.value:
            continue
        source = of_option(command, option)
        patterns = by_action.setdefault(_action(source), [])
        patterns += [f"={name}" for name in option.long]
        patterns += [] if option.is_optional else option.names
        if source.words and source.live:
            by_action.setdefault(f"_federator_live {source.live}", []).append(":")
    for action, patterns in by_action.items():
        yield " | ".join(patterns), action


def _action(source: Source) -> str:
    if source.words:
        return f"_federator_offer {shlex.join(source.words)}"
    if source.live:
        return f"_federator_live {source.live}"
    return "_federator_files" if source.is_path else ":"


def _operands(command: CommandReference) -> Iterator[str]:
    first = command.inner or FIRST_WORDS.get(command.name, ())
    if command.inner:
        yield f"_federator_offer {' '.join(first)}"
        return
    if first:
        yield f"[[ $COMP_CWORD != 1 ]] || {{ _federator_offer {' '.join(first)}; return; }}"
    yield _action(of_operands(command))
