"""Usage of fault histories: every GPU-second once, in one class, summing to what sites had.

Jobs, failures, evictions, moves and loans are those of the real programs in seeded histories. The
history database follows the log that such a history leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from federator.faults import history as histories
from federator.faults.world import BEGINS_S, World
from federator.history.follower import HistoryFollower
from federator.history.supply import SupplyWriter
from federator.history.usage_query import UsageQuestion, find
from federator.model.prices import PriceList
from federator.store.memory import MemoryLog, MemoryStore
from federator.usage.classes import HELD
from federator.usage.days import DAY_MS
from federator.usage.report import report, with_prices
from federator.usage.rows import UsageReport
from federator.usage.supply import SupplyRow
from tests.contract.history_log import brought_up_to_date, reader, writer
from tests.contract.test_usage_history import kept, made_anew

SEEDS: Final = (2, 23, 24, 7)  # at every site some ran; the first three lend
BY: Final = ("site", "gpu_type")


class KeptWorld(World):
    """One that can be looked at when it is over."""

    last: KeptWorld

    def __init__(self, *args: Any) -> None:
        self.durable: list[bytes] = []
        super().__init__(*args)
        type(self).last = self

    def _logged(self, records: Sequence[bytes]) -> None:
        super()._logged(records)
        self.durable += records


@pytest.fixture(scope="module", params=SEEDS)
def world(request: pytest.FixtureRequest) -> Iterator[KeptWorld]:
    """A history that is over."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(histories, "World", KeptWorld)
        end = histories.run_history(request.param)
        assert not end.broken
        yield KeptWorld.last


def followed(parts: Sequence[Sequence[bytes]], url: str) -> None:
    """Have a history follow a log that comes in parts."""
    store = MemoryStore(MemoryLog())
    store.lead(0)
    follower = HistoryFollower(store, writer(url))
    for records in parts:
        store.append(list(records))
        brought_up_to_date(follower)


def reported(world: KeptWorld, url: str) -> UsageReport:
    """A report by site, of nodes that were there from an hour before."""
    rows = []
    for name, site in world.sites.items():
        nodes = [node for node in site.cluster.nodes() if node.gpus]
        gpus = sum(node.gpus for node in nodes)
        rows.append(SupplyRow(name, "a100", 0.0, 1, len(nodes), gpus, 64 * len(nodes), 1 << 20))
    SupplyWriter(writer(url)).note(rows, BEGINS_S - 3600.0)
    first = int(BEGINS_S * 1000) // DAY_MS
    question = UsageQuestion(first_day=first, end_day=first + 2, columns=with_prices(BY))
    return report(find(reader(url), question), BY, PriceList())


def test_every_gpu_second_of_a_fault_history_is_in_one_class(
    world: KeptWorld, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    followed([world.durable], url)
    assert kept(url) == made_anew(url)
    found = reported(world, url)
    assert sorted(row.key[0] for row in found.rows) == sorted(world.sites)
    for row in found.rows:
        held = sum(row.sums.get(f"{each.value}_gpu_ms", 0) for each in HELD)
        assert held == row.held_gpu_ms > 0
        assert held + sum(row.free.values()) == row.supply_gpu_ms
        assert row.beyond_gpu_ms == 0


def test_a_history_that_is_told_in_parts_or_again_counts_the_same(
    world: KeptWorld, tmp_path: Path
) -> None:
    once, parts = f"sqlite:///{tmp_path}/once.db", f"sqlite:///{tmp_path}/parts.db"
    followed([world.durable], once)
    third = len(world.durable) // 3
    followed([world.durable[:third], world.durable[third:]], parts)
    assert kept(parts) == kept(once)
