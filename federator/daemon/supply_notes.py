"""Notes in the history, now and then, what the sites have to give."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from federator.errors import HistoryError
from federator.history.service import JobHistory
from federator.history.values import amount, word
from federator.model.lifecycle import WorkloadState
from federator.model.workload import SiteName
from federator.sched.passes.federation import Federation
from federator.sched.passes.site_view import MOST_GPUS, SiteView
from federator.sched.state.ledger import Ledger
from federator.usage.days import gpus_by_type
from federator.usage.supply import SupplyRow

LOOK_EVERY_S: Final = 60.0
FIRST_EVERY_S: Final = 1.0  # until all sites have told, for ``LOOK_EVERY_S`` at most
MOST_CPUS: Final = 2**16  # of a node that is believed
MOST_MEM_MIB: Final = 2**30
_RUNS: Final = (WorkloadState.RUNNING, WorkloadState.PREEMPTING, WorkloadState.CANCELLING)

log = structlog.get_logger()


class SupplyNotes:
    """Looks at all sites, beside the daemon's turns.

    Args:
        history: keeps what has changed.
        federation: read, never changed.
        clock: Unix time.
    """

    def __init__(
        self, history: JobHistory, federation: Federation, clock: Callable[[], float]
    ) -> None:
        self._history, self._federation, self._clock = history, federation, clock
        self._fault = ""  # that was logged

    async def run(self) -> None:
        """Look for ever; at first soon: what is held before the first look is beyond the supply."""
        for _ in range(round(LOOK_EVERY_S / FIRST_EVERY_S)):
            await asyncio.sleep(FIRST_EVERY_S)
            await self.look()
            if all(site.capacity is not None for site in self._federation.sites.values()):
                break
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Note what is there now; a site that has never told anything is left out."""
        try:
            rows = supply_rows(self._federation.sites, self._federation.ledger)
            if rows:
                await self._history.note_supply(rows, self._clock())
        except HistoryError:  # the history itself says that it is away
            return
        except Exception as error:  # a fault of ours must not end the notes
            if repr(error) != self._fault:
                self._fault = repr(error)
                log.exception("supply_fault")


def supply_rows(sites: Mapping[SiteName, SiteView], ledger: Ledger) -> list[SupplyRow]:
    """What the sites have, by GPU type, as they last told."""
    held = _held(ledger)
    return [row for name, site in sites.items() for row in _rows(name, site, held)]


def _held(ledger: Ledger) -> Counter[tuple[str, str]]:
    """GPUs that the federation's workloads hold, by site and type."""
    found: Counter[tuple[str, str]] = Counter()
    for entry in ledger.in_state(*_RUNS):
        for plan in entry.plan:
            gpus = sum(share.gpus for share in plan.nodes.values())
            words = ",".join(f"{name}={count}" for name, count in plan.gpu_types.items())
            for name, count in gpus_by_type(gpus, words).items():
                found[entry.site, name] += count
    return found


def _rows(name: SiteName, site: SiteView, held: Mapping[tuple[str, str], int]) -> list[SupplyRow]:
    if site.capacity is None:
        return []
    made: dict[str, SupplyRow] = {}
    for node in site.capacity.nodes:
        kind = word(node.gpu_type or "")
        row = made.setdefault(kind, SupplyRow(word(name), kind, 0.0, int(site.ready), 0, 0, 0, 0))
        made[kind] = row._replace(
            nodes=row.nodes + 1,
            gpus=row.gpus + amount(node.gpus, MOST_GPUS),
            cpus=row.cpus + amount(node.cpus, MOST_CPUS),
            mem_mib=row.mem_mib + amount(node.mem_mib, MOST_MEM_MIB),
        )
    return [_with_states(row, site, held.get((name, kind), 0)) for kind, row in made.items()]


def _with_states(row: SupplyRow, site: SiteView, held: int) -> SupplyRow:
    """Partitions tell what is out of use; where nodes are in several, sums are scaled."""
    rows = [each for each in site.summary if word(each.gpu_type) == row.gpu_type]
    there = sum(max(0, each.gpus) for each in rows)
    scale = min(1.0, row.gpus / there) if there else 0.0
    down, out, allocated = (
        amount(round(scale * found), row.gpus)
        for found in (
            sum(each.gpus_down for each in rows),
            sum(each.gpus_out for each in rows),
            sum(each.gpus_alloc for each in rows),
        )
    )
    return row._replace(
        gpus_local=max(0, allocated - held),
        gpus_drained=max(0, out - down),
        gpus_down=down,
    )
