"""When a daemon may not start: the log speaks of what the configuration lacks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from federator.config import load_config
from federator.daemon.daemon import Daemon
from federator.errors import ConfigError
from federator.model.event import Submitted, encode_event
from federator.store.memory import MemoryStore
from tests.fakes.build import draft

CONFIG = """
federation: demo
store: "memory:"
socket: daemon.sock
regions: {west: {shared: /shared}}
sites: {alpine: {region: west, command: ["/bin/false"], partitions: [gpu]}}
tenants: {nlp: {quota: {gpus: 8}, users: [ada]}}
"""


def test_a_tenant_with_live_work_may_not_leave_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG)
    store = MemoryStore()
    store.lead(0)
    wanted = draft(tenant="vision")
    store.append([encode_event(Submitted(at_s=1.0, draft=wanted, first_id=2**32, key="k"))])  # type: ignore[arg-type]
    daemon = Daemon(load_config(path), store)
    with pytest.raises(ConfigError, match="tenant 'vision', which the configuration lacks"):
        asyncio.run(daemon.run())
