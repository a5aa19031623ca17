"""What sites have to give is noted by GPU type, with what is out of use and what is local."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from federator.daemon.supply_notes import SupplyNotes, supply_rows
from federator.errors import HistoryError
from federator.history.service import JobHistory
from federator.model.partition import PartitionSummary
from federator.model.site import Capacity, Node
from federator.model.workload import SiteName
from federator.sched.passes.federation import Federation
from federator.sched.passes.site_view import SiteView
from federator.sched.state.ledger import Ledger
from federator.usage.supply import SupplyRow

ALPINE = SiteName("alpine")


def site(*summary: PartitionSummary) -> SiteView:
    view = SiteView(partitions=("gpu",), up=True, ready=True, summary=summary)
    nodes = [
        Node(
            name=f"a{k}", partitions=("gpu", "all"), cpus=64, mem_mib=1000, gpu_type="a100", gpus=8
        )
        for k in range(4)
    ]
    cpu = Node(name="c1", partitions=("gpu",), cpus=32, mem_mib=500)
    view.has(Capacity(nodes=(*nodes, cpu)))
    return view


def test_nodes_in_two_partitions_count_once() -> None:
    told = PartitionSummary(
        partition="gpu", gpu_type="a100", gpus=32, gpus_alloc=8, gpus_out=16, gpus_down=8
    )
    again = PartitionSummary(
        partition="all", gpu_type="a100", gpus=32, gpus_alloc=8, gpus_out=16, gpus_down=8
    )
    rows = supply_rows({ALPINE: site(told, again)}, Ledger())
    assert rows == [
        SupplyRow("alpine", "a100", 0.0, 1, 4, 32, 256, 4000, 8, 8, 8),
        SupplyRow("alpine", "", 0.0, 1, 1, 0, 32, 500),
    ]


def test_a_site_that_is_not_in_contact_keeps_what_it_last_told() -> None:
    view = site()
    view.ready = False
    silent = SiteView(partitions=("gpu",))
    rows = supply_rows({ALPINE: view, SiteName("birch"): silent}, Ledger())
    assert [(row.site, row.heard, row.gpus) for row in rows] == [
        ("alpine", 0, 32),
        ("alpine", 0, 0),
    ]


class _Federation:
    def __init__(self, *sites: SiteView) -> None:
        self.sites, self.ledger = dict.fromkeys([ALPINE][: len(sites)], *sites or (None,)), Ledger()


class _History:
    def __init__(self) -> None:
        self.noted: list[tuple[Sequence[SupplyRow], float]] = []
        self.away = False

    async def note_supply(self, seen: Sequence[SupplyRow], at_s: float) -> None:
        if self.away:
            raise HistoryError("away")
        self.noted.append((seen, at_s))


def test_a_history_that_is_away_ends_nothing() -> None:
    history = _History()
    federation = cast("Federation", _Federation(site()))
    notes = SupplyNotes(cast("JobHistory", history), federation, lambda: 7.0)
    history.away = True
    asyncio.run(notes.look())
    history.away = False
    asyncio.run(notes.look())
    ((seen, at_s),) = history.noted
    assert ({row.site for row in seen}, at_s) == ({"alpine"}, 7.0)


def test_nothing_is_noted_before_any_site_has_told() -> None:
    history = _History()
    federation = cast("Federation", _Federation())
    asyncio.run(SupplyNotes(cast("JobHistory", history), federation, lambda: 7.0).look())
    assert history.noted == []
