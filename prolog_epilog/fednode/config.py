"""Reads /etc/federator/node.json strictly: the admin's settings of this node's hooks.

The file is one JSON object: keys for all hooks (``COMMON``) and a section for each. What is absent
has its default. What is unknown or of the wrong kind counts as absent and is reported: a slip in
this file must not stop jobs. Only root may be able to write it, since it names programs that run
as root.
"""

import json
import os
import stat
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

PATH = "/etc/federator/node.json"
MAX_BYTES = 1 << 20
SECTIONS = ("gate", "epilog", "watch")


class Key(NamedTuple):
    """One setting: its default, and what it must be (None: anything is well, else what is not)."""

    default: Any
    check: "Callable[[Any], Optional[str]]"


Schema = Dict[str, Any]  # name -> Key, or another Schema for an object of settings


def text(value: Any) -> "Optional[str]":
    """A string that is not empty."""
    return None if isinstance(value, str) and value else "must be a text"


def path(value: Any) -> "Optional[str]":
    """An absolute path without surprises."""
    well = isinstance(value, str) and value.startswith("/") and "\0" not in value
    return None if well else "must be an absolute path"


def optional_path(value: Any) -> "Optional[str]":
    """An absolute path, or nothing."""
    return None if value is None else path(value)


def flag(value: Any) -> "Optional[str]":
    """true or false."""
    return None if isinstance(value, bool) else "must be true or false"


def number(least: float, most: float) -> "Callable[[Any], Optional[str]]":
    """Return the check for a number between ``least`` and ``most``."""

    def check(value: Any) -> "Optional[str]":
        well = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if well and least <= value <= most else f"must be {least:g} to {most:g}"

    return check


def one_of(*words: str) -> "Callable[[Any], Optional[str]]":
    """Return the check for one of ``text``."""

    def check(value: Any) -> "Optional[str]":
        return (
            None if isinstance(value, str) and value in words else "must be " + " or ".join(words)
        )

    return check


def texts(value: Any) -> "Optional[str]":
    """A list of strings."""
    well = isinstance(value, list) and all(isinstance(part, str) and part for part in value)
    return None if well else "must be a list of texts"


COMMON: "Schema" = {
    "nvidia_smi": Key("/usr/bin/nvidia-smi", path),
    "scontrol": Key("/usr/bin/scontrol", path),
    "scancel": Key("/usr/bin/scancel", path),
    "squeue": Key("/usr/bin/squeue", path),
    "state_dir": Key("/var/lib/federator-node", path),
    "log_dir": Key("/var/log/federator", path),
    "sysfs": Key("/sys", path),
    "kmsg": Key("/dev/kmsg", path),
}


def load(
    section: str, schema: Schema, file: str = PATH
) -> "Tuple[Dict[str, Any], Dict[str, Any], List[str]]":
    """Return the common settings, those of ``section``, and what is wrong with ``file``.

    Args:
        section: one of ``SECTIONS``.
        schema: the section's settings; what is checked and returned is exactly its keys.
        file: absent is the same as ``{}``.
    """
    document, problems = _document(file)
    common = {name: value for name, value in document.items() if name not in SECTIONS}
    shared = _settings(common, COMMON, "", problems)
    own = _settings(document.get(section, {}), schema, section, problems)
    return shared, own, [f"{file}: {problem}" for problem in problems]


def of_node(shared: "Dict[str, Any]", node: str) -> "Dict[str, Any]":
    """Return the common settings for ``node``: "%n" in a path stands for its name."""
    return {name: str(value).replace("%n", node) for name, value in shared.items()}


def trusted(status: os.stat_result) -> bool:
    """Tell whether nobody but root (or who runs us) can have written what ``status`` is of."""
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def read_trusted(file: str, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a regular file that only root may write.

    Raises:
        OSError: it is absent or cannot be read.
        ValueError: it is no such file, too large, or no UTF-8.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no regular file")
        if not trusted(status):
            raise ValueError("must be root's and writable by nobody else")
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"is larger than {max_bytes} bytes")
    return data.decode("utf-8")


def _document(file: str) -> "Tuple[Dict[str, Any], List[str]]":
    try:
        found = json.loads(read_trusted(file))
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        return {}, [f"{error}; all defaults hold"]
    if not isinstance(found, dict):
        return {}, ["is no JSON object; all defaults hold"]
    return found, []


def _settings(found: Any, schema: Schema, where: str, problems: "List[str]") -> "Dict[str, Any]":
    """Return a value for each key of ``schema``; append to ``problems`` what is not usable."""
    if not isinstance(found, dict):
        problems.append(f"{where} must be an object; its defaults hold")
        found = {}
    prefix = where + "." if where else ""
    for name in sorted(set(found) - set(schema)):
        problems.append(f"unknown key {prefix}{name}")
    settings = {}
    for name, key in schema.items():
        if not isinstance(key, Key):
            settings[name] = _settings(found.get(name, {}), key, prefix + name, problems)
            continue
        settings[name] = key.default
        if name in found:
            wrong = key.check(found[name])
            if wrong is None:
                settings[name] = found[name]
            else:
                problems.append(f"{prefix}{name} {wrong}; the default holds")
    return settings
