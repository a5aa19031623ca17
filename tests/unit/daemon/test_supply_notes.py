"""What sites have to give is noted by GPU type, with what is out of use and what is local."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
import structlog

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


def test_numbers_that_no_node_has_are_not_believed() -> None:
    """One site must not say what the history cannot keep: the others' rows go with its own."""
    wrong = SiteView(partitions=("gpu",), up=True, ready=True)
    wrong.summary = (
        PartitionSummary(
            partition="gpu",
            gpu_type="a100",
            gpus=-1,
            gpus_alloc=2**63,
            gpus_out=2**63,
            gpus_down=2**63,
        ),
    )
    wrong.has(
        Capacity(
            nodes=tuple(
                Node(
                    name=name,
                    partitions=("gpu",),
                    cpus=2**63,
                    mem_mib=2**63,
                    gpus=2**63,
                    gpu_type=kind,
                )
                for name, kind in (("a", "a100"), ("b", "a100"), ("c", "x\0" * 9_000))
            )
        )
    )
    rows = supply_rows({ALPINE: wrong}, Ledger())
    assert [row.nodes for row in rows] == [2, 1]
    assert all(0 <= number < 2**53 for row in rows for number in row.amounts)
    assert all(len(row.gpu_type) < 400 and "\0" not in row.gpu_type for row in rows)


class _Federation:
    def __init__(self, *sites: SiteView) -> None:
        self.sites, self.ledger = dict.fromkeys([ALPINE][: len(sites)], *sites or (None,)), Ledger()


class _History:
    def __init__(self) -> None:
        self.noted: list[tuple[Sequence[SupplyRow], float]] = []
        self.away = False
        self.fault: Exception | None = None

    async def note_supply(self, seen: Sequence[SupplyRow], at_s: float) -> None:
        if self.away:
            raise HistoryError("away")
        if self.fault is not None:
            raise self.fault
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


def test_a_fault_is_logged_once_and_ends_nothing() -> None:
    history = _History()
    history.fault = OverflowError("no such number")
    federation = cast("Federation", _Federation(site()))
    notes = SupplyNotes(cast("JobHistory", history), federation, lambda: 7.0)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            asyncio.run(notes.look())
    assert [entry["event"] for entry in logs] == ["supply_fault"]


def test_nothing_is_noted_before_any_site_has_told() -> None:
    history = _History()
    federation = cast("Federation", _Federation())
    asyncio.run(SupplyNotes(cast("JobHistory", history), federation, lambda: 7.0).look())
    assert history.noted == []


def test_the_first_look_is_soon_and_the_next_a_minute_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looks again soon until every site has told, but for a minute at most."""
    assert pauses(monkeypatch, told_after=3) == [1.0, 1.0, 1.0, 60.0, 60.0]
    assert pauses(monkeypatch, told_after=1000) == [*60 * [1.0], 60.0, 60.0]


def pauses(monkeypatch: pytest.MonkeyPatch, told_after: int) -> list[float]:
    """Between looks, up to the second that takes a minute; the site tells after so many."""
    made, view = list[float](), SiteView(partitions=("gpu",))

    async def pause(seconds: float) -> None:
        if made[-2:] == [60.0, 60.0]:
            raise asyncio.CancelledError
        made.append(seconds)
        if len(made) == told_after:
            view.has(Capacity(nodes=()))

    monkeypatch.setattr("federator.daemon.supply_notes.asyncio.sleep", pause)
    federation = cast("Federation", _Federation(view))
    notes = SupplyNotes(cast("JobHistory", _History()), federation, lambda: 7.0)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(notes.run())
    return made
