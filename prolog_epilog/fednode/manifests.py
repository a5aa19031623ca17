"""Reads the manifests of the gate's checks: thresholds, and what follows if one fails.

A check is a small plug-in with a JSON manifest. Those we ship lie in one folder, the site's own in
another; a site's manifest with the id of one of ours changes what it names and leaves the rest. A
check without ``command`` is built in (checks.py); one with ``command`` is a program of the site's
with the exit codes of Nagios. A manifest that is not sound is left out and reported.
"""

import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fednode import config
from fednode.checks import BUILTIN

SHIPPED = "/opt/federator/share/checks.d"
OWN = "/etc/federator/checks.d"
DRAIN, WARN, QUARANTINE = "drain", "warn", "quarantine-for-multi-node"
ACTIONS = (DRAIN, WARN, QUARANTINE)
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_MOST_MANIFESTS = 200


class Manifest(NamedTuple):
    """One check as it is made here."""

    id: str
    what: str
    gpus: str  # "allotted" to the job, or "all" of the node
    when: str  # "always", or "multi-node": for jobs of several nodes only
    action: str
    thresholds: "Dict[str, Any]"
    command: "Tuple[str, ...]"  # () if built in
    timeout_s: float  # of the command
    enabled: bool


def load(shipped: str = SHIPPED, own: str = OWN) -> "Tuple[List[Manifest], List[str]]":
    """Return the checks that are enabled, and what is wrong with the rest.

    In order of their ids, but whether the GPUs are there at all comes first: it is what to say of
    a node on which other checks fail as well. An absent folder is an empty one.
    """
    documents, problems = {}, []  # type: Dict[str, Dict[str, Any]], List[str]
    for folder in (shipped, own):
        for file in _files(folder, problems):
            try:
                found = _document(file)
            except (OSError, ValueError, RecursionError) as error:
                problems.append(f"{file}: {error}")
                continue
            known = documents.get(found["id"], {})
            merged = {**known, **found}
            merged["thresholds"] = {**known.get("thresholds", {}), **found.get("thresholds", {})}
            documents[found["id"]] = merged
    manifests = []
    for name in sorted(documents, key=lambda name: (name != "gpus-present", name)):
        try:
            manifest = parse(documents[name])
        except ValueError as error:
            problems.append(f"check {name}: {error}")
            continue
        if manifest.enabled:
            manifests.append(manifest)
    return manifests, problems


def _files(folder: str, problems: "List[str]") -> "List[str]":
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{folder}: {error}")
        return []
    if len(names) > _MOST_MANIFESTS:
        problems.append(f"{folder}: has more than {_MOST_MANIFESTS} manifests")
    visible = [name for name in names if not name.startswith(".")]
    return [os.path.join(folder, name) for name in visible[:_MOST_MANIFESTS]]


def _document(file: str) -> "Dict[str, Any]":
    found = json.loads(config.read_trusted(file))
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    if not isinstance(found.get("id"), str) or not _ID.fullmatch(found["id"]):
        raise ValueError("has no id of small letters, digits and hyphens")
    if not isinstance(found.get("thresholds", {}), dict):
        raise ValueError("thresholds must be an object")
    return found


def parse(document: "Dict[str, Any]") -> Manifest:
    """Return the manifest in ``document``, every key checked.

    Raises:
        ValueError: what is wrong with it.
    """
    unknown = sorted(set(document) - set(Manifest._fields))
    if unknown:
        raise ValueError("unknown key " + ", ".join(unknown))
    name = document["id"]
    manifest = Manifest(
        id=name,
        what=_of(document, "what", "", lambda v: isinstance(v, str)),
        gpus=_of(document, "gpus", "allotted", lambda v: v in ("allotted", "all")),
        when=_of(document, "when", "always", lambda v: v in ("always", "multi-node")),
        action=_of(document, "action", WARN, lambda v: v in ACTIONS),
        thresholds=_thresholds(name, document),
        command=_command(document.get("command")),
        timeout_s=_of(document, "timeout_s", 5, _is_time),
        enabled=_of(document, "enabled", True, lambda v: isinstance(v, bool)),
    )
    if not manifest.command and name not in BUILTIN:
        raise ValueError("is not built in and names no command")
    return manifest


def _of(document: "Dict[str, Any]", key: str, default: Any, well: Any) -> Any:
    value = document.get(key, default)
    if not well(value):
        raise ValueError(f"{key} cannot be {str(value)[:40]}")
    return value


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 8


def _command(value: "Optional[Any]") -> "Tuple[str, ...]":
    if value is None:
        return ()
    if config.texts(value) is not None or not value or not value[0].startswith("/"):
        raise ValueError("command must be a list: the absolute path of a program, and arguments")
    return tuple(value)


def _thresholds(name: str, document: "Dict[str, Any]") -> "Dict[str, Any]":
    """Return every threshold of a built-in check; for a command, just what is written."""
    given = document.get("thresholds", {})
    if document.get("command") is not None or name not in BUILTIN:
        return dict(given)
    defaults = BUILTIN[name].thresholds
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise ValueError("unknown threshold " + ", ".join(unknown))
    for key, value in given.items():
        if not BUILTIN[name].well(key, value):
            raise ValueError(f"threshold {key} cannot be {str(value)[:40]}")
    return {**defaults, **given}
