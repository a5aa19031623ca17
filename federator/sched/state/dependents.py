"""Knows which workloads wait for which others, and wakes them when one starts or ends.

A start or an end costs one look into a table where nobody waits for it. Of an array that somebody
waits for as a whole the tasks are counted, so only the last one wakes. Of a user and name for which
a singleton waits, the live workloads are kept in order, so only the next one is woken. There an
array is one job, as in slurmctld: its tasks do not wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from federator.model.eligibility import Condition, DependencyKind
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.state.workload_record import WorkloadRecord

Key = tuple[WorkloadId, bool]
"""A workload, or (True) an array as a whole, of which somebody waits for the start or the end."""
Name = tuple[str, str]
"""User and name of a job."""


@dataclass(slots=True)
class _Tasks:
    """So many tasks of an array have not started yet, or live."""

    unstarted: int
    live: int


@dataclass(slots=True)
class _Namesakes:
    """The live workloads of one user and name."""

    live: dict[WorkloadId, WorkloadId]  # by id; the array of each, or itself
    at_sites: Counter[WorkloadId]  # how many of each array, or job
    singletons: set[WorkloadId] = field(default_factory=set)  # of these, those that wait for it
    turn: WorkloadId | None = None  # ``next_ones`` when one of them moved last

    def next_ones(self) -> WorkloadId | None:
        """The oldest, or the array whose tasks are; None while any other is at a site."""
        first = next(iter(self.live.values()), None)
        return first if self.at_sites.keys() <= {first} else None


class Dependents:
    """Who waits for whom.

    Args:
        entries: the ledger's.
        array_tasks: the ledger's.
        unsettled: takes those whose conditions may have changed.
    """

    def __init__(
        self,
        entries: Mapping[WorkloadId, WorkloadRecord],
        array_tasks: Mapping[WorkloadId, Mapping[int, WorkloadId]],
        unsettled: dict[WorkloadId, None],
    ) -> None:
        self._entries = entries
        self._array_tasks = array_tasks
        self._unsettled = unsettled
        self._at_start: dict[Key, dict[WorkloadId, None]] = {}
        self._at_end: dict[Key, dict[WorkloadId, None]] = {}
        self._tasks: dict[WorkloadId, _Tasks] = {}  # of arrays that are waited for as a whole
        self._names: dict[Name, _Namesakes] = {}  # those for which a singleton waits

    # ---- who waits ----

    def watch(self, entry: WorkloadRecord) -> None:
        """A workload waits for what its conditions name."""
        for condition in entry.waits_for.conditions:
            if condition.kind is DependencyKind.SINGLETON:
                self._namesakes(entry).singletons.add(entry.workload.id)
            elif not condition.failed:
                key = self.key_of(condition, entry)
                if key[1] and key[0] not in self._tasks:
                    self._tasks[key[0]] = _counted(self.jobs_of(key))
                table = self._table(condition)
                table.setdefault(key, {})[entry.workload.id] = None

    def unwatch(self, entry: WorkloadRecord) -> None:
        """It waits for none of these any more."""
        for condition in entry.waits_for.conditions:
            if condition.kind is DependencyKind.SINGLETON:
                self._drop_singleton(entry)
            elif not condition.failed:
                self._drop(self._table(condition), self.key_of(condition, entry), entry)

    def _table(self, condition: Condition) -> dict[Key, dict[WorkloadId, None]]:
        return self._at_start if condition.kind is DependencyKind.AFTER else self._at_end

    def _drop(
        self, table: dict[Key, dict[WorkloadId, None]], key: Key, entry: WorkloadRecord
    ) -> None:
        waiting = table.get(key, {})
        waiting.pop(entry.workload.id, None)
        if not waiting:
            table.pop(key, None)
        if key[1] and key not in self._at_start and key not in self._at_end:
            self._tasks.pop(key[0], None)

    def _drop_singleton(self, entry: WorkloadRecord) -> None:
        name = _name_of(entry)
        if name in self._names:
            self._names[name].singletons.discard(entry.workload.id)
            if not self._names[name].singletons:
                del self._names[name]

    def _namesakes(self, entry: WorkloadRecord) -> _Namesakes:
        name = _name_of(entry)
        if name not in self._names:
            found = [e for e in self._entries.values() if _is_live(e) and _name_of(e) == name]
            at_sites = Counter(_array_of(e) for e in found if e.state in AT_SITE)
            live = dict(sorted((e.workload.id, _array_of(e)) for e in found))
            self._names[name] = _Namesakes(live, at_sites)
        return self._names[name]

    # ---- whom they wait for ----

    def key_of(self, condition: Condition, entry: WorkloadRecord) -> Key:
        """The job of a condition; of ``aftercorr`` the task of the same index, if there is one."""
        tasks = self._array_tasks.get(condition.job)
        if tasks is None:
            return condition.job, False
        index = condition.task
        own = entry.workload.array
        if condition.kind is DependencyKind.AFTER_CORR and index is None and own is not None:
            index = own.index if own.index in tasks else None
        if index is None:
            return condition.job, True
        return tasks.get(index, WorkloadId(0)), False

    def jobs_of(self, key: Key) -> list[WorkloadRecord]:
        """The workloads that a key stands for; none: they are known no more."""
        id_, is_array = key
        ids: Iterable[WorkloadId] = self._array_tasks.get(id_, {}).values() if is_array else (id_,)
        return [self._entries[each] for each in ids if each in self._entries]

    def waited_for(self, entry: WorkloadRecord) -> Iterator[WorkloadId]:
        """The workloads that a dependency still names."""
        for condition in entry.waits_for.conditions:
            if condition.job and not condition.failed:
                yield from (job.workload.id for job in self.jobs_of(self.key_of(condition, entry)))

    def has_live(self, key: Key) -> bool:
        """Whether any of its jobs has not ended."""
        if key[1] and key[0] in self._tasks:
            return self._tasks[key[0]].live > 0
        return any(_is_live(entry) for entry in self.jobs_of(key))

    def has_unstarted(self, key: Key) -> bool:
        """Whether any of its jobs may still start for the first time."""
        if key[1] and key[0] in self._tasks:
            return self._tasks[key[0]].unstarted > 0
        return any(_is_unstarted(entry) for entry in self.jobs_of(key))

    def is_its_turn(self, entry: WorkloadRecord) -> bool:
        """Whether a singleton is the oldest live job of its name, and no other is at a site."""
        return self._namesakes(entry).next_ones() == _array_of(entry)

    # ---- what happens ----

    def came(self, entry: WorkloadRecord) -> None:
        """A workload is known now; somebody may wait for its name, or for its array already."""
        array = entry.workload.array
        tasks = self._tasks.get(array.array_id) if array is not None else None
        if tasks is not None:  # a task that was adopted
            tasks.unstarted, tasks.live = tasks.unstarted + 1, tasks.live + 1
        if self._names and (namesakes := self._names.get(_name_of(entry))) is not None:
            id_ = entry.workload.id
            is_last = not namesakes.live or id_ > next(reversed(namesakes.live))
            namesakes.live[id_] = _array_of(entry)
            if not is_last:  # one that was adopted
                namesakes.live = dict(sorted(namesakes.live.items()))

    def moved(self, entry: WorkloadRecord, before: WorkloadState) -> None:
        """A workload has changed its state, but has no other mark of the change yet."""
        if self._names and (namesakes := self._names.get(_name_of(entry))) is not None:
            self._namesake_moved(namesakes, entry, before)
        over = entry.state in TERMINAL
        if not over and entry.state is not WorkloadState.RUNNING:
            return
        if over:
            self.unwatch(entry)
        starts = not entry.ran_at  # or it will never start
        for key in self._keys_of(entry, starts=starts, over=over):
            if starts:
                self._unsettled.update(self._at_start.get(key, {}))
            if over:
                self._unsettled.update(self._at_end.get(key, {}))

    def renamed(self, entry: WorkloadRecord, change: Callable[[], None]) -> None:
        """Change a workload that lives; singletons may count it under another name then."""
        before = _name_of(entry)
        self.unwatch(entry)
        change()
        for name in {before, _name_of(entry)} & self._names.keys():
            waiting = self._names.pop(name).singletons
            self._unsettled.update(dict.fromkeys(sorted(waiting)))
            for id_ in waiting:
                self._namesakes(self._entries[id_]).singletons.add(id_)
        self.watch(entry)

    def _keys_of(self, entry: WorkloadRecord, *, starts: bool, over: bool) -> Iterator[Key]:
        """Whom those wait for that its step may concern."""
        yield entry.workload.id, False
        array = entry.workload.array
        tasks = self._tasks.get(array.array_id) if array is not None else None
        if array is None or tasks is None:
            return
        tasks.unstarted -= starts
        tasks.live -= over
        if not tasks.unstarted or not tasks.live:
            yield array.array_id, True

    def _namesake_moved(
        self, namesakes: _Namesakes, entry: WorkloadRecord, before: WorkloadState
    ) -> None:
        own = _array_of(entry)
        namesakes.at_sites[own] += (entry.state in AT_SITE) - (before in AT_SITE)
        if not namesakes.at_sites[own]:
            del namesakes.at_sites[own]
        if entry.state in TERMINAL:
            namesakes.live.pop(entry.workload.id, None)
        array, before_it = namesakes.next_ones(), namesakes.turn
        namesakes.turn = array
        if array is None or array == before_it:  # of many tasks, each is not looked at at each step
            return
        for id_, its_array in namesakes.live.items():
            if its_array != array:
                break
            if id_ in namesakes.singletons:
                self._unsettled[id_] = None


def _name_of(entry: WorkloadRecord) -> Name:
    return entry.workload.user, entry.workload.name


def _array_of(entry: WorkloadRecord) -> WorkloadId:
    """The array of a task, else the workload itself."""
    array = entry.workload.array
    return entry.workload.id if array is None else array.array_id


def _is_live(entry: WorkloadRecord) -> bool:
    return entry.state not in TERMINAL


def _is_unstarted(entry: WorkloadRecord) -> bool:
    return _is_live(entry) and not entry.ran_at and entry.state is not WorkloadState.RUNNING


def _counted(tasks: Iterable[WorkloadRecord]) -> _Tasks:
    found = list(tasks)
    return _Tasks(sum(map(_is_unstarted, found)), sum(map(_is_live, found)))
