"""Rows about evictions: what they did to a workload, and what they did for it."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.passes.orders import leave_by_s
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.save_times import family_of
from federator.wire.queue_rows import PreemptionRow

_NOTHING: Final = PreemptionRow()
_WAITS_FOR_MOVES: Final = (WorkloadState.AWARDED, WorkloadState.LAUNCHING)


def preemption_row(entry: WorkloadRecord, federation: Federation) -> PreemptionRow | None:
    """All about a workload's evictions and saves; None where there is nothing to tell."""
    saves, family = federation.ledger.saves, family_of(entry.workload)
    row = _with_moves(
        entry,
        federation.ledger,
        PreemptionRow(
            preemptions=entry.preemptions,
            lost_gpu_s=entry.lost_gpu_s,
            evicted_for=entry.evicted_for or 0,
            evicted_at_s=entry.evicted_at_s,
            leave_by_s=leave_by_s(entry, federation.rules),
            at_limit=entry.at_its_limit,
            saved_at=entry.saved_at,
            copied_ahead=federation.checkpoints.ahead_words(entry),
            saves_seen=saves.seen(family),
            save_p95_s=saves.p95_s(family),
            victims=entry.victims,
            evictions=entry.evictions,
            destroyed_gpu_s=entry.destroyed_gpu_s,
        ),
    )
    return None if row == _NOTHING else row


def _with_moves(entry: WorkloadRecord, ledger: Ledger, row: PreemptionRow) -> PreemptionRow:
    """With who moves for it while it starts, and where it goes on itself."""
    id_, award = entry.workload.id, entry.award
    place = ledger.moves.places.get(id_) or ledger.claims.get(id_)
    if place is not None and place.moved_for is not None:
        row = replace(row, goes_on_at=next(iter(place.jobs[0].nodes)))
    if award is None or not award.moves or entry.state not in _WAITS_FOR_MOVES:
        return row
    movers = [e for move in award.moves if (e := ledger.entries.get(WorkloadId(move.workload)))]
    return replace(
        row,
        moves=len(award.moves),
        moved_gpus=sum(job.total_gpus for mover in movers for job in mover.workload.jobs),
        moves_lose_gpu_s=award.scores[award.site].lost_work_gpu_s,
        waits_s=award.waits_s,
    )
