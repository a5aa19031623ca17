"""Writes the mode of a site or tenant into a federation.yaml; every other character stays."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from federator.errors import InvalidRequest
from federator.model.site_mode import SiteMode

_BY_HAND = "write {kind}.{name}.mode: {mode} by hand, then: federator reload"


def with_mode(text: str, name: str, mode: SiteMode, kind: str = "sites") -> str:
    """The text of a federation.yaml, with that mode of that site; or ``kind``: ``tenants``.

    Raises:
        InvalidRequest: the file is written in a way that this does not know how to change.
    """
    after = None
    try:
        before: Any = yaml.safe_load(text)
        own = (before[kind][name] or {}) | {"mode": mode.value}
        expected = before | {kind: before[kind] | {name: own}}
        after = _edited(text, (kind, name), mode)
        is_right = after is not None and yaml.safe_load(after) == expected
    except (yaml.YAMLError, KeyError, TypeError):  # others may write it at the same time
        is_right = False
    if after is None or not is_right:
        raise InvalidRequest(_BY_HAND.format(kind=kind, name=name, mode=mode.value))
    return after


def _edited(text: str, keys: tuple[str, str], mode: SiteMode) -> str | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    settings = _value(_value(root, keys[0]), keys[1])
    if not isinstance(settings, yaml.MappingNode) or not settings.value:
        return None
    old = _value(settings, "mode")
    if old is not None:
        return text[: old.start_mark.index] + mode.value + text[old.end_mark.index :]
    first = settings.value[0][0].start_mark
    if settings.flow_style:
        return f"{text[: first.index]}mode: {mode.value}, {text[first.index :]}"
    return f"{text[: first.index]}mode: {mode.value}\n{' ' * first.column}{text[first.index :]}"


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """The value of a key of a mapping; None: there is none."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def replace_text(path: Path, text: str) -> None:
    """Replace a file as a whole, with the owner and the rights that it had.

    Raises:
        InvalidRequest: that is not possible here.
    """
    there = path.resolve()
    try:
        was = there.stat()
        handle, name = tempfile.mkstemp(dir=there.parent, prefix=f".{there.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fchmod(handle, was.st_mode & 0o7777)
                if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(handle, was.st_uid, was.st_gid)
                os.fsync(handle)
            os.replace(name, there)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be written: {error.strerror or error}") from error
