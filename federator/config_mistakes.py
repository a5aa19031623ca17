"""The mistakes in federation.yaml, in plain words: file, line, key, and what was expected there."""

from __future__ import annotations

import difflib
import reprlib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

_SHOWN: Final = 80  # characters of any one name or value that a message shows
_LISTED: Final = 10  # names that a message lists

Mistake = tuple[tuple[str, ...], str]  # keys that lead to it, counted from the model; message


def refuse(mistakes: Iterable[Mistake]) -> None:
    """Raise for mistakes that no single key shows; ``explain`` gives each its line."""
    found = tuple(mistakes)
    if found:
        text = "; ".join(f"{'.'.join(map(brief, keys))}: {message}" for keys, message in found)
        raise PydanticCustomError("mistakes", "{text}", {"text": text, "mistakes": found})


def brief(text: str, most: int = _SHOWN) -> str:
    """One line of at most ``most`` characters."""
    text = text[: most + 1]
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= most else text[: most - 1] + "…"


def some(names: Iterable[str]) -> str:
    """The first few of the names, for a message."""
    known = list(names)
    more = f", … ({len(known)} in all)" if len(known) > _LISTED else ""
    return (", ".join(map(brief, known[:_LISTED])) or "none") + more


def one_word_of(words: type[Enum] | tuple[str, ...], value: object) -> object:
    """The word as it was found, if it is a value of ``words``; YAML reads a bare on or off as bool.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool):
        value = "on" if value else "off"
    known = [each.value if isinstance(each, Enum) else each for each in words]
    if value not in (*known, *words):
        raise ValueError(f"expected {', '.join(known[:-1])} or {known[-1]}")
    return value


def one_of(name: str, known: Iterable[str]) -> str:
    """Advice in place of an unknown name: the one that is meant, or those that there are."""
    names = list(known)
    meant = difflib.get_close_matches(name[:_SHOWN], names, n=1)
    return f"did you mean {brief(meant[0])}?" if meant else f"one of {some(names)}"


# ---- the text ----


class Loader(yaml.SafeLoader):
    """YAML in which every key counts once, and every mistake has a line."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise ConstructorError(None, None, f"{key.value}: given twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # such as a date in month 13
            raise ConstructorError(None, None, str(error), node.start_mark) from error


NOT_YAML: Final = (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError, RecursionError)
"""What PyYAML raises: also for a value that is not what its tag says, and for too deep nesting."""


def not_yaml(text: str, error: Exception) -> str:
    """The line, and why it is no YAML."""
    line, problem = 1, " ".join(str(error).split())
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line, problem = error.problem_mark.line + 1, error.problem or problem
    elif isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
    return f"{line}: not YAML as expected: {brief(problem, 3 * _SHOWN)}"


def line(path: Path, tree: yaml.Node | None, keys: Sequence[str], message: str) -> str:
    """One mistake, as ``FILE:LINE: KEY: MESSAGE``."""
    where = ".".join(map(brief, keys)) or "file"
    return f"{path}:{_line_of(tree, keys)}: {where}: {message}"


def _line_of(node: yaml.Node | None, keys: Sequence[str]) -> int:
    """The line of the innermost of ``keys`` that the file has, counted from 1."""
    number = 1
    for key in keys:
        child = None
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                if name.value == key:
                    number, child = name.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
            child = node.value[int(key)]
            number = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return number


# ---- the values ----


def expected_of(field: FieldInfo) -> str:
    """The value that a key takes, for instance ``a number above 0``."""
    return _expected(_bare(field.annotation, field.metadata))


def type_of(field: FieldInfo) -> Any:
    """The type of a key's value, without bounds."""
    return _bare(field.annotation).type


class _Place(NamedTuple):
    """The value that some keys take: its type, and what else bounds it."""

    type: Any
    bounds: tuple[Any, ...] = ()


def explain(
    path: Path, tree: yaml.Node | None, model: type[BaseModel], errors: Iterable[Mapping[str, Any]]
) -> list[str]:
    """One line for each mistake among the errors of pydantic.

    A required key that is there, but misspelt, is one mistake and not two.
    """
    found = [(tuple(str(k) for k in e["loc"] if k != "[key]"), e) for e in errors]
    misspelt = {
        (*keys[:-1], meant)
        for keys, error in found
        if error["type"] == "extra_forbidden"
        for meant in _meant(model, keys)
    }
    return [
        line(path, tree, [*keys, *below], message)
        for keys, error in found
        if error["type"] != "missing" or keys not in misspelt
        for below, message in _messages(model, keys, error)
    ]


