"""Finds nodes on which trainings are slow, keeps gangs off them for a while, and moves gangs away.

A run is compared with those of its kind on other nodes (``sched.state.step_times``). One that is
slow has its nodes quarantined: jobs of several nodes do not start there, within a budget of each
site's nodes. The quarantine ends when a gang runs there at normal speed, when its time is over
(the next gang is the proof; a node that is slow again is kept away twice as long), or when an
operator resumes the nodes. What is remembered of runs is volatile; quarantines are in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from federator.model.event import SiteDrained, SiteResumed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import Note, Wake
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.sched.passes.moves import GangMove, weighed
from federator.sched.passes.rounds import Rounds
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.recent_runs import kinds_of
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import family_of
from federator.sched.state.step_times import Judged, RunShape, Speed, StepTimes

MOST_DOUBLINGS: Final = 4  # of the time for which a node is quarantined
MOST_BLAMED: Final = 100_000  # nodes of which it is remembered that they were slow
MOST_NAMED: Final = 16  # nodes, in words
MOST_FOUND: Final = 100_000  # workloads of which it is remembered how fast they are


class Pace(NamedTuple):
    """How fast a running workload is beside its like, and what a move would bring."""

    attempt: int
    judged: Judged
    move: GangMove | None = None
    blamed: bool = False  # its nodes have been, for this attempt


class SlowNodes:
    """Takes in how long steps take.

    Args:
        sites: as they last were.
        rules: see ``Rules``.
        ledger: keeps the quarantines.
        rounds: of the open pass, which drops the offers of a site whose nodes are found slow.
    """

    def __init__(
        self,
        sites: Mapping[SiteName, SiteView],
        rules: Rules,
        ledger: Ledger,
        rounds: Rounds,
    ) -> None:
        self._sites = sites
        self.rules = rules
        self._ledger = ledger
        self._rounds = rounds
        self._steps = StepTimes(self._is_live)
        self._found: dict[WorkloadId, Pace] = {}
        self._blamed: dict[tuple[SiteName, str], int] = {}  # so many slow runs in a row were there
        self._slow_themselves: dict[WorkloadId, None] = {}  # the latest that were acquitted
        self._next_look_s = 0.0

    def _is_live(self, attempt: AttemptId) -> bool:
        entry = self._ledger.entries.get(attempt.workload)
        runs = entry is not None and entry.state is WorkloadState.RUNNING
        return runs and entry is not None and entry.attempt_id == attempt

    def pace_of(self, entry: WorkloadRecord) -> Pace | None:
        """How fast one that runs is; None: it is not known."""
        found = self._found.get(entry.workload.id)
        runs = entry.state is WorkloadState.RUNNING
        return found if found is not None and runs and found.attempt == entry.attempt else None

    def reported(self, turn: Transaction, site: SiteName, report: AttemptReport) -> None:
        """Take in a report: of the present attempt of one job that runs, and tells of its steps."""
        if report.steps is None:
            return
        entry = self._ledger.entries.get(report.attempt.workload)
        if (
            entry is None
            or entry.attempt_id != report.attempt
            or entry.site != site
            or entry.state is not WorkloadState.RUNNING
            or report.user != entry.workload.user
            or len(entry.plan) != 1
        ):
            return
        shape = _shape_of(entry)
        if not self._steps.take_in(shape, report.attempt, entry.node_names, report.steps):
            return
        found = self._steps.judge(shape, report.attempt)
        if found is None:
            return
        if found.speed is Speed.NORMAL:
            self._found_normal(turn, entry, found)
        elif found.speed is Speed.SLOW:
            self._found_slow(turn, entry, found)
        else:
            self._note(entry, found)

    def settle(self, turn: Transaction) -> None:
        """End the quarantines whose time is over; all of them where none may be any more."""
        if not self.rules.slow_nodes.budget_frac:
            for site, nodes in [*self._ledger.drains.limping.items()]:
                self._resume(turn, site, nodes, "policy.slow_nodes.budget_frac is 0")
        if turn.now_s < self._next_look_s:
            return
        self._next_look_s = inf
        for site, nodes in [*self._ledger.drains.limping.items()]:
            over = tuple(name for name, drain in nodes.items() if drain.until_s <= turn.now_s)
            if over:
                self._resume(turn, site, over, "its time is over")
            left = self._ledger.drains.limping.get(site, {})
            for drain in left.values():
                self._next_look_s = min(self._next_look_s, drain.until_s)
        if self._next_look_s < inf:
            turn.commands.append(Wake(at_s=self._next_look_s))

    # ---- what was found ----

    def _note(self, entry: WorkloadRecord, found: Judged, move: GangMove | None = None) -> None:
        was = self._found.pop(entry.workload.id, None)
        blamed = move is not None
        blamed = blamed or (was is not None and was.attempt == entry.attempt and was.blamed)
        self._found[entry.workload.id] = Pace(entry.attempt, found, move, blamed)
        if len(self._found) > MOST_FOUND:
            del self._found[next(iter(self._found))]

    def _found_normal(self, turn: Transaction, entry: WorkloadRecord, found: Judged) -> None:
        """A gang at normal speed proves its nodes, and their links, to be sound."""
        self._note(entry, found)
        if len(entry.node_names) < 2:
            return
        for name in entry.node_names:
            self._blamed.pop((entry.site, name), None)
        limping = self._ledger.drains.limping.get(entry.site, {})
        proved = tuple(name for name in entry.node_names if name in limping)
        if proved:
            why = f"workload {entry.workload.id} runs there at normal speed"
            self._resume(turn, entry.site, proved, why)

    def _found_slow(self, turn: Transaction, entry: WorkloadRecord, found: Judged) -> None:
        if entry.workload.id in self._slow_themselves:
            self._found.pop(entry.workload.id, None)
            return
        if self._steps.slow_itself(_shape_of(entry), entry.attempt_id):
            self._acquit(turn, entry)
            return
        was = self.pace_of(entry)
        if was is None or not was.blamed:
            self._blame(turn, entry, found)
        move = weighed(turn, entry, found.factor, self._sites)
        self._note(entry, found, move)
        if move.pays and not move.but:
            reason = Reason(
                code=ReasonCode.SLOW_NODES,
                detail=f"{_listed(entry.node_names)}: {_words(found)}",
                more_in_s=move.gain_s,
            )
            turn.change(entry, WorkloadEvent.REQUEUE_ASKED, reason=reason)

    def _acquit(self, turn: Transaction, entry: WorkloadRecord) -> None:
        """It was as slow on other nodes before: neither those nor these are to blame, for good."""
        self._found.pop(entry.workload.id, None)
        self._slow_themselves[entry.workload.id] = None
        if len(self._slow_themselves) > MOST_FOUND:
            del self._slow_themselves[next(iter(self._slow_themselves))]
        mine = f"workload {entry.workload.id}:"
        for site, nodes in [*self._ledger.drains.limping.items()]:
            names = tuple(name for name, drain in nodes.items() if drain.reason.startswith(mine))
            for name in names:
                self._blamed.pop((site, name), None)
            if names:
                self._resume(turn, site, names, f"{mine} its steps are longer on any nodes")

    # ---- quarantines ----

    def _blame(self, turn: Transaction, entry: WorkloadRecord, found: Judged) -> None:
        """Quarantine the nodes of a slow run; only those that were slow before, if there are any.

        Within the budget: a group that does not fit is told of, and remembered.
        """
        site, names = entry.site, entry.node_names
        before = {name: self._blamed.get((site, name), 0) for name in names}
        limping = self._ledger.drains.limping.get(site, {})
        # What is in the log counts as well: a daemon that starts anew does not blame the others.
        suspects = tuple(name for name in names if before[name] or name in limping) or names
        for name in names:
            self._blamed.pop((site, name), None)
            self._blamed[site, name] = before[name] + 1
        while len(self._blamed) > MOST_BLAMED:
            del self._blamed[next(iter(self._blamed))]
        fresh = tuple(name for name in suspects if name not in limping)
        fits = len(limping) + len(fresh) <= self._budget(site)
        if not fits:
            fields = {
                "site": site,
                "attempt": str(entry.attempt_id),
                "nodes": _listed(suspects),
                "detail": _words(found),
            }
            turn.commands.append(Note(event="slow_nodes_left", fields=fields))
        if fits and fresh:
            doublings = min(MOST_DOUBLINGS, max(before[name] for name in fresh))
            self._quarantine(turn, entry, fresh, found, 2**doublings)

    def _budget(self, site: SiteName) -> int:
        """So many nodes of a site may be in quarantine at once."""
        capacity = self._sites[site].capacity
        nodes = len(capacity.nodes) if capacity is not None else 0
        return int(self.rules.slow_nodes.budget_frac * nodes)

    def _quarantine(
        self,
        turn: Transaction,
        entry: WorkloadRecord,
        names: tuple[str, ...],
        found: Judged,
        times: int,
    ) -> None:
        until_s = turn.now_s + times * self.rules.slow_nodes.quarantine_s
        turn.record(
            SiteDrained(
                at_s=turn.now_s,
                site=entry.site,
                nodes=names,
                reason=f"workload {entry.workload.id}: {_words(found)}",
                cordon=True,
                gangs=True,
                until_s=until_s,
            )
        )
        self._rounds.site_drained(turn, entry.site)
        self._next_look_s = min(self._next_look_s, until_s)
        turn.commands.append(Wake(at_s=until_s))

    def _resume(self, turn: Transaction, site: SiteName, names: Iterable[str], why: str) -> None:
        """Let gangs use nodes again."""
        nodes = tuple(sorted(names))
        turn.record(SiteResumed(at_s=turn.now_s, site=site, nodes=nodes, gangs=True, reason=why))
        self._rounds.memory.known.forget(site)
        self._rounds.is_due(turn)


def _shape_of(entry: WorkloadRecord) -> RunShape:
    (plan,) = entry.plan
    kind, *_ = kinds_of(family_of(entry.workload), entry.held_gpus)
    types = tuple(sorted(plan.gpu_types))
    return RunShape(kind, entry.site, plan.partition, types, len(plan.nodes))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ",".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _words(found: Judged) -> str:
    return (
        f"steps take {found.factor:.2f} times as long as in {found.others} runs of its kind on "
        "other nodes"
    )
