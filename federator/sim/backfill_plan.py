"""Plans jobs of one site as Slurm's backfill does: what of its nodes will be free, and until when.

A plan knows the site's free GPUs now and at each later step, up to ``WINDOW_S`` ahead. It answers
the same as a search of all steps would, without one: it keeps what it has found of like jobs, and
for each size the nodes that have room for it, as the bits of one number for each step. For het jobs
it searches those steps that have enough GPUs in all.

Source: slurm.conf(5), SchedulerParameters; https://slurm.schedmd.com/sched_config.html.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from federator.model.site import Node
from federator.model.workload import Job

WINDOW_S: Final = 86_400.0  # nobody is planned later
RESOLUTION_S: Final = 60.0  # expected ends are rounded up to it
NEAR_S: Final = 7200.0  # and those that are further ahead
FAR_RESOLUTION_S: Final = 600.0  # to this
SHORTEST_S: Final = 1.0  # that a job is planned for

Taken = list[tuple[int, int]]  # node and GPUs of it
_ANY: Final = -1  # all nodes, as bits


class NodeRoom:
    """The nodes of a site, and what of them is free; rows and GPUs of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.free = np.array([node.gpus for node in nodes], dtype=np.int32)
        self._types = [node.gpu_type for node in nodes]
        self._masks: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def of_types(self, types: tuple[str, ...]) -> NDArray[np.bool_]:
        """Which nodes have one of these types of GPU; all of them if none is named."""
        found = self._masks.get(types)
        if found is None:
            found = np.array([not types or each in types for each in self._types], dtype=np.bool_)
            self._masks[types] = found
        return found

    def place(self, free: NDArray[np.int32], parts: Sequence[Job]) -> Taken | None:
        """Nodes for all parts where so much is free: the fullest that fit; None: they do not.

        Parts that may have the fewest nodes choose first: so those that may have any leave these to
        them. It tries one way only. Of several parts whose types overlap it may say None where
        another would fit; and less room may then fit where more did not. One part is exact.
        """
        left = free
        taken: Taken = []
        if len(parts) > 1:
            parts = sorted(parts, key=lambda part: int(self.of_types(part.gpu_types).sum()))
        for part in parts:
            found = self._place_one(left, part)
            if found is None:
                return None
            taken += found
            if len(parts) > 1:
                left = left.copy()
                for node, gpus in found:
                    left[node] -= gpus
        return taken

    def _place_one(self, free: NDArray[np.int32], part: Job) -> Taken | None:
        allowed = self.of_types(part.gpu_types)
        if part.nodes is not None:
            each = part.gpus_per_node
            fitting = np.flatnonzero(allowed & (free >= each))
            if len(fitting) < part.nodes:
                return None
            fullest = fitting[np.argsort(free[fitting], kind="stable")[: part.nodes]]
            return [(int(node), each) for node in fullest]
        return self._spread(free, np.flatnonzero(allowed), part.gpus)

    def _spread(self, free: NDArray[np.int32], nodes: NDArray[np.intp], gpus: int) -> Taken | None:
        """On one node, the fullest that fits; else on the freest, as few as hold them."""
        fitting = nodes[free[nodes] >= gpus]
        if len(fitting):
            return [(int(fitting[np.argmin(free[fitting])]), gpus)]
        taken: Taken = []
        for node in nodes[np.argsort(-free[nodes], kind="stable")]:
            part = min(int(free[node]), gpus)
            if part <= 0:
                return None
            taken.append((int(node), part))
            gpus -= part
            if not gpus:
                return taken
        return None


class NodesHeld(NamedTuple):
    """What running jobs hold, an entry for each job and node of it.

    Attributes:
        rows: the jobs.
        until_s: their ends by their time limits, on the clock of the plan.
        nodes: rows of the site's nodes.
        gpus: of the node.
    """

    rows: NDArray[np.int64]
    until_s: NDArray[np.float64]
    nodes: NDArray[np.int64]
    gpus: NDArray[np.int32]

    @classmethod
    def of(cls, row: int, until_s: float, taken: Taken) -> NodesHeld:
        held = np.array(taken, dtype=np.int64).reshape(-1, 2)
        size = len(held)
        rows, ends_s = np.full(size, row), np.full(size, until_s)
        return cls(rows, ends_s, held[:, 0], held[:, 1].astype(np.int32))

    def beside(self, other: NodesHeld) -> NodesHeld:
        return NodesHeld(
            np.concatenate((self.rows, other.rows)),
            np.concatenate((self.until_s, other.until_s)),
            np.concatenate((self.nodes, other.nodes)),
            np.concatenate((self.gpus, other.gpus)),
        )

    def without(self, rows: Iterable[int]) -> NodesHeld:
        stay = ~np.isin(self.rows, list(rows))
        return NodesHeld(self.rows[stay], self.until_s[stay], self.nodes[stay], self.gpus[stay])


