"""``federator rank``: orders a queue offline, from two files, and says why."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from federator.cli.queue_file import OfflineQueue, read_queue
from federator.cli.text import printable, reason_text
from federator.config import load_config
from federator.model.reason import Reason
from federator.model.tenant import Tenancy
from federator.sched.passes.limits import limit_refusal
from federator.sched.queue.quota_status import QuotaReport, Shortfall
from federator.sched.queue.ranking import CreditRanking
from federator.sched.state.backlog import Backlog, Lane
from federator.sched.state.credit import CreditWeights
from federator.sched.state.holdings import Charge, Holdings
from federator.sched.state.usage import WindowAverage

_CHUNK: Final = 10_000  # rows made and printed at once
_Columns = tuple[int, int, bool, float, float, float, float, float]


class HeldBy(Struct, frozen=True):
    """The limit that stands against a workload now, whatever its place."""

    code: str
    tenant: str
    unit: str
    needed: int
    free: int


class RankRow(Struct, frozen=True):
    """One workload of ``rank --json``, in the order of its keys."""

    id: int
    priority: int
    within_quota: bool
    credit: float
    age_term: float
    fair_share_term: float
    nice_term: float
    non_preemptible_term: float
    position: int  # from 1
    held_by: HeldBy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alike:
    """The common properties of the workloads of one lane."""

    tenant: str
    gpus: int
    cpus: int
    held: Reason | None
    over: str  # what those over quota are told


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), required=True, help="The federation.yaml."
)
@click.option(
    "--queue", type=click.Path(path_type=Path), required=True, help="The queue.json to rank."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def rank(config: Path, queue: Path, as_json: bool) -> None:
    """Rank a queue by MAST's GMS scan: order, priority, quota, and the credit with its terms.

    Offline: no daemon is asked. Priority, quota, limit and the credit's weights are those of the
    configuration; what runs, what waits and what was used lately are those of the queue.

    Example: federator rank --config federation.yaml --queue queue.json
    """
    loaded = load_config(config)
    tenancy = loaded.tenancy()
    listing = QueueListing(tenancy, read_queue(queue, tenancy), loaded.policy.credit.weights)
    if loaded.policy.name != "mast":
        note = f"policy.name is {loaded.policy.name}; this is the order of mast"
        click.echo(f"federator rank: note: {note}", err=True)
    for lines in listing.json() if as_json else listing.table():
        sys.stdout.write(lines)


class QueueListing:
    """A ranked queue, as text.

    Args:
        tenancy: the tenants.
        queue: what runs is charged by request, and all of it counts as used.
        weights: of the credit.
    """

    def __init__(self, tenancy: Tenancy, queue: OfflineQueue, weights: CreditWeights) -> None:
        holdings = _holdings(tenancy, queue)
        backlog = Backlog(tenancy)
        for workload in queue.pending:
            backlog.add(workload)
        used_gpus = np.zeros(len(tenancy))
        for name, gpus in queue.usage.items():
            used_gpus[tenancy.row(name)] = gpus
        ranking = CreditRanking(backlog, holdings, weights, queue.now_s, used_gpus)
        self._columns = ranking.columns()
        self._lanes = [lane for row in backlog.rows() for lane in backlog.lanes(row)]
        self._lane = _lane_of(self._columns.id, self._lanes)
        self._holdings = holdings
        self._report = QuotaReport(holdings, backlog)

    def json(self) -> Iterator[str]:
        """A JSON list, one workload a line."""
        held = [_held_by(_held(lane, self._holdings)) for lane in self._lanes]
        between = "[\n"
        for rows in self._chunks():
            lines = (
                msgspec.json.encode(RankRow(*columns, position, held[lane])).decode()
                for position, lane, columns in rows
            )
            yield between + ",\n".join(lines)
            between = ",\n"
        yield "\n]\n" if between == ",\n" else "[]\n"

    def table(self) -> Iterator[str]:
        """As squeue would put it; the first line is a header."""
        all_alike = [_alike(lane, self._holdings, self._report) for lane in self._lanes]
        ids = len(str(self._columns.id.max(initial=10_000)))
        places = len(str(max(100, self._columns.id.size)))
        names = max([6, *(len(alike.tenant) for alike in all_alike)])
        yield (
            f"{'POS':>{places}} {'ID':>{ids}} {'TENANT':<{names}} PRIO QUOTA  {'CREDIT':>9} "
            f"{'AGE':>9} {'FAIRSHARE':>9} {'NICE':>8} {'NOPREEMPT':>9} "
            f"{'GPUS':>6} {'CPUS':>7} REASON\n"
        )
        for rows in self._chunks():
            yield "".join(
                f"{position:>{places}} {id_:>{ids}} {alike.tenant:<{names}} {priority:>4} "
                f"{'within' if within else 'over  '} {credit:>9.3f} {age:>9.3f} {share:>9.3f} "
                f"{nice:>8.3f} {price:>9.3f} {alike.gpus:>6} {alike.cpus:>7} "
                f"{_reason(alike, within)}\n"
                for position, lane, (id_, priority, within, credit, age, share, nice, price) in rows
                for alike in (all_alike[lane],)
            )

    def _chunks(self) -> Iterator[Iterator[tuple[int, int, _Columns]]]:
        """Position, lane, and the columns from id to the last term of the credit."""
        c = self._columns
        columns = (
            c.id,
            c.priority,
            c.within_quota,
            c.credit,
            c.age_term,
            c.fair_share_term,
            c.nice_term,
            c.non_preemptible_term,
        )
        for start in range(0, c.id.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            rows = zip(*(column[part].tolist() for column in columns), strict=True)
            lanes = self._lane[part].tolist()
            yield zip(range(start + 1, start + 1 + len(lanes)), lanes, rows, strict=True)


def _holdings(tenancy: Tenancy, queue: OfflineQueue) -> Holdings:
    """The amounts that tenants hold; usage is given, so nothing is averaged.

    In the order of the file what runs is within quota as long as it fits.
    """
    holdings = Holdings(tenancy, WindowAverage(1.0))
    for workload in queue.running:
        amounts = tenancy.resources.request(workload.jobs)
        charge = Charge(row=tenancy.row(workload.tenant), amounts=amounts, weighted_gpus=0.0)
        holdings.add(charge, within_quota=holdings.keeps_quota(charge), at_s=0.0)
    return holdings


def _lane_of(ids: npt.NDArray[np.int64], lanes: list[Lane]) -> npt.NDArray[np.intp]:
    """For each id the index of its lane."""
    if not lanes:
        return np.zeros(0, dtype=np.intp)
    numbers = array("q")
    for lane in lanes:
        lane.append_to(array("d"), numbers)
    all_ids = np.array(numbers, dtype=np.int64)
    lane_of = np.repeat(np.arange(len(lanes)), [len(lane) for lane in lanes])
    order = np.argsort(all_ids)
    found: npt.NDArray[np.intp] = lane_of[order][np.searchsorted(all_ids, ids, sorter=order)]
    return found


def _held(lane: Lane, holdings: Holdings) -> Reason | None:
    """The limit that stands against a lane's workloads."""
    refusal = limit_refusal(holdings, lane.row, lane.shape.request)
    return refusal.reasons[0] if refusal else None


def _alike(lane: Lane, holdings: Holdings, report: QuotaReport) -> _Alike:
    request = lane.shape.request
    is_over = lane.within < len(lane)
    return _Alike(
        tenant=printable(holdings.tenancy.tenants[lane.row].name),
        gpus=request[0],
        cpus=request[1],
        held=_held(lane, holdings),
        over=_over(report.shortfall_of(lane.row, request)) if is_over else "",
    )


def _over(shortfall: Shortfall) -> str:
    """The reason why a workload is over quota, in words."""
    if not shortfall.tenant:
        return "no quota"
    s = shortfall
    return printable(
        f"quota of {s.tenant}: {s.quota} {s.unit}, {s.held} held, {s.promised} promised, "
        f"{s.asked} asked"
    )


def _held_by(held: Reason | None) -> HeldBy | None:
    if held is None:
        return None
    return HeldBy(held.code.value, held.detail, held.unit, held.needed, held.free)


def _reason(alike: _Alike, within: bool) -> str:
    held = reason_text(alike.held) if alike.held else ""
    words = "; ".join(text for text in (held, "" if within else alike.over) if text)
    return f"({words})" if words else "-"
