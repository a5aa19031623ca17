"""The rows of one answer about the queue: those asked for, arrays in one row, the rest left off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from federator.daemon.queue_details import partitions_of
from federator.model.lifecycle import AT_SITE, TERMINAL
from federator.model.viewer import Viewer
from federator.sched.state.ledger import WorkloadRecord
from federator.wire.client_protocol import QueueCall

Group = Sequence[
    WorkloadRecord
]  # what one row stands for: a workload, or waiting tasks of one array


def selected(
    entries: Iterable[WorkloadRecord], call: QueueCall, viewer: Viewer | None = None
) -> list[WorkloadRecord]:
    """Keep the workloads that a call asks for, by what they are; its ids are not looked at.

    Of those that ``viewer`` does not see none is kept, whatever is asked for.
    """
    if viewer is not None:
        entries = (entry for entry in entries if is_seen(entry, viewer))
    for test in _tests(call):
        entries = filter(test, entries)
    return list(entries)


def is_seen(entry: WorkloadRecord, viewer: Viewer | None) -> bool:
    """Whether a workload is shown to ``viewer``; None: who sees all."""
    return viewer is None or viewer.sees(entry.workload.user, entry.workload.tenant)


def _tests(call: QueueCall) -> Iterator[Callable[[WorkloadRecord], bool]]:
    """Only those that are needed: there may be a million workloads."""
    users, states, sites = frozenset(call.users), frozenset(call.states), frozenset(call.clusters)
    names = frozenset(name.lower() for name in call.names)
    tenants = frozenset(name.lower() for name in call.tenants)
    partitions = frozenset(call.partitions)
    if not call.ended:
        yield lambda entry: entry.state not in TERMINAL
    if states:
        yield lambda entry: entry.state.value in states
    if users:
        yield lambda entry: entry.workload.user in users
    if names:
        yield lambda entry: entry.workload.name.lower() in names
    if tenants:
        yield lambda entry: entry.workload.tenant.lower() in tenants
    if sites:
        yield lambda entry: entry.site in sites
    if partitions:
        yield lambda entry: not partitions.isdisjoint(partitions_of(entry))


def collapsed(entries: Iterable[WorkloadRecord]) -> list[Group]:
    """Put the waiting tasks of each array together, as squeue does; all else stays alone.

    Those that can never start stand apart from those that still may (``aftercorr``).

    Args:
        entries: in order of id; so are the groups, by their first.
    """
    groups: list[Group] = []
    waiting: dict[tuple[int, str, bool], list[WorkloadRecord]] = {}
    for entry in entries:
        array = entry.workload.array
        if array is None or entry.state in AT_SITE or entry.state in TERMINAL:
            groups.append([entry])
            continue
        key = (array.array_id, entry.state.value, entry.waits_for.never)
        if key in waiting:
            waiting[key].append(entry)
        else:
            groups.append(waiting.setdefault(key, [entry]))
    return groups


def most_telling(groups: Sequence[Group], limit: int) -> list[Group]:
    """Keep ``limit`` of them, in their order.

    What is at a site comes before what waits, and that before what has ended. Within each of these
    the users share: nobody's many jobs hide those of others. Of one user the newest are kept.
    """
    if len(groups) <= limit:
        return list(groups)
    taken: Counter[tuple[int, str]] = Counter()
    ranked = []
    for k in range(len(groups) - 1, -1, -1):
        entry = groups[k][0]
        kind = 0 if entry.state in AT_SITE else 2 if entry.state in TERMINAL else 1
        taken[kind, entry.workload.user] += 1
        ranked.append((kind, taken[kind, entry.workload.user], -k))
    ranked.sort()
    return [groups[-minus_k] for minus_k in sorted((k for _, _, k in ranked[:limit]), reverse=True)]


def array_tasks(group: Group, ids: Collection[str]) -> str:
    """Name the tasks of a row as squeue does behind ``ARRAY_``.

    ``[0-10%4]`` with the throttle; where tasks were asked for by index ``7``, or ``[7-8]``.
    """
    array = group[0].workload.array
    if array is None:
        return ""
    indices = [entry.workload.array.index for entry in group if entry.workload.array is not None]
    by_index = bool(ids) and str(array.array_id) not in ids
    if by_index and len(indices) == 1:
        return str(indices[0])
    throttle = f"%{array.max_running}" if array.max_running and not by_index else ""
    return f"[{index_list(sorted(indices))}{throttle}]"


def index_list(indices: Sequence[int]) -> str:
    """Write rising indices as Slurm does: ``1,3,5-9``; evenly spaced beyond ten ``0-399:3``."""
    first, last = indices[0], indices[-1]
    step = indices[1] - first if len(indices) > 1 else 1
    if last - first > 10 and step > 1 and list(indices) == list(range(first, last + 1, step)):
        return f"{first}-{last}:{step}"
    parts = []
    start = at = first
    for index in [*indices[1:], None]:
        if index is not None and index == at + 1:
            at = index
            continue
        parts.append(str(start) if start == at else f"{start}-{at}")
        if index is not None:
            start = at = index
    return ",".join(parts)
