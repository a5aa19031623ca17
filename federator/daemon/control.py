"""Reads the calls of fscontrol: the workloads that they mean and that the caller may change."""

from __future__ import annotations

from collections.abc import Callable, Collection

from federator.daemon.ids_asked import SiteNumbers
from federator.daemon.views import find
from federator.errors import InvalidRequest
from federator.model.lifecycle import TERMINAL
from federator.model.message import ControlRefusal, ControlVerb
from federator.model.viewer import Viewer
from federator.model.workload import Workload, WorkloadId
from federator.sched.state.expiry import LIVE
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import ControlCall


def verb_of(text: str) -> ControlVerb:
    """The change that a call asks for.

    Raises:
        InvalidRequest: this daemon does not know it.
    """
    try:
        return ControlVerb(text)
    except ValueError as error:
        raise InvalidRequest(
            f"this daemon does not know the change {text[:30]!r}; is it of an earlier release?"
        ) from error


def jobs_meant(
    ledger: Ledger,
    call: ControlCall,
    may: Callable[[Workload], bool],
    viewer: Viewer | None = None,
) -> tuple[tuple[WorkloadId, ...], tuple[str, ...]]:
    """The workloads that a call names and may change, and a line for each that it may not.

    Of an array that is named as a whole, tasks that have ended are left out.

    Args:
        ledger: as it is now.
        call: its ids are without the federation's name.
        may: whether a workload may be changed.
        viewer: who asks; what it does not see there is not. None: it sees all.
    """
    ids: dict[WorkloadId, None] = {}
    errors: list[str] = []
    numbers = SiteNumbers(ledger, may)
    for name in dict.fromkeys(call.ids):
        found = _live(ledger, find(ledger, name, viewer))
        if not found:
            errors.append(f"Invalid job id specified for job {name}{numbers.whose(name)}")
        elif not all(may(ledger.entries[id_].workload) for id_ in found):
            errors.append(f"{ControlRefusal.DENIED.value} for job {name}")
        else:
            ids.update(dict.fromkeys(found))
    for name in dict.fromkeys(call.names):
        called = [
            entry.workload.id
            for entry in ledger.in_state(*LIVE)
            if entry.workload.name == name and may(entry.workload)
        ]
        ids.update(dict.fromkeys(called))
        if not called:
            errors.append(f"Invalid job name specified: {name}")
    return tuple(ids), tuple(errors)


def _live(ledger: Ledger, found: Collection[WorkloadId]) -> list[WorkloadId]:
    ids = list(found)
    if len(ids) == 1:
        return ids
    return [id_ for id_ in ids if ledger.entries[id_].state not in TERMINAL] or ids[:1]
