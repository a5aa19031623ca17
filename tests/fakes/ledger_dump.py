"""All that a ledger knows, as plain values to compare: no attribute is passed over by oversight.

``DERIVED`` and ``VOLATILE`` name what need not be the same in two ledgers that know the same, and
why. What is not named there must be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np

from federator.model.workload import Job
from federator.sched.state.backlog import Backlog, Lane
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.durations import DurationModel
from federator.sched.state.holdings import Holdings
from federator.sched.state.ledger import Ledger
from federator.sched.state.moves import Moves
from federator.sched.state.outputs import Outputs
from federator.sched.state.promised_nodes import PromisedNodes
from federator.sched.state.save_times import SaveTimes
from federator.sched.state.scaling_curves import ScalingCurves
from federator.sched.state.state_index import StateIndex
from federator.sched.state.submission_keys import SubmissionKeys
from federator.sched.state.usage import WindowAverage
from federator.sched.state.workload_record import RareFields, WorkloadRecord

Attributes = dict[tuple[type, str], str]

DERIVED: Final[Attributes] = {
    (ScalingCurves, "_gain"): "follows from the runs, as soon as it is asked for",
    (SaveTimes, "_p95_s"): "follows from the save times, as soon as it is asked for",
    (DurationModel, "_due"): "follows from the runs; what is due of ended ones may be missing",
    (Backlog, "stale"): "families to scan; those without waiting workloads may be missing",
    (Backlog, "_families"): "follows from the lanes; those without any may be missing",
    (Backlog, "heads"): "of the last quota scan; all is scanned before it is asked for",
    (Backlog, "moving"): "as ``heads``",
    (Backlog, "_asked"): "numbers of what is asked for, one for each that waits",
    (Backlog, "_asked_most"): "when to forget some of these",
    (Backlog, "_numbers"): "gives the next of these",
    (Lane, "within"): "as ``heads``",
    (Lane, "jobs"): "of one of its workloads",
    (Lane, "_head"): "the same workloads may begin at another place of the arrays",
    (Lane, "version"): "tells an open pass that positions moved; no pass is open after a restart",
    (SaveTimes, "version"): "as of ``Holdings``",
    (Ledger, "watches"): "of readers in the same process",
    (Ledger, "_costs"): "counts in ``evictions``, ``saves`` and ``tax``",
    (WindowAverage, "_later"): "follows from the rest, as soon as it is asked for",
    (Holdings, "version"): "tells that something has changed, within one process",
    (SubmissionKeys, "_key_of"): "``id_of`` the other way round, made when it is asked for",
    (StateIndex, "_entries"): "the ledger's",
    (PromisedNodes, "_entries"): "the ledger's",
    (Moves, "_entries"): "likewise",
    (Ledger, "saved"): "follows from the entries; may be in another order",
    (Ledger, "unsettled"): "all that may not start is looked at when a term begins",
    (Ledger, "dependents"): "follows from what entries wait for, as soon as that is known",
    (Ledger, "counts"): "follows from the entries; members may be in another order",
    (Catalogue, "usage"): "follows from the data sets; tenants may be in another order",
    (Catalogue, "owned"): "follows from the data sets",
    (Catalogue, "replicas"): "follows from the data sets",
    (Catalogue, "_copying"): "follows from the data sets",
    (Catalogue, "shrinking"): "follows from the data sets",
    (Catalogue, "links"): "follows from the data sets; copies may be in another order",
    (Outputs, "changes"): "counts news since this ledger began",
    (Outputs, "_due"): "follows from the outputs; jobs that ended may be in another order",
    (Outputs, "_labels"): "follows from the outputs",
    (Catalogue, "_domains"): "as configured now",
    (Catalogue, "_places"): "follows from the rest, as soon as it is asked for",
    (Catalogue, "_sites"): "as the last",
    (Catalogue, "_ahead"): "as the last",
    (Catalogue, "copies_s"): "as the last",
    (Job, "_hash"): "follows from the rest, as soon as it is asked for",
    (Ledger, "tail"): "says how long the log is, not what is in it",
}
VOLATILE: Final[Attributes] = {
    (WorkloadRecord, "refusals"): "why the last pass did not start it; the next one says so again",
    (Lane, "refusal"): "as ``WorkloadRecord.refusals``",
}
_LEFT_OUT: Final = DERIVED.keys() | VOLATILE.keys()


def attributes(value: object) -> Iterator[str]:
    """The names of all that an object has of its own."""
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
    yield from getattr(value, "__dict__", ())


def dump(value: Any) -> Any:  # noqa: C901, PLR0911  # one for each kind of value
    """A value as lists and plain values; the order of dicts counts, as it may reach commands."""
    match value:
        case None | bool() | int() | float() | str() | Enum():
            return value
        case np.ndarray():
            return value.tolist()
        case Mapping():
            return [(dump(key), dump(each)) for key, each in value.items()]
        case set() | frozenset():
            return sorted(map(dump, value))
        case msgspec.Struct():
            if isinstance(value, WorkloadRecord | RareFields):
                return _attributes_of(value)
            return msgspec.to_builtins(value, str_keys=True)
        case Holdings() if len(value.tenancy):
            value.own(0)  # sums have a row for each tenant, but not before they are asked for
            return _attributes_of(value)
        case Lane():
            places = [value.place(k) for k in range(len(value))]
            shape = value.shape._replace(number=0)  # it is given anew
            return [places, shape, *_attributes_of(value, "_ids", "_submitted", "shape")]
        case Backlog():
            lanes = {
                row: sorted(dump(lane) for lane in value.lanes(row)) for row in sorted(value.rows())
            }
            return [list(lanes.values()), *_attributes_of(value, "_lanes", "tenancy")]
    try:
        return [dump(each) for each in value]
    except TypeError:
        return _attributes_of(value)


def _attributes_of(value: object, *done: str) -> list[Any]:
    return [
        (name, dump(getattr(value, name)))
        for name in attributes(value)
        if (type(value), name) not in _LEFT_OUT and name not in done
    ]
