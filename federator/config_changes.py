"""The difference between two configurations, key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from federator.config import FederationConfig
from federator.wire.status_rows import KeyChange

AT_RESTART: Final = (
    *("federation", "store", "socket", "history.url", "history.keep_days"),
    *("metrics.listen", "traces.file", "traces.endpoint", "traces.ratio"),
    *("audit.dir", "audit.max_mib", "audit.decisions_mib"),
)
"""Keys that a running daemon does not change."""


def changes(before: FederationConfig, after: FederationConfig) -> tuple[KeyChange, ...]:
    """The keys whose values differ, in the order of the files; the order of sites is one of them.

    Values are JSON; of a key that one of the two lacks it is the default, and "" where there is
    none.
    """
    old, new = dict(_flat(_given(before))), dict(_flat(_given(after)))
    all_old = dict(_flat(before.model_dump(mode="json")))
    all_new = dict(_flat(after.model_dump(mode="json")))
    found = []
    for key in dict.fromkeys((*old, *new)):
        was = old.get(key, all_old.get(key, ""))
        will_be = new.get(key, all_new.get(key, ""))
        if was != will_be:
            found.append(KeyChange(key=key, before=was, after=will_be))
    if set(before.sites) == set(after.sites) and list(before.sites) != list(after.sites):
        was, will_be = json.dumps(list(before.sites)), json.dumps(list(after.sites))
        found.append(KeyChange(key="sites", before=was, after=will_be))
    return tuple(found)


def _given(config: FederationConfig) -> dict[str, Any]:
    """The values that the file gives: of a new tenant, say, not all that it might have."""
    return config.model_dump(mode="json", exclude_unset=True)


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        key = f"{above}.{name}" if above else name
        if isinstance(value, Mapping) and value:
            yield from _flat(value, key)
        else:
            yield key, json.dumps(value, ensure_ascii=False)
