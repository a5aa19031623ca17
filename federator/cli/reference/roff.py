"""Writes the language of man pages, also from the Markdown of the documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_ESCAPES: Final = str.maketrans({"\\": r"\e", "-": r"\-", "'": r"\(aq", "^": r"\(ha", "~": r"\(ti"})
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_SPAN: Final = re.compile(r"(`[^`]+`|\*\*[^*]+\*\*|\*[^* ][^*]*\*)")
_CELL: Final = re.compile(r"(?<!\\)\|")
_RULE: Final = re.compile(r"^\|(?:\s*:?-+:?\s*\|)+$")
_BULLET: Final = re.compile(r"^(?:[-*]|\d+\.) +")


def joined(lines: Iterable[str]) -> str:
    """The page; a paragraph needs no request where a heading has begun one."""
    kept: list[str] = []
    for line in lines:
        if line != ".PP" or not kept or not kept[-1].startswith((".SH", ".SS", ".PP")):
            kept.append(line)
    return "\n".join(kept) + "\n"


def plain(text: str) -> str:
    """Text as it is: nothing in it is a request or an escape."""
    escaped = text.translate(_ESCAPES)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def bold(text: str) -> str:
    return rf"\fB{text.translate(_ESCAPES)}\fR"


def italic(text: str) -> str:
    return rf"\fI{text.translate(_ESCAPES)}\fR"


def section(title: str) -> str:
    return f'.SH "{plain(title.upper())}"'


def inline(text: str) -> str:
    """A line of Markdown: code and strong words bold, emphasis italic, of links their words."""
    parts = _SPAN.split(_LINK.sub(r"\1", text))
    return "".join(map(_span, parts)) if parts[0] else r"\&" + "".join(map(_span, parts))


def _span(part: str) -> str:
    if part.startswith("`"):
        return bold(part.strip("`"))
    if part.startswith("**"):
        return bold(part.strip("*"))
    if part.startswith("*") and len(part) > 2:
        return italic(part.strip("*"))
    return plain(part)


def entry(head: str, body: Iterable[str]) -> Iterator[str]:
    """A tagged paragraph; both are roff already."""
    yield ".TP"
    yield head
    yield from body


def example(lines: Iterable[str]) -> Iterator[str]:
    """Lines as they are, none of them filled."""
    yield from (".PP", ".RS 4", ".nf")
    yield from (plain(line) or r"\&" for line in lines)
    yield from (".fi", ".RE")


def from_markdown(text: str) -> Iterator[str]:
    """Turn the body of a section into roff: paragraphs, lists, tables, code, headings below it."""
    lines = text.strip("\n").splitlines()
    while lines:
        if lines[0].startswith("```"):
            end = next(at for at, line in enumerate(lines[1:], 1) if line.startswith("```"))
            yield from example(lines[1:end])
            del lines[: end + 1]
        elif lines[0].startswith("#"):
            yield f'.SS "{inline(lines.pop(0).lstrip("# "))}"'
        elif not lines[0].strip():
            lines.pop(0)
        else:
            yield from _block(_taken(lines))


def _taken(lines: list[str]) -> list[str]:
    """The lines up to the next blank one, taken off the list."""
    end = next((at for at, line in enumerate(lines) if not line.strip()), len(lines))
    taken = lines[:end]
    del lines[:end]
    return taken


def _block(lines: Sequence[str]) -> Iterator[str]:
    if lines[0].startswith("|"):
        yield from _table(lines)
    elif _BULLET.match(lines[0]):
        yield from _list(lines)
    else:
        yield ".PP"
        yield inline(" ".join(map(str.strip, lines)))  # code and links may span lines


def _list(lines: Sequence[str]) -> Iterator[str]:
    items: list[str] = []
    for line in lines:
        if _BULLET.match(line):
            items.append(_BULLET.sub("", line))
        else:
            items[-1] += f" {line.strip()}"
    for item in items:
        yield r".IP \(bu 2"
        yield inline(item)


def _table(lines: Sequence[str]) -> Iterator[str]:
    """A row becomes a paragraph: its first cell is the tag, the others have their column's name."""
    rows = [
        [cell.strip().replace(r"\|", "|") for cell in _CELL.split(line)[1:-1]] for line in lines
    ]
    is_ruled = len(lines) > 1 and _RULE.match(lines[1]) is not None
    titles = rows[0] if is_ruled else [""] * len(rows[0])
    for first, *rest in rows[2:] if is_ruled else rows:
        body = [
            f"{plain(title)}: {inline(cell)}." if len(rest) > 1 and title else inline(cell)
            for title, cell in zip(titles[1:], rest, strict=True)
            if cell
        ]
        yield from entry(inline(first) or r"\&", body or [r"\&"])
