"""Records ``docs/top.svg``: the screen of ``federator top`` over a made-up queue.

Run it after the screen has changed: ``PYTHONPATH=. TZ=UTC python tests/record_top.py``.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from msgspec import structs

from federator.cli.top_feed import TopFeed, brief
from federator.cli.top_screen import TopScreen
from federator.model.partition import PartitionSummary
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.start_estimate import StartEstimate
from federator.wire.client_protocol import Call, QueueReply, QueueRow, SiteRow, StatusCall
from federator.wire.queue_rows import QueueRank
from tests.unit.cli.test_status import STATUS
from tests.unit.cli.test_top_screen import settled

NOW_S = 1_764_080_400.0
PICTURE = Path(__file__).parents[1] / "docs" / "top.svg"


def _site(name: str, alloc: int, *, up: bool = True) -> SiteRow:
    nodes = alloc // 8
    gpus = PartitionSummary(
        partition="gpu",
        gpu_type="a100",
        nodes_idle=16 - nodes,
        nodes_allocated=nodes,
        gpus=128,
        gpus_alloc=alloc,
    )
    partitions = (gpus,) if up else ()
    return SiteRow(name=name, region="west", up=up, slurm_version="24.11.5", partitions=partitions)


def _job(k: int) -> QueueRow:
    users = (("ada", "nlp"), ("bob", "vision"), ("eve", "speech"))
    (user, tenant), runs = users[k % 3], k < 9
    return QueueRow(
        id=1_722_470_400_001 + k,
        name=("train", "tune", "eval")[k % 3],
        user=user,
        tenant=tenant,
        priority=3,
        state="RUNNING" if runs else "PENDING",
        attempt=1,
        submitted_at_s=NOW_S - 7200.0 + 60.0 * k,
        started_at_s=NOW_S - 7000.0 if runs else 0.0,
        nodes=4,
        gpus=32,
        time_limit_s=14_400.0,
        site=("alpine", "birch")[k % 2] if runs else "",
        site_job_id=4100 + k if runs else 0,
        node_names=(f"g{k:02}",) if runs else (),
        reason=None if runs else Reason(code=ReasonCode.RESOURCES),
    )


JOBS = tuple(_job(k) for k in range(40))


def answer(call: Call) -> object:
    if isinstance(call, StatusCall):
        sites = (_site("alpine", 128), _site("birch", 112), _site("cedar", 0, up=False))
        return structs.replace(STATUS, now_s=NOW_S, sites=sites)
    ids = getattr(call, "ids", ())
    if not ids:
        return QueueReply(rows=JOBS, now_s=NOW_S)
    wait = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.RESOURCES),))
    start = StartEstimate(
        made_at_s=NOW_S,
        earliest_s=NOW_S + 900.0,
        likely_s=NOW_S + 1800.0,
        latest_s=NOW_S + 4500.0,
        frac=0.9,
        hit_frac=0.91,
        latest=500,
        judged=2000,
    )
    rank = QueueRank(
        policy="mast",
        ranked_at_s=NOW_S,
        priority=3,
        tenant_priority=3,
        within_quota=True,
        credit=1.4,
        position=2,
        of=31,
        waited_s=6600.0,
        age_term=0.6,
        fair_share_term=0.8,
    )
    rows = [
        structs.replace(job, rank=rank, start=start, refusals={"alpine": wait, "birch": wait})
        for job in JOBS
        if str(job.id) in ids
    ]
    return QueueReply(rows=tuple(rows), now_s=NOW_S)


async def _record() -> None:
    app = TopScreen(TopFeed(brief((), (), ()), 5.0), answer, "ada")
    async with app.run_test(size=(118, 38)) as pilot:
        await settled(pilot, app)
        await pilot.press(*["down"] * 10)
        await settled(pilot, app)
        text = app.export_screenshot(title="federator top", simplify=True)
    text = re.sub(r"@font-face \{[^}]*\}\s*|<!--[^>]*-->\s*", "", text)  # nothing from elsewhere
    PICTURE.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


if __name__ == "__main__":
    asyncio.run(_record())
