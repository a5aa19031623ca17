"""Describes an error in a JSON file in one line: file, place, and what was expected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from federator.errors import InvalidRequest

SHOWN: Final = 80  # characters of any one name or value that a message shows

_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "bool": "true or false",
}

_PLACE: Final = re.compile(r" - at `\$\.?([a-z0-9_.\[\]]*)`$")
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[]+)")

T = TypeVar("T", bound=Struct)


def read_json(path: Path, kind: type[T], kinds: Mapping[str, type[Struct]]) -> T:
    """Read a file that holds one object.

    Args:
        path: of the file.
        kind: the object.
        kinds: what is expected at a place, by its path without indices; ``kind`` at "".

    Raises:
        InvalidRequest: one line with the file, the place in it, and what was expected there.
    """
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise InvalidRequest(f"{path}: cannot be read: {said or error}") from error
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        mistake = error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}:{_not_json(data, error)}") from error
    except RecursionError as error:
        raise InvalidRequest(f"{path}: lists or objects nested too deeply") from error
    where, message = _explained(mistake, data, kinds)
    raise InvalidRequest(f"{path}: {where}: {message}") from mistake


def _explained(
    error: msgspec.ValidationError, data: bytes, kinds: Mapping[str, type[Struct]]
) -> tuple[str, str]:
    """The place of the error, and what was expected there."""
    message, *places = _PLACE.split(str(error))
    where = places[0] if places else ""
    if "field `" in message:
        kind, _, name = message[:-1].partition("field `")
        of = kinds.get(re.sub(r"\[\d+\]", "", where), kinds[""])
        if "missing" in kind:
            return where or "file", f"expected a field '{name}', found none"
        known = ", ".join(of.__struct_fields__)
        return where or "file", f"unknown field '{brief(name)}'; expected {known}"
    if message.endswith("out of range"):
        message = "expected a smaller number"
    expected, _, got = message.partition(", got ")
    words = re.sub(r"`(.*?)`", lambda m: _in_words(m[1]), expected[:1].lower() + expected[1:])
    found = _found(data, where) or _in_words(got.strip("`"))
    words = words.removesuffix(".0") + (f", found {found}" if found else "")
    return where or "file", words


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))


def _found(data: bytes, where: str) -> str:
    """The value at a place as JSON; "" when the file cannot be read as far as that."""
    try:
        value: Any = msgspec.json.decode(data)
        for index, key in _STEP.findall(where):
            value = value[int(index) if index else key]
        return brief(msgspec.json.encode(value).decode())
    except (msgspec.MsgspecError, ValueError, RecursionError, LookupError, OverflowError):
        return ""


def _not_json(data: bytes, error: msgspec.DecodeError | UnicodeDecodeError) -> str:
    """Line and column of what is not JSON, and what it is."""
    place = re.search(r"\(byte (\d+)\)$", str(error))
    try:
        data.decode()
    except UnicodeDecodeError as wrong:
        at, message = wrong.start, "not UTF-8"
    else:
        at, message = int(place[1]) if place else len(data), "not JSON"
        at -= "trailing characters" in str(error)  # there msgspec has read one on
    line = data.count(b"\n", 0, at) + 1
    column = len(data[data.rfind(b"\n", 0, at) + 1 : at].decode(errors="replace")) + 1
    if message == "not JSON" and place is None:
        message += ": it ends too early, or a string has half a surrogate pair"
    elif data.startswith((b"NaN", b"Infinity"), at):
        message += ": expected a number; NaN and Infinity are none"
    else:
        message += f": found {brief(data[at : at + 12].decode(errors='replace'))}"
    return f"{line}:{column}: {message}"


def brief(text: str, most: int = SHOWN) -> str:
    """One line of at most ``most`` characters, safe for a terminal."""
    text = text[: most + 1]
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= most else text[: most - 1] + "…"
