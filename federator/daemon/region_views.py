"""Shows in which regions workloads with data sets could run and have run: one, and all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from federator.daemon.callers import Caller
from federator.daemon.metrics.data_counts import NO_DATA, nearness
from federator.model.lifecycle import TERMINAL
from federator.model.workload import Job
from federator.sched.passes.data_regions import DataRegion, data_regions, ran_in
from federator.sched.passes.federation import Federation
from federator.sched.state.catalogue import Catalogue, Uses
from federator.sched.state.shrink import gpus_of
from federator.sched.state.workload_record import WorkloadRecord
from federator.wire.client_protocol import ErrorKind, ErrorReply, QueueRow
from federator.wire.data_rows import DataReportReply, NearnessRow
from federator.wire.queue_rows import RegionRow


def with_regions(
    rows: Sequence[QueueRow], entries: Sequence[WorkloadRecord], federation: Federation
) -> tuple[QueueRow, ...]:
    """The rows of these workloads with their regions, as of now; those that name data sets."""
    known: dict[tuple[tuple[Job, ...], Uses], tuple[DataRegion, ...]] = {}
    found = []
    for row, entry in zip(rows, entries, strict=True):
        w = entry.workload
        if not w.data:
            found.append(row)
            continue
        could: tuple[DataRegion, ...] = ()
        if entry.state not in TERMINAL:
            asked = w.jobs, w.needed_data
            if asked not in known:
                known[asked] = _regions(federation, *asked)
            could = known[asked]
        found.append(replace(row, regions=_rows(could, ran_in(entry, federation.rules.regions))))
    return tuple(found)


def _rows(could: tuple[DataRegion, ...], ran: tuple[str, ...]) -> tuple[RegionRow, ...]:
    rows = [
        RegionRow(
            name=each.name,
            data=each.data.value,
            sites=each.sites,
            bytes_to_move=each.bytes_to_move,
            staging_s=each.staging_s,
            ran=each.name in ran,
        )
        for each in could
    ]
    named = {row.name for row in rows}
    return (*rows, *(RegionRow(name=name, ran=True) for name in ran if name not in named))


def data_report(
    caller: Caller, federation: Federation, now_s: float
) -> DataReportReply | ErrorReply:
    """What all workloads with data sets come to, for those who see all of them.

    It counts those that are known still: that wait or run, and that ended lately.
    """
    if not (caller.operator or caller.viewer):
        message = f"{caller.user} may not see the report of all data sets; ask an operator"
        return ErrorReply(message=message, kind=ErrorKind.DENIED)
    ledger, regions = federation.ledger, federation.rules.regions
    kinds: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    in_regions = Counter[int]()
    near: dict[str, NearnessRow] = {}
    for entry in ledger.entries.values():
        if not entry.workload.data:
            continue
        ran = ran_in(entry, regions)
        if not ran:
            continue
        in_regions[len(ran)] += 1
        labels = tuple(use.label for use in entry.workload.data)
        kinds.setdefault((entry.workload.tenant, labels), set()).update(ran)
        _count_start(near, entry, ledger.catalogue, now_s)
    return DataReportReply(
        candidates=dict(_candidates(federation)),
        ran_in=dict(in_regions),
        kinds_ran_in=dict(Counter(map(len, kinds.values()))),
        starts=near,
        now_s=now_s,
    )


def _candidates(federation: Federation) -> Counter[int]:
    """Workloads that wait, by how many regions could run them."""
    found = Counter[int]()
    for lane in federation.ledger.backlog.with_data():
        if len(lane) and any(use.name for use in lane.data):  # not only room for an output
            could = _regions(federation, lane.jobs, lane.data)
            found[sum(each.data.is_candidate for each in could)] += len(lane)
    return found


def _count_start(
    near: dict[str, NearnessRow], entry: WorkloadRecord, catalogue: Catalogue, now_s: float
) -> None:
    """Count the last attempt of a workload, if it has begun to run."""
    award = entry.award
    if award is None or not entry.started_at_s:
        return
    word = nearness(catalogue, entry, award)
    if word == NO_DATA:  # of an earlier release: the award does not say
        return
    gpus = gpus_of(award.jobs, range(len(award.jobs)))
    ran_h = max((entry.ended_at_s or now_s) - entry.started_at_s, 0.0) / 3600
    row = near.get(word, NearnessRow())
    near[word] = NearnessRow(
        workloads=row.workloads + 1, gpus=row.gpus + gpus, gpu_h=row.gpu_h + gpus * ran_h
    )


def _regions(federation: Federation, jobs: tuple[Job, ...], uses: Uses) -> tuple[DataRegion, ...]:
    catalogue = federation.ledger.catalogue
    return data_regions(jobs, uses, federation.sites, federation.rules, catalogue)
