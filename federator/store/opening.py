"""Which store does a URL name?"""

from __future__ import annotations

from pathlib import Path

from federator.store.base import Store
from federator.store.memory import MemoryStore
from federator.store.sqlite import SqliteStore


def open_store(url: str) -> Store:
    """Open the store that federation.yaml names, without leading.

    Raises:
        StoreError: it cannot be opened.
    """
    if url == "memory:":
        return MemoryStore()
    return SqliteStore(Path(url.removeprefix("sqlite://")))