def _messages(
    model: type[BaseModel], keys: Sequence[str], error: Mapping[str, Any]
) -> Iterator[Mistake]:
    kind, value = error["type"], error.get("input")
    if kind == "mistakes":
        yield from error["ctx"]["mistakes"]
        return
    if kind == "extra_forbidden":
        yield (), _unknown_key(model, keys)
        return
    if kind == "value_error":
        message = str(error["msg"]).removeprefix("Value error, ")
    elif error["loc"][-1:] == ("[key]",):
        message = "expected a name; put it in quotes"
    else:
        message = f"expected {_expected(_place(model, keys))}"
    if kind == "missing":
        yield (), f"this key is missing; {message}"
    elif kind == "value_error" and isinstance(value, dict):
        yield (), message
    else:
        yield (), f"{message} (found {_found(value)})"


def _unknown_key(model: type[BaseModel], keys: Sequence[str]) -> str:
    """Advice about a key that is not known."""
    elsewhere = [where for where, name in _all_keys(model) if name == keys[-1]]
    if elsewhere:
        return f"unknown key here; it belongs under {elsewhere[0] or 'no other key'}"
    if _meant(model, keys):
        return f"unknown key; did you mean {_meant(model, keys)[0]}?"
    return f"unknown key; one of {', '.join(_keys_at(model, keys[:-1]))}"


def _meant(model: type[BaseModel], keys: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(keys[-1][:_SHOWN], _keys_at(model, keys[:-1]), n=1)


def _keys_at(model: type[BaseModel], keys: Sequence[str]) -> list[str]:
    found = _place(model, keys).type
    return list(found.model_fields) if _is_model(found) else []


def _all_keys(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str]]:
    """Every key that a model and the models below it know, each with those that lead there."""
    for name, field in model.model_fields.items():
        yield above, name
        below = _bare(field.annotation)
        named = below.type if get_origin(below.type) is dict else None
        inner = _bare(get_args(named)[1]).type if named else below.type
        if _is_model(inner):
            yield from _all_keys(inner, ".".join(filter(None, (above, name, "NAME" * bool(named)))))


def _place(model: type[BaseModel], keys: Sequence[str]) -> _Place:
    """The place at ``keys``."""
    at = _Place(model)
    for key in keys:
        if _is_model(at.type):
            field: FieldInfo | None = at.type.model_fields.get(key)
            at = _Place(None) if field is None else _bare(field.annotation, field.metadata)
        else:
            inner = [arg for arg in get_args(at.type) if arg is not Ellipsis]
            at = _bare(inner[-1]) if inner else _Place(None)
    return at


def _bare(annotation: Any, bounds: Iterable[Any] = ()) -> _Place:
    """The type without ``Annotated`` and ``| None``, and what they said."""
    bounds = tuple(bounds)
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        bounds += tuple(b for m in more for b in (m.metadata if isinstance(m, FieldInfo) else [m]))
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (arg for arg in get_args(annotation) if arg is not types.NoneType)
        return _bare(annotation, bounds)
    return _Place(getattr(annotation, "__supertype__", annotation), bounds)


def _is_model(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, BaseModel)


def _expected(at: _Place) -> str:
    """The value that a key takes, for instance ``a whole number from 1 to 7``."""
    if _is_model(at.type):
        return f"keys below it, of {', '.join(at.type.model_fields)}"
    if at.type in (int, float):
        noun = "a whole number" if at.type is int else "a number"
        return " ".join(filter(None, (noun, _range(at.bounds))))
    origin = get_origin(at.type)
    if origin is dict:
        return "at least one name with what belongs to it" if _least(at) else "a mapping of names"
    if origin is tuple:
        return f"a list{' of at least one' * _least(at)}, such as [a, b]"
    return {bool: "true or false", Path: "a path"}.get(at.type, "text")


def _least(at: _Place) -> bool:
    return any(getattr(bound, "min_length", 0) for bound in at.bounds)


def _range(bounds: Iterable[Any]) -> str:
    """``from 1 to 7``, ``above 0``, ``above 0 and at most 5``."""
    limits = {
        name: str(value) if isinstance(value, int) else f"{value:.15g}"
        for bound in bounds
        for name in ("gt", "ge", "lt", "le")
        if (value := getattr(bound, name, None)) is not None
    }
    if {"ge", "le"} <= set(limits):
        return f"from {limits['ge']} to {limits['le']}"
    words = {"gt": "above", "ge": "of at least", "lt": "below", "le": "at most"}
    return " and ".join(f"{words[name]} {limit}" for name, limit in limits.items())


def _found(value: object) -> str:
    """A value as the file has it, at most one line of it."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    shown = reprlib.Repr()
    shown.maxstring = shown.maxother = _SHOWN
    try:
        return brief(shown.repr(value))
    except ValueError:  # an integer of thousands of digits
        return "too large a number"
