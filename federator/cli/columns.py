"""Slurm's format language: columns chosen by letter or by name, and the lines of a table.

Three notations, each as the man page of its command has it::

    squeue -o, sinfo -o    text%[.][WIDTH]LETTERtext...     %.18i %.9P|%T
    squeue -O, sinfo -O    NAME[:[.][WIDTH][TEXT]],...      JobID:12,State:.9,Reason:|
    sacct -o               NAME[%[-]WIDTH],...              JobID,State%20,NodeList%-40

A command brings its columns; its rows may be anything. Widths are characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from federator.cli.text import is_utf8, printable
from federator.errors import InvalidRequest

Row = TypeVar("Row")

NAMED_WIDTH: Final = 20  # of a field of -O that gives none
MAX_WIDTH: Final = 9_999  # of one field
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTER_FIELD: Final = re.compile(r"(\.?)([0-9]*)(.?)(.*)", re.ASCII | re.DOTALL)
_NAMED_FIELD: Final = re.compile(r"(\.?)([0-9]*)(.*)", re.ASCII | re.DOTALL)
_SACCT_WIDTH: Final = re.compile(r"-?[0-9]+", re.ASCII)


class Column(NamedTuple, Generic[Row]):
    """A column that a user can ask for. Of several with one name or letter the first holds."""

    name: str  # in lists of names, where case does not count
    heading: str
    value: Callable[[Row], str]  # need not be fit for a terminal; a table's lines are
    letter: str = ""  # behind ``%``; "": it has none
    width: int = NAMED_WIDTH  # in sacct's tables; below 0: to the left
    whole: bool = False  # set to the right its value is never cut, as Slurm's times and nodes
    whole_heading: bool = False  # nor is its heading


class Field(NamedTuple, Generic[Row]):
    """A column as a user asked for it."""

    column: Column[Row]
    width: int = 0  # 0: as wide as its value
    right: bool = False
    suffix: str = ""  # the user's own text behind it, control characters and all


class Format(NamedTuple, Generic[Row]):
    """All of a line: text in front, then the fields."""

    prefix: str
    fields: tuple[Field[Row], ...]


# ---- squeue and sinfo ----


def by_letters(text: str, columns: Sequence[Column[Row]], kind: str = "job") -> Format[Row]:
    """Read the value of ``-o``: ``%.18i %9P|%T``. ``%all``: all there are, bars between.

    Args:
        text: as the user gave it.
        columns: to choose from.
        kind: in Slurm's error text: ``job`` of squeue, ``node`` of sinfo.

    Raises:
        InvalidRequest: a letter that no column has, a width above ``MAX_WIDTH``, or no UTF-8.
    """
    known: dict[str, Column[Row]] = {}
    for column in columns:
        known.setdefault(column.letter, column)
    known.pop("", None)
    if text.lower() == "%all":
        text = "|".join(f"%{letter}" for letter in _LETTERS if letter in known)
    prefix, *words = _checked(text).split("%")
    fields = []
    for word in filter(None, words):  # "%%" is "%", as in Slurm
        dot, width, letter, suffix = _groups(_LETTER_FIELD, word)
        if letter not in known:
            raise InvalidRequest(f"Invalid {kind} format specification: {letter}")
        fields.append(Field(known[letter], _width(width), bool(dot), suffix))
    return Format(prefix, tuple(fields))


def by_names(text: str, columns: Sequence[Column[Row]]) -> Format[Row]:
    """Read the value of ``-O``: ``JobID:12,State:.9,Reason:|``.

    Args:
        text: as the user gave it. A field without ``:`` has ``NAMED_WIDTH``.
        columns: to choose from.

    Raises:
        InvalidRequest: a name that no column has, a width above ``MAX_WIDTH``, or no UTF-8.
    """
    known = _by_name(columns)
    fields = []
    for word in filter(None, _checked(text).split(",")):
        name, colon, rest = word.partition(":")
        column = known.get(name.lower())
        if column is None:
            raise InvalidRequest(f"Invalid job format specification: {printable(name)}")
        dot, width, suffix = _groups(_NAMED_FIELD, rest)
        size = _width(width) if colon else NAMED_WIDTH
        fields.append(Field(column, size, bool(dot), suffix))
    return Format("", tuple(fields))


def fitted(form: Format[Row], name: str, rows: Iterable[Row]) -> Format[Row]:
    """Widen the fields of the column called ``name`` to the longest of their values."""
    values = [field.column.value for field in form.fields if field.column.name == name]
    widest = max((len(values[0](row)) for row in rows), default=0) if values else 0
    return form._replace(
        fields=tuple(
            field._replace(width=max(field.width, widest)) if field.column.name == name else field
            for field in form.fields
        )
    )


def lines(form: Format[Row], rows: Iterable[Row], *, header: bool) -> Iterator[str]:
    """Write a table as squeue and sinfo do, safe for a terminal but for the user's own texts."""
    cells = [(field.column.value, _cell(field), field.suffix) for field in form.fields]
    if header:
        heads = [_cell(f, heading=True)(f.column.heading) + f.suffix for f in form.fields]
        yield form.prefix + "".join(heads)
    prefix = form.prefix
    for row in rows:
        yield prefix + "".join([cell(value(row)) + suffix for value, cell, suffix in cells])


