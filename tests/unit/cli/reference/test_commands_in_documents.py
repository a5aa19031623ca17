"""Commands that documents show are taken by the parsers: the command is there, and its options."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from federator.cli.reference.commands import CommandOption, CommandReference, every_command

ROOT: Final = Path(__file__).parents[4]
PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK: Final = re.compile(
    r"^( *)```(?:bash|sh|console|text)?\n(.*?)^\1```", re.DOTALL | re.MULTILINE
)
SPAN: Final = re.compile(r"`([^`\n]+)`")
LINE: Final = re.compile(r"^(?:[$#] )?((?:federator|fs[a-z]+)(?: .*|$))")
ENDS: Final = re.compile(r" (?:\||\|\||&&|;|>|2>|<|#|→) |;|  +#")  # of a command in its line
RUN_ON: Final = ("fsbatch", "fsrun", "fsalloc")  # what follows an operand is another program's


@functools.cache
def references() -> dict[tuple[str, ...], CommandReference]:
    return {command.words: command for command in every_command()}


def shown(text: str) -> Iterator[str]:
    """Command lines of a page: of its blocks, and spans that name an option."""
    for block in BLOCK.finditer(text):
        for line in block[2].replace("\\\n", " ").splitlines():
            if found := LINE.match(line.strip()):
                yield found[1]
    for span in SPAN.finditer(BLOCK.sub("", text)):
        found = LINE.match(span[1])
        if found and " -" in found[1]:
            yield found[1]


def faults(line: str) -> Iterator[str]:
    words = split(ENDS.split(line)[0])
    depth = max((n for n in range(1, 5) if tuple(words[:n]) in references()), default=0)
    if not depth:
        if words[0] != "federator" and re.fullmatch("fs[a-z]+", words[0]):
            yield f"no command {words[0]}"
        return
    command = references()[tuple(words[:depth])]
    if command.inner and depth < len(words) and re.fullmatch("[a-z-]+", words[depth]):
        yield f"{command.name} has no command {words[depth]}"
    of_program = references()[tuple(words[:1])].options
    yield from unknown(words[depth:], (*command.options, *of_program), command)


def split(text: str) -> list[str]:
    plain = re.sub(r"[][…]", " ", text)  # what may be left out
    try:
        return shlex.split(plain)
    except ValueError:
        return plain.split()


def unknown(
    words: Sequence[str], options: Sequence[CommandOption], command: CommandReference
) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word == "--" or (word[:1] != "-" and command.words[0] in RUN_ON):
            return
        found: list[CommandOption] = []
        for name in names(word, options):
            known = [option for option in options if any(n.startswith(name) for n in option.names)]
            known.sort(key=lambda option: name not in option.names)
            found += known[:1]
            if not known:
                yield f"{command.name} has no option {name}"
        if found and found[-1].value and not found[-1].is_optional and not has_value(word):
            next(rest, None)


def names(word: str, options: Sequence[CommandOption]) -> Iterator[str]:
    """The options in a word: ``--hold|--release``, ``-la``."""
    if word.startswith("--"):
        yield from re.findall(r"--[a-zA-Z][\w-]*", word)
    elif word[:1] == "-" and word[1:2].isalpha():
        takes = {name for option in options if option.value for name in option.short}
        for letter in word[1:]:
            yield f"-{letter}"
            if f"-{letter}" in takes:
                return


def has_value(word: str) -> bool:
    return "=" in word if word.startswith("--") else len(word) > 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_a_page_shows_no_command_or_option_that_is_not_there(page: Path) -> None:
    found = {line: list(faults(line)) for line in shown(page.read_text())}
    assert {line: wrong for line, wrong in found.items() if wrong} == {}


def test_such_a_command_would_be_found() -> None:
    block = "```\n$ federator drane alpine\nfsqueue --whence -j 7 | head -3\n```\n"
    assert [wrong for line in shown(block + "`fsinfo -N --reson x`") for wrong in faults(line)] == [
        "federator has no command drane",
        "fsqueue has no option --whence",
        "fsinfo has no option --reson",
    ]
