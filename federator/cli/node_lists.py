"""Lists of nodes in Slurm's bracket notation, ``n[1-3,07]``, without the import of a library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from federator.errors import InvalidRequest

MAX_NAMES: Final = 65_536  # of one list that a user gives
MAX_BRACKETS: Final = 256  # of the same
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII)
_WORD: Final = re.compile(r"(?:[^,\[\]]|\[[0-9,-]*\])+", re.ASCII)
_BRACKET: Final = re.compile(r"\[([0-9,-]*)\]", re.ASCII)
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def folded(names: Sequence[str]) -> str:
    """Write names in bracket notation, sorted; only plain ones, for sites make them up."""
    if len(names) <= 1 or not all(map(_PLAIN.fullmatch, names)):
        return ",".join(names)
    found = [match.groups() for name in names if (match := _NUMBERED.fullmatch(name))]
    padded = {prefix for prefix, digits in found if digits.startswith("0") and digits != "0"}
    numbers: dict[tuple[str, int], list[int]] = {
        (name, -1): [] for name in names if not _NUMBERED.fullmatch(name)
    }
    for prefix, digits in found:
        width = len(digits) if prefix in padded else 0
        numbers.setdefault((prefix, width), []).append(int(digits))
    return ",".join(_group(*key, numbers[key]) for key in sorted(numbers))


def _group(prefix: str, width: int, numbers: list[int]) -> str:
    if width < 0:
        return prefix
    ranges = list(_ranges(sorted(set(numbers)), width))
    text = ",".join(ranges)
    return f"{prefix}{text}" if len(ranges) == 1 and "-" not in text else f"{prefix}[{text}]"


def _ranges(numbers: list[int], width: int) -> Iterator[str]:
    start = at = numbers[0]
    for number in [*numbers[1:], None]:
        if number == at + 1:
            at = number
            continue
        yield f"{start:0{width}}" if start == at else f"{start:0{width}}-{at:0{width}}"
        if number is not None:
            start = at = number


def expanded(text: str, option: str) -> frozenset[str]:
    """Read a list of nodes that a user gives.

    Args:
        text: such as ``n1,g[01-04]``.
        option: named in the error.

    Raises:
        InvalidRequest: it is none, or has more than ``MAX_NAMES`` names.
    """
    words = _WORD.findall(text)
    if not words or ",".join(words) != text.strip(",") or text.count("[") > MAX_BRACKETS:
        raise InvalidRequest(f"'{text[:80]}' invalid entry for {option}")
    names: set[str] = set()
    for word in words:
        for name in _of_word(word, text, option):
            names.add(name)
            if len(names) > MAX_NAMES:
                raise InvalidRequest(f"{option} has more than {MAX_NAMES} nodes")
    return frozenset(names)


def _of_word(word: str, text: str, option: str) -> Iterable[str]:
    match = _BRACKET.search(word)
    if match is None:
        yield word
        return
    head, tail = word[: match.start()], word[match.end() :]
    for part in match[1].split(","):
        bounds = _RANGE.fullmatch(part)
        if bounds is None or int(bounds[2] or bounds[1]) < int(bounds[1]):
            raise InvalidRequest(f"'{text[:80]}' invalid entry for {option}")
        width = len(bounds[1])
        for number in range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1):
            for end in _of_word(tail, text, option):
                yield f"{head}{number:0{width}}{end}"
