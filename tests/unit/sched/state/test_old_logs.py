"""Logs that earlier releases wrote are read by every later one, and tell the same.

``tests/data/log``: records as they were encoded then, and what the ledger of then made of them.
They are never written anew; a release that changes what is stored adds its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.model.event import decode_event
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import TenantName
from federator.sched.state.ledger import Ledger

LOGS = Path(__file__).parents[3] / "data" / "log"
OWNER = Tenant(name=TenantName("vision"), priority=2, quota=Allowance(gpus=20))


def told(ledger: Ledger) -> dict[str, Any]:
    """What must be the same in every release."""
    return {
        "epoch": ledger.epoch,
        "next_id": ledger.next_id,
        "keys": dict(ledger.keys.id_of),
        "held_gpus": {
            tenant.name: ledger.holdings.used(row)[0]
            for row, tenant in enumerate(ledger.tenancy.tenants)
        },
        "tax_gpu_s": ledger.tax.gpu_s,
        "workloads": {
            str(id_): [
                e.state.value,
                e.attempt,
                e.site,
                e.site_job_id,
                e.preemptions,
                e.lost_gpu_s,
                e.saved_at,
                [job.name for job in e.workload.jobs],
            ]
            for id_, e in ledger.entries.items()
        },
    }


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.msgpack")), ids=lambda path: path.stem)
def test_a_log_of_an_earlier_release_tells_what_it_told_then(path: Path) -> None:
    records: Sequence[bytes] = msgspec.msgpack.decode(path.read_bytes(), type=list[bytes])
    ledger = Ledger(Tenancy([OWNER]))
    for record in records:
        ledger.apply(decode_event(record))
    assert told(ledger) == json.loads(path.with_suffix(".json").read_text())


def test_a_record_of_a_later_release_is_no_event() -> None:
    record = msgspec.msgpack.encode({"type": "of tomorrow", "at_s": 1.0})
    with pytest.raises(msgspec.ValidationError, match="of tomorrow"):
        decode_event(record)


def test_a_field_of_a_later_release_is_passed_over() -> None:
    record = msgspec.msgpack.encode({"type": "epoch", "at_s": 1.0, "epoch": 7, "mood": "good"})
    ledger = Ledger()
    ledger.apply(decode_event(record))
    assert ledger.epoch == 7
