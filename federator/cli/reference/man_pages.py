"""Makes a man page of each command: its parser's options, and its sections of the documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from federator import __version__, data_files
from federator.cli.reference import roff
from federator.cli.reference.commands import CommandOption, CommandReference

# The documents that have sections about commands, and what such a section is called in a page.
_DOCUMENTS: Final = (("commands.md", "Notes"), ("history.md", "Notes"), ("formats.md", "JSON"))
_HEADING: Final = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LIKE_SLURMS: Final = {
    **{
        f"fs{name}": f"s{name}"
        for name in ("batch", "queue", "cancel", "info", "acct", "prio", "eff")
    },
    "fsshare": "sshare",
    "fsalloc": "salloc",
    "fsrun": "srun",
    "fscontrol": "scontrol",
}


def documents() -> dict[str, str]:
    """Return the documents that have sections about commands, by name.

    Raises:
        ConfigError: this installation lacks them.
    """
    folder: Path = data_files.tree("docs")
    return {name: (folder / name).read_text(encoding="utf-8") for name, _ in _DOCUMENTS}


def man_pages(commands: Sequence[CommandReference], texts: Mapping[str, str]) -> dict[str, str]:
    """Return the page of each command by the name of its file: ``federator-drain.1``.

    Args:
        commands: those to write about; a page refers to the others.
        texts: see ``documents``.
    """
    return {f"{_page(command)}.1": _text(command, commands, texts) for command in commands}


def _page(command: CommandReference) -> str:
    return "-".join(command.words)


def _text(
    command: CommandReference, commands: Sequence[CommandReference], texts: Mapping[str, str]
) -> str:
    about, _, examples = command.about.partition("\n\nExample")
    paragraphs = about.split("\n\n")
    first = " ".join(paragraphs[0].split()).rstrip(".")
    lines = [
        f'.TH "{_page(command).upper()}" "1" "" "Federator {__version__}" "Federator"',
        roff.section("Name"),
        rf"{roff.plain(_page(command))} \- {roff.plain(first)}",
        roff.section("Synopsis"),
        f"{roff.bold(command.name)} {roff.plain(command.operands)}",
        roff.section("Description"),
        *_paragraphs(paragraphs),
        *_commands_below(command, commands),
        *_options("Options", [each for each in command.options if not each.instead]),
        *_refused([each for each in command.options if each.instead]),
        *_environment(command),
        *_examples(examples),
        *_sections(command, texts),
        *_see_also(command, commands),
    ]
    return roff.joined(lines)


def _paragraphs(paragraphs: Sequence[str]) -> Iterator[str]:
    """Paragraphs that are filled, and those of indented lines, which are not."""
    for paragraph in paragraphs:
        if paragraph.startswith("  "):
            yield from roff.example(paragraph.splitlines())
        else:
            yield ".PP"
            yield from map(roff.plain, paragraph.splitlines())


def _commands_below(
    command: CommandReference, commands: Sequence[CommandReference]
) -> Iterator[str]:
    below = [each for each in commands if each.words[:-1] == command.words]
    if below:
        yield roff.section("Commands")
    for each in below:
        first = each.about.partition("\n\n")[0]
        yield from roff.entry(roff.bold(each.words[-1]), [roff.plain(first)])


def _options(title: str, options: Sequence[CommandOption]) -> Iterator[str]:
    yield roff.section(title)
    for option in options:
        body = [roff.plain(option.about)]
        if option.variable:
            body.append(f"Environment: {roff.bold(option.variable)}.")
        yield from roff.entry(_head(option), body)


def _refused(options: Sequence[CommandOption]) -> Iterator[str]:
    if not options:
        return
    yield roff.section("Options of Slurm's that are refused")
    for option in options:
        yield from roff.entry(_head(option), [roff.plain(f"Instead: {option.instead}.")])


def _head(option: CommandOption) -> str:
    names = ", ".join(map(roff.bold, option.names))
    if not option.value:
        return names
    value = f"={roff.italic(option.value)}"
    return f"{names}[{value}]" if option.is_optional else names + value


def _environment(command: CommandReference) -> Iterator[str]:
    if command.variables:
        yield roff.section("Environment")
    for name, about in command.variables:
        yield from roff.entry(roff.bold(name), [roff.plain(about)])


def _examples(text: str) -> Iterator[str]:
    """``: a · b`` or a line for each, as ``--help`` has them."""
    words = text.partition(":")[2].strip()
    if words:
        yield roff.section("Examples")
        yield from roff.example(re.split(r"\s+·\s+|\n", words))


def _sections(command: CommandReference, texts: Mapping[str, str]) -> Iterator[str]:
    """The sections of the documents about this command."""
    for name, title in _DOCUMENTS:
        found = list(_about(command.name, texts[name]))
        if found:
            yield roff.section(title)
        for heading, body in found:
            if title == "JSON":
                yield f'.SS "{roff.inline(heading)}"'
            yield from roff.from_markdown(body)


def _about(name: str, text: str) -> Iterator[tuple[str, str]]:
    """The headings that name a command, such as ``## fsqueue``, each with what is below it."""
    named = re.compile(rf"(?:^|, )`?{re.escape(name)}(?=`|$|:|,| --)")
    headings = list(_HEADING.finditer(text))
    for at, heading in enumerate(headings):
        if not named.search(heading[2]) or len(heading[1]) < 2:
            continue
        later = headings[at + 1 :]
        end = next((h.start() for h in later if len(h[1]) <= len(heading[1])), len(text))
        yield heading[2], text[heading.end() : end]


def _see_also(command: CommandReference, commands: Sequence[CommandReference]) -> Iterator[str]:
    near = [
        _page(each)
        for each in commands
        if each is not command
        and (len(each.words) == 1 or each.words[: len(command.words)] == command.words)
    ]
    slurms = command.name[1:] if command.name in _LIKE_SLURMS else ""
    yield roff.section("See also")
    pages = [*([slurms] if slurms else []), *near]
    yield ",\n".join(rf"{roff.bold(page)}(1)" for page in pages)
