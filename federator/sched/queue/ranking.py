"""Ranks waiting workloads by <priority, credit>, lazily or all at once.

A pass takes workloads from the front a few hundred at a time, so it merges lanes as it goes: the
first is known as soon as each tenant's first is. A report wants them all, so it sorts. Both give
the same order, to the last tie: larger credit, then earlier submission, then smaller id. The credit
itself is computed in ``federator.sched.state.credit``; ``federator.sched.queue.gms_scan`` says who
is within quota.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import WorkloadId
from federator.sched.queue.gms_scan import GmsScan
from federator.sched.queue.rank_walk import Item, Key, RankWalk
from federator.sched.queue.ranked import Ranked
from federator.sched.state.backlog import Backlog, Lane, Place, Run
from federator.sched.state.credit import F64, CreditWeights, age_terms, fair_share_terms
from federator.sched.state.holdings import Holdings


@dataclass(frozen=True, slots=True, kw_only=True)
class RankColumns:
    """A whole ranking as columns of length W, first to try first."""

    id: npt.NDArray[np.int64]
    priority: npt.NDArray[np.int64]
    within_quota: npt.NDArray[np.bool_]
    credit: F64
    age_term: F64
    fair_share_term: F64
    nice_term: F64
    non_preemptible_term: F64


class _Cursor:
    """The place in a run up to which a pass has come; holds when the lane changes under it."""

    __slots__ = ("_last", "_position", "_ranking", "_stop", "_version", "lane", "place", "run")

    def __init__(self, ranking: CreditRanking, lane: Lane, run: Run) -> None:
        self.run = run
        self.lane = lane
        self._ranking = ranking
        self._version = lane.version
        self._position, self._stop = run.start, run.stop
        self._last = lane.place(run.stop - 1)
        self.place: Place = lane.place(run.start)

    def ranked(self, key: Key) -> Ranked:
        return self._ranking.standing(key, self)

    def advance(self) -> Key | None:
        """Go to the next workload of the run."""
        lane = self.lane
        if self._version == lane.version:
            self._position += 1
        else:
            self._version = lane.version
            self._position, self._stop = lane.after(self.place), lane.after(self._last)
        if self._position >= self._stop:
            return None
        self.place = lane.place(self._position)
        return self._ranking.key_of(self)


_INT64 = 2**63
_T = TypeVar("_T")


class CreditRanking:
    """The ranking of MAST at one instant; making it runs the quota scan.

    Args:
        backlog: what waits.
        holdings: what tenants hold, and held on average.
        weights: of the credit.
        now_s: Unix time, not before any submission.
        used_gpus: (T,) average use to take instead of that of ``holdings``.
    """

    def __init__(
        self,
        backlog: Backlog,
        holdings: Holdings,
        weights: CreditWeights,
        now_s: float,
        used_gpus: F64 | None = None,
    ) -> None:
        self._backlog = backlog
        self._weights = weights
        self._now_s = now_s
        averages = holdings.averages(now_s) if used_gpus is None else used_gpus
        self._fair_share_column = fair_share_terms(averages, weights)
        self._fair_share: list[float] = self._fair_share_column.tolist()
        self._scan = GmsScan(backlog, holdings, weights, self._fair_share, now_s)
        self._scan.run()

    def walk(self) -> RankWalk:
        """A way through it from the front; holds when what waits changes."""
        items: list[Item] = []
        for row in self._backlog.rows():
            head = self._backlog.heads.get(row)
            if head is None:
                items.extend(self._items(row))
            else:
                credit = self._scan.credit(head.lane, head.place[0])
                items.append(((head.priority, -credit, *head.place), row))
        return RankWalk(items, self._items)

    def __iter__(self) -> Iterator[Ranked]:
        walk = self.walk()
        while walk.front(_nobody) is not None:
            yield walk.take()

    def _items(self, row: int) -> Iterator[Item]:
        for lane in self._backlog.lanes(row):
            for run in self._backlog.runs(lane):
                cursor = _Cursor(self, lane, run)
                yield self.key_of(cursor), cursor

    def key_of(self, cursor: _Cursor) -> Key:
        """Where the workload that a cursor is at stands."""
        credit = self._scan.credit(cursor.lane, cursor.place[0])
        return (cursor.run.priority, -credit, *cursor.place)

    def standing(self, key: Key, cursor: _Cursor) -> Ranked:
        """The standing of the workload that a cursor is at."""
        priority, negative_credit, submitted_at_s, id_ = key
        shape, weights = cursor.lane.shape, self._weights
        return Ranked(
            id=WorkloadId(id_),
            priority=priority,
            within_quota=cursor.run.within_quota,
            credit=-negative_credit,
            age_term=weights.age_term(self._now_s - submitted_at_s),
            fair_share_term=self._fair_share[cursor.lane.row],
            nice_term=weights.nice_term(shape.nice),
            non_preemptible_term=weights.non_preemptible_term(shape.preemptible),
        )

    def columns(self) -> RankColumns:
        """All at once, as arrays. To be called before the queue changes."""
        lanes = [lane for row in self._backlog.rows() for lane in self._backlog.lanes(row)]
        times, numbers = array("d"), array("q")
        lengths = np.array([lane.append_to(times, numbers) for lane in lanes], dtype=np.intp)
        submitted, ids = np.array(times), np.array(numbers, dtype=np.int64)
        position = np.arange(ids.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        within = position < np.repeat([lane.within for lane in lanes], lengths)
        shapes = [lane.shape for lane in lanes]
        rows = np.array([lane.row for lane in lanes], dtype=np.intp)
        own = np.array([tenant.priority for tenant in self._backlog.tenancy.tenants])
        asked = np.array([shape.asked_priority for shape in shapes], dtype=np.int64)
        levels = np.repeat(np.maximum(own[rows], asked), lengths)
        priority = np.where(within, levels, LOWEST_PRIORITY)
        age = age_terms(self._now_s - submitted, self._weights)
        fair_share = np.repeat(self._fair_share_column[rows], lengths)
        nice = _spread(self._weights.nice_term, [s.nice for s in shapes], lengths)
        price = _spread(
            self._weights.non_preemptible_term, [s.preemptible for s in shapes], lengths
        )
        credit = age + fair_share - nice - price
        order = rank_order(priority, credit, submitted, ids)
        return RankColumns(
            id=ids[order],
            priority=priority[order],
            within_quota=within[order],
            credit=credit[order],
            age_term=age[order],
            fair_share_term=fair_share[order],
            nice_term=nice[order],
            non_preemptible_term=price[order],
        )

    def listed(self) -> Sequence[Ranked]:
        c = self.columns()
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
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [Ranked(*row) for row in rows]


def _nobody(_lane: Lane, _run: Run, _key: Key) -> bool:
    return False


def _spread(
    term: Callable[[_T], float], of_lanes: Sequence[_T], lengths: npt.NDArray[np.intp]
) -> F64:
    """(W,) the term of each workload, by what its lane has."""
    terms = {value: term(value) for value in set(of_lanes)}
    if not any(terms.values()):
        return np.zeros(int(lengths.sum()))
    return np.repeat([terms[value] for value in of_lanes], lengths)


def rank_order(
    priority: npt.NDArray[np.int64], credit: F64, submitted: F64, ids: npt.NDArray[np.int64]
) -> npt.NDArray[np.intp]:
    """The order by priority, then larger credit, earlier submission, smaller id.

    What ``np.lexsort`` gives, in a third of the time: numbers are sorted once, and only where
    credits are equal by id, in which submissions are ordered but for those taken over from a site.

    Args:
        priority: (W,) in 1 to ``LOWEST_PRIORITY``.
        credit: (W,) finite.
        submitted: (W,) Unix time.
        ids: (W,) no two are equal.

    Returns:
        (W,) positions, the first to try first.
    """
    levels = [np.flatnonzero(priority == level) for level in range(1, LOWEST_PRIORITY + 1)]
    order = np.concatenate([at[np.argsort(-credit[at])] for at in levels])
    same = np.diff(credit[order]) == 0
    same &= np.diff(priority[order]) == 0
    if not same.any():
        return order
    tied = np.append(same, False) | np.insert(same, 0, False)
    group = np.cumsum(np.insert(~same, 0, False))[tied]
    least = ids.min()
    span = int(ids.max() - least) + 1
    if span * (int(group[-1]) + 1) < _INT64:
        found = order[tied]
        found = found[np.argsort(group * span + (ids[found] - least))]
        if not ((np.diff(submitted[found]) < 0) & (np.diff(group) == 0)).any():
            order[tied] = found
            return order
    return np.lexsort((ids, submitted, -credit, priority))
