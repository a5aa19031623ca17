"""Reads ``fscontrol top``: jobs are put before others of the same user, by niceness alone.

As with scontrol only jobs that wait change their order, and only among those of one user, account,
partition and QOS; other users' jobs lose nothing. The jobs named give up their own niceness, those
that are named later get just enough of it to come later, and all others the same amount more each,
so that they keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Final

import msgspec

from federator.errors import InvalidRequest
from federator.model.event import Amended
from federator.model.lifecycle import WorkloadState
from federator.model.submission import Option
from federator.model.workload import WorkloadId
from federator.sched.state.credit import CreditWeights
from federator.sched.state.ledger import Ledger, WorkloadRecord

MAX_NICE: Final = 2_147_483_645  # Slurm's
_WAITS: Final = (WorkloadState.PENDING, WorkloadState.INELIGIBLE, WorkloadState.HELD)


class _Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a submission; script and environment are not decoded."""

    components: tuple[tuple[Option, ...], ...]


_decode: Final = msgspec.msgpack.Decoder(_Placed).decode


def put_first(
    ledger: Ledger, ids: Sequence[WorkloadId], weights: CreditWeights | None, now_s: float
) -> tuple[Amended, ...]:
    """The changes of niceness that put these workloads first, in this order.

    Args:
        ledger: read, not changed.
        ids: workloads that exist; those that do not wait are left to the core.
        weights: of credit; None: the queue is not ordered by it.
        now_s: Unix time.

    Raises:
        InvalidRequest: niceness orders nothing here, or not these jobs among themselves.
    """
    if weights is None or not weights.per_nice:
        raise InvalidRequest("top: niceness does not order this federation's queue")
    tops = [e for e in map(ledger.entries.__getitem__, ids) if e.state in _WAITS]
    if not tops:
        return ()
    kind = _kind(tops[0])
    if any(_kind(entry) != kind for entry in tops):
        raise InvalidRequest(
            "top: these jobs are not all of one user, account, partition, QOS and priority"
        )
    named = set(ids)
    others = [
        entry
        for entry in ledger.in_state(*_WAITS)
        if entry.workload.id not in named
        and entry.workload.user == tops[0].workload.user
        and _kind(entry) == kind
    ]
    nice, least = _descending(tops, weights, now_s)
    more = _more_of_others(others, max(nice.values()), least, weights, now_s)
    for entry in others:
        nice[entry.workload.id] = min(MAX_NICE, entry.workload.nice + more)
    return tuple(_changes(ledger, nice))


def _kind(entry: WorkloadRecord) -> tuple[object, ...]:
    """What those have in common that may change places."""
    w = entry.workload
    options = {o.name: o.value for o in next(iter(_decode(w.submission).components), ())}
    partitions = tuple(job.partitions for job in w.jobs)
    return w.user, w.tenant, w.asked_priority, partitions, options.get("qos"), w.preemptible


def _descending(
    tops: Iterable[WorkloadRecord], weights: CreditWeights, now_s: float
) -> tuple[dict[WorkloadId, int], float]:
    """The niceness of those that come first, and the least credit among them.

    Tasks of an array share one, and keep their own order. Each has more than the one before it, so
    that the order stays when all have the credit of the greatest age.
    """
    groups: dict[WorkloadId, list[WorkloadRecord]] = {}
    for entry in tops:
        array = entry.workload.array
        groups.setdefault(array.array_id if array is not None else entry.workload.id, []).append(
            entry
        )
    nice: dict[WorkloadId, int] = {}
    least: float | None = None
    more = 0
    for group in groups.values():
        ages = [_credit(entry, weights, now_s) for entry in group]
        if least is not None:
            more = max(more + 1, _steps(max(ages) - least, weights))
        nice |= dict.fromkeys((entry.workload.id for entry in group), more)
        least = min(ages) - weights.nice_term(more)
    return nice, least or 0.0


def _more_of_others(
    others: Sequence[WorkloadRecord],
    most_nice: int,
    least: float,
    weights: CreditWeights,
    now_s: float,
) -> int:
    """So much more niceness puts all others behind those, now and when all are of great age."""
    if not others:
        return 0
    most = max(
        _credit(entry, weights, now_s) - weights.nice_term(entry.workload.nice) for entry in others
    )
    of_great_age = most_nice + 1 - min(entry.workload.nice for entry in others)
    return max(0, of_great_age, _steps(most - least, weights))


def _credit(entry: WorkloadRecord, weights: CreditWeights, now_s: float) -> float:
    """The credit that it has by its age; what is the same for all of a kind is left out."""
    return weights.age_term(max(0.0, now_s - entry.ranks_since_s))


def _steps(beyond: float, weights: CreditWeights) -> int:
    """The least niceness that costs more than so much credit."""
    return 0 if beyond < 0 else min(MAX_NICE, ceil(beyond / weights.per_nice) + 1)


def _changes(ledger: Ledger, nice: dict[WorkloadId, int]) -> Iterator[Amended]:
    by_nice: dict[int, list[WorkloadId]] = {}
    for id_, new in nice.items():
        if new != ledger.entries[id_].workload.nice:
            by_nice.setdefault(new, []).append(id_)
    for new, ids in by_nice.items():
        options = (Option(name="nice", value=str(new)),)
        yield Amended(at_s=0.0, workloads=tuple(ids), options=options, nice=new)