class _SoonestStarts:
    """Before which time like jobs find no room, by their time limits: the longer, the later."""

    def __init__(self) -> None:
        self._limits_s: list[float] = []
        self._soonest_s: list[float] = []

    def of(self, limit_s: float) -> float:
        place = bisect_right(self._limits_s, limit_s)
        return self._soonest_s[place - 1] if place else -inf

    def learn(self, limit_s: float, soonest_s: float) -> None:
        """Note it; what it says of longer limits takes the place of what was known of them."""
        first = bisect_left(self._limits_s, limit_s)
        last = max(first, bisect_right(self._soonest_s, soonest_s))
        self._limits_s[first:last] = [limit_s]
        self._soonest_s[first:last] = [soonest_s]


class BackfillPlan:
    """What will be free, from step to step, as time limits and jobs planned before say.

    Room only ever shrinks in a plan. So a job of one part that finds none before some step never
    will; of het jobs nothing is kept, since less room may fit them (``NodeRoom.place``).
    """

    def __init__(
        self, room: NodeRoom, shapes: Sequence[tuple[Job, ...]], now_s: float, held: NodesHeld
    ) -> None:
        """Begin with the jobs that run.

        Args:
            room: of the site, as it is now.
            shapes: what jobs ask for; methods take a row of it.
            now_s: the time, on any clock.
            held: by the jobs that run.
        """
        self._room, self._shapes, self._now_s = room, shapes, now_s
        self._soonest: dict[int, _SoonestStarts] = {}
        self._fits: dict[tuple[tuple[str, ...], int], list[int]] = {}
        at_s = np.maximum(held.until_s, now_s + SHORTEST_S)
        near = at_s <= now_s + WINDOW_S
        times_s, rows = np.unique(_rounded(at_s[near], now_s), return_inverse=True)
        self._times_s: list[float] = [now_s, *times_s.tolist()]
        self._free = np.zeros((len(self._times_s), len(room.free)), dtype=np.int32)
        self._free[0] = room.free
        np.add.at(self._free, (rows + 1, held.nodes[near]), held.gpus[near])
        np.cumsum(self._free, axis=0, out=self._free)
        self._total: NDArray[np.int64] = self._free.sum(axis=1, dtype=np.int64)

    def start(self, shape: int, limit_s: float) -> Taken | None:
        """Plan a job; its nodes if it starts now. One for which there is no room is not planned."""
        limit_s = max(limit_s, SHORTEST_S)
        is_het = len(self._shapes[shape]) > 1
        known = _SoonestStarts() if is_het else self._soonest.setdefault(shape, _SoonestStarts())
        first = bisect_left(self._times_s, known.of(limit_s))
        found = self._first(shape, limit_s, first)
        if found is None:
            known.learn(limit_s, inf)
            return None
        row, taken = found
        known.learn(limit_s, self._times_s[row])
        self._take(row, self._times_s[row] + limit_s, taken)
        return taken if row == 0 else None

    def could_start(self, shape: int, limit_s: float) -> bool:
        """Whether a job may find room now, if it is the next to be planned, or a later one."""
        parts = self._shapes[shape]
        if len(parts) > 1:
            return True
        limit_s = max(limit_s, SHORTEST_S)
        known = self._soonest.setdefault(shape, _SoonestStarts())
        if known.of(limit_s) > self._now_s:
            return False
        part = parts[0]
        if part.nodes is None:
            end = self._end(0, limit_s)
            fits = self._room.place(self._free[:end].min(axis=0), parts) is not None
        else:
            fits = self._first_even(part, 0, limit_s, 1) is not None
        if not fits:
            known.learn(limit_s, self._times_s[1] if len(self._times_s) > 1 else inf)
        return fits

    def _first(self, shape: int, limit_s: float, first: int) -> tuple[int, Taken] | None:
        """The first step, from one on, from which a job finds room for its time; and its nodes."""
        parts = self._shapes[shape]
        part = parts[0]
        if len(parts) > 1 or part.nodes is None:
            rows = self._of_total(sum(each.total_gpus for each in parts), first, limit_s)
        else:
            even = self._first_even(part, first, limit_s, len(self._times_s))
            rows = [] if even is None else [even]
        for row in rows:
            free = self._free[row : self._end(row, limit_s)].min(axis=0)
            taken = self._room.place(free, parts)
            if taken is not None:
                return row, taken
        return None

    def _end(self, row: int, limit_s: float) -> int:
        """The first step that a job which starts at another would not hold any more."""
        return bisect_left(self._times_s, self._times_s[row] + limit_s)

    def _of_total(self, gpus: int, first: int, limit_s: float) -> list[int]:
        """Steps from which so many GPUs are free at each step of a job, on whichever nodes."""
        steps = len(self._times_s)
        lacks = np.where(self._total < gpus, np.arange(steps), steps)
        first_lack = np.minimum.accumulate(lacks[::-1])[::-1]
        times_s = np.array(self._times_s)
        ends = np.searchsorted(times_s, times_s[first:] + limit_s, side="left")
        return (first + np.flatnonzero(first_lack[first:] >= ends)).tolist()

    def _first_even(self, part: Job, start: int, limit_s: float, last: int) -> int | None:
        """The first step of some from which enough nodes have room for all of a job's time.

        Args:
            part: the job.
            start: the first of them.
            limit_s: the job's time.
            last: the step behind the last of them.
        """
        fits, nodes = self._fits_of(part), part.nodes or 0
        step, common = start, _ANY  # the nodes with room from ``start`` to before ``step``
        while start < last:
            end = self._end(start, limit_s)
            while step < end and (kept := common & fits[step]).bit_count() >= nodes:
                step, common = step + 1, kept
            if step == end:
                return start
            # ``step`` lacks room beside ``start``: begin behind the last step for which that holds
            start, common = step + 1, _ANY
            while (kept := common & fits[start - 1]).bit_count() >= nodes:
                start, common = start - 1, kept
            step += 1
        return None

    def _fits_of(self, part: Job) -> list[int]:
        """Of each step the nodes that have room for a job, as bits."""
        key = (part.gpu_types, part.gpus_per_node)
        found = self._fits.get(key)
        if found is None:
            fits = self._room.of_types(part.gpu_types) & (self._free >= part.gpus_per_node)
            packed = np.packbits(fits, axis=1, bitorder="little")
            width, data = packed.shape[1], packed.tobytes()
            found = [
                int.from_bytes(data[k : k + width], "little") for k in range(0, len(data), width)
            ]
            self._fits[key] = found
        return found

    def _take(self, row: int, until_s: float, taken: Taken) -> None:
        end = len(self._times_s)
        if isfinite(until_s):
            until_s = float(_rounded(np.array([until_s]), self._now_s)[0])
            end = bisect_left(self._times_s, until_s)
            is_step = end < len(self._times_s) and self._times_s[end] == until_s
            if until_s <= self._now_s + WINDOW_S and not is_step:
                self._insert(end, until_s)
        for node, gpus in taken:
            self._free[row:end, node] -= gpus
        self._total[row:end] -= sum(gpus for _, gpus in taken)
        nodes = [node for node, _ in taken]
        left = self._free[row:end, nodes]
        for (_, gpus), fits in self._fits.items():
            _clear(fits, row, nodes, left < gpus)

    def _insert(self, row: int, at_s: float) -> None:
        """A step at a time at which a planned job ends."""
        self._times_s.insert(row, at_s)
        self._free = np.insert(self._free, row, self._free[row - 1], axis=0)
        self._total = np.insert(self._total, row, self._total[row - 1])
        for fits in self._fits.values():
            fits.insert(row, fits[row - 1])


def _clear(fits: list[int], first: int, nodes: Sequence[int], lacks: NDArray[np.bool_]) -> None:
    """Take nodes out of what fits at each step from the first on where they lack room."""
    if lacks.all():
        stays = ~sum(1 << node for node in set(nodes))
        for row in range(first, first + len(lacks)):
            fits[row] &= stays
        return
    for column, node in enumerate(nodes):
        for row in np.flatnonzero(lacks[:, column]).tolist():
            fits[first + row] &= ~(1 << node)


def _rounded(at_s: NDArray[np.float64], now_s: float) -> NDArray[np.float64]:
    grain_s = np.where(at_s <= now_s + NEAR_S, RESOLUTION_S, FAR_RESOLUTION_S)
    rounded_s: NDArray[np.float64] = np.ceil(at_s / grain_s) * grain_s
    return rounded_s