def _cell(field: Field[Row], *, heading: bool = False) -> Callable[[str], str]:
    """Slurm cuts at the width on the right, whichever side the value is set to."""
    width, right, column = field.width, field.right, field.column
    whole = column.whole_heading if heading else column.whole

    def cell(text: str) -> str:
        if not text.isprintable():
            text = printable(text)
        if not width:
            return text
        if right:
            return text.rjust(width) if whole else text[:width].rjust(width)
        return text[:width].ljust(width)

    return cell


# ---- sacct ----


def by_sacct_names(text: str, columns: Sequence[Column[Row]]) -> tuple[Field[Row], ...]:
    """Read the value of sacct's ``-o``: ``JobID,State%20,NodeList%-40``. ``ALL``: all there are.

    Args:
        text: as the user gave it. A name may be shortened; the first column it fits is meant.
        columns: to choose from, in sacct's order, each with its ``width``.

    Returns:
        The fields, to the right unless their width is below 0.

    Raises:
        InvalidRequest: a name that no column has, a width that is none, or no UTF-8.
    """
    fields: list[Field[Row]] = []
    for word in filter(None, map(str.strip, _checked(text).split(","))):
        name, percent, size = word.partition("%")
        if percent and not _SACCT_WIDTH.fullmatch(size):
            raise InvalidRequest(f"Invalid field size: {printable(word)!r}; expected NAME%20")
        found = _called(name, columns)
        if not found:
            raise InvalidRequest(f'Invalid field requested: "{printable(name)}"')
        for column in found:
            width = int(size) if percent else column.width
            fields.append(Field(column, _width(str(abs(width))), width >= 0))
    return tuple(fields)


def sacct_lines(
    fields: Sequence[Field[Row]], rows: Iterable[Row], *, header: bool
) -> Iterator[str]:
    """Write a table as sacct does: dashes under the header, ``+`` where a value is cut."""
    if header:
        yield "".join(f"{_sacct_cell(f.column.heading[: f.width], f)} " for f in fields)
        yield "".join(f"{'-' * field.width} " for field in fields)
    for row in rows:
        yield "".join([_sacct_cell(field.column.value(row), field) + " " for field in fields])


def delimited_lines(
    fields: Sequence[Field[Row]],
    rows: Iterable[Row],
    *,
    header: bool,
    delimiter: str = "|",
    trailing: bool = False,
) -> Iterator[str]:
    """Write a table as ``sacct -P`` does, nothing cut; with ``trailing`` as ``sacct -p``."""
    end = delimiter if trailing else ""
    if header:
        yield delimiter.join(field.column.heading for field in fields) + end
    values = [field.column.value for field in fields]
    for row in rows:
        texts = [value(row) for value in values]
        yield delimiter.join([t if t.isprintable() else printable(t) for t in texts]) + end


def _sacct_cell(text: str, field: Field[Row]) -> str:
    text, width = printable(text), field.width
    if len(text) > width:
        text = text[: width - 1] + "+" if width else ""
    return text.rjust(width) if field.right else text.ljust(width)


def _called(name: str, columns: Sequence[Column[Row]]) -> list[Column[Row]]:
    wanted = name.lower()
    if wanted and "all".startswith(wanted):
        return list(columns)
    return [c for c in columns if wanted and c.name.lower().startswith(wanted)][:1]


# ---- all ----


def _checked(text: str) -> str:
    if not is_utf8(text):
        raise InvalidRequest(f"the format {printable(text)[:80]!r} holds bytes that are not UTF-8")
    return text


def _by_name(columns: Sequence[Column[Row]]) -> dict[str, Column[Row]]:
    known: dict[str, Column[Row]] = {}
    for column in columns:
        known.setdefault(column.name.lower(), column)
    return known


def _groups(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    """The groups of a pattern that fits any text."""
    match = pattern.fullmatch(text)
    return tuple(match.groups()) if match is not None else ()


def _width(digits: str) -> int:
    """Raise ``InvalidRequest`` above ``MAX_WIDTH``: it would only fill memory with blanks."""
    width = int(digits[:9] or 0)
    if width > MAX_WIDTH:
        raise InvalidRequest(f"Invalid field size: {digits[:20]}; at most {MAX_WIDTH}")
    return width
