"""Tells which libraries are pinned, which are needed, and by which part of the project.

Pins are those of requirements.lock; the rest is what the installed distributions say of themselves.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from typing import Final

from packaging.requirements import Requirement

from federator.testbed.images import LOCK
from federator.testbed.layout import SITES

PROJECT: Final = "federator"
FOR_DEVELOPERS: Final = frozenset({"dev", "browser"})
"""Extras that no installation for users has."""

_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")


def normal(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lock: str | None = None) -> dict[str, tuple[str, str]]:
    """Return every pin by its normal name: the name as written, and the version."""
    text = LOCK.read_text(encoding="utf-8") if lock is None else lock
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    found = [match for line in lines if (match := _PIN.fullmatch(line))]
    return {normal(match[1]): (match[1], match[2]) for match in found}


def extras() -> list[str]:
    """Return the project's extras."""
    return sorted(metadata.metadata(PROJECT).get_all("Provides-Extra") or ())


def needed(wanted: Iterable[str], pythons: Iterable[str] | None = None) -> dict[str, set[str]]:
    """Return all libraries that the project needs with the extras ``wanted``, "" for none.

    Args:
        wanted: extras of the project.
        pythons: major.minor each; those of the testbed's sites if left out. Of a Python its first
            release counts: what any of its releases may need is needed.

    Returns:
        For each library, and for the project, what it needs itself; all by normal names.
    """
    graph: dict[str, set[str]] = defaultdict(set)
    seen: set[tuple[str, str, str]] = set()
    versions = tuple(site.python for site in SITES) if pythons is None else tuple(pythons)
    to_see = [(PROJECT, extra, python) for extra in wanted for python in versions]
    while to_see:
        visit = to_see.pop()
        if visit in seen:
            continue
        seen.add(visit)
        name, extra, python = visit
        for requirement in _requirements(name, extra, python):
            inner = normal(requirement.name)
            graph[name].add(inner)
            graph.setdefault(inner, set())
            to_see += [(inner, one, python) for one in requirement.extras or {""}]
    for name, needs in graph.items():
        needs.discard(name)  # one extra of a project may name others
    return dict(graph)


def licence(name: str) -> tuple[str, bool] | None:
    """Return the licence that a distribution declares, and whether it is an SPDX expression.

    ``None`` where it is not installed here or declares none.
    """
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    for expression in about.get_all("License-Expression") or ():
        return expression, True
    for text in about.get_all("License") or ():
        if text.strip() and "\n" not in text.strip():
            return text.strip(), False
    classifiers = [c for c in about.get_all("Classifier") or () if c.startswith("License :: ")]
    return (classifiers[-1].rpartition(" :: ")[2], False) if classifiers else None


@cache
def _requirements(name: str, extra: str, python: str) -> tuple[Requirement, ...]:
    """Nothing for what is not installed: another Python needs it, and it cannot be looked into."""
    where: Mapping[str, str] = {
        "extra": extra,
        "implementation_name": "cpython",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    found = _declared(name)
    return tuple(one for one in found if one.marker is None or one.marker.evaluate(dict(where)))


@cache
def _declared(name: str) -> tuple[Requirement, ...]:
    try:
        return tuple(map(Requirement, metadata.requires(name) or ()))
    except metadata.PackageNotFoundError:
        return ()
