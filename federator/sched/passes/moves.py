"""Weighs whether a gang on slow nodes should move: save, leave, and go on from there elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from federator.model.lifecycle import WorkloadState
from federator.model.node_names import jobs_at
from federator.model.workload import SiteName
from federator.sched.bid.placement import suitable_nodes
from federator.sched.passes.continuation import is_near_its_limit, limit_at_s
from federator.sched.passes.save_slots import saves_left
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import family_of

MOST_AHEAD_S: Final = 30 * 86_400.0  # of what one without a time limit may run on


class GangMove(NamedTuple):
    """What moving would bring and cost, in seconds of the gang's time.

    ``gain_s``: the time that it would lose by the slow nodes until its end. ``cost_s``: to save, to
    start again and to do again what is not saved. ``but``: why it does not move though it pays.
    """

    gain_s: float
    cost_s: float
    but: str = ""

    @property
    def pays(self) -> bool:
        """Whether it gains more than it costs."""
        return self.gain_s > self.cost_s


def gain_s(left_s: float, factor: float) -> float:
    """The time that is lost on slow nodes: remaining x loss.

    Args:
        left_s: it would run on for so long where it is, >= 0.
        factor: its steps take so many times as long as elsewhere, > 0.
    """
    return left_s * max(0.0, 1.0 - 1.0 / factor)


def cost_s(save_s: float, restart_s: float, lost_s: float) -> float:
    """The time that a move takes: save, start again up to the first step, do again what is lost."""
    return save_s + restart_s + lost_s


def weighed(
    turn: Transaction, entry: WorkloadRecord, factor: float, sites: Mapping[SiteName, SiteView]
) -> GangMove:
    """Weigh the move of one that runs; ``factor`` as for ``gain_s``."""
    ledger, rules, now_s = turn.ledger, turn.rules, turn.now_s
    found = ledger.durations.remaining(entry, now_s)
    left_s = found.expected_s if found is not None else max(0.0, limit_at_s(entry) - now_s)
    family = family_of(entry.workload)
    save_s = ledger.saves.known_s(family)
    lost_s = _lost_s(ledger, entry, rules, now_s)
    move = GangMove(
        gain_s(min(left_s, MOST_AHEAD_S), factor),
        cost_s(save_s, rules.slow_nodes.restart_s, lost_s),
    )
    return move._replace(but=_but(ledger, rules, entry, sites, now_s)) if move.pays else move


def _lost_s(ledger: Ledger, entry: WorkloadRecord, rules: Rules, now_s: float) -> float:
    """Its unsaved work: none of a family that is known to save in time, else all of
    this attempt."""
    known_s = ledger.saves.p95_s(family_of(entry.workload))
    if known_s is not None and known_s <= rules.grace_s:
        return 0.0
    return max(0.0, now_s - entry.started_at_s)


def _but(
    ledger: Ledger,
    rules: Rules,
    entry: WorkloadRecord,
    sites: Mapping[SiteName, SiteView],
    now_s: float,
) -> str:
    """The reason why one does not move though it pays; "": there is none."""
    workload, view = entry.workload, sites[entry.site]
    mode = ledger.tenancy.mode(ledger.tenancy.row(workload.tenant))
    obstacles: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: not workload.migrates, "it was submitted without --fed-migrate"),
        (lambda: not workload.preemptible, "it may not be requeued, or not be evicted"),
        (
            lambda: entry.promised_to is not None or is_near_its_limit(entry, rules, now_s),
            "it is to leave anyhow",
        ),
        (
            lambda: now_s < entry.started_at_s + rules.cooldown_s,
            "this attempt has not run for policy.preemption.cooldown_s",
        ),
        (lambda: not (view.ready and mode.acts), "nothing is started for it at its site now"),
        (lambda: saves_left(ledger, rules, entry.site) < 1, "too many jobs save in its region"),
        (
            lambda: any(job.nodelist or job.reservation for job in workload.jobs),
            "it asks for nodes by name, or for a reservation",
        ),
        (
            lambda: _idle_elsewhere(ledger, entry, view) < len(entry.node_names),
            "too few other nodes are idle at its site",
        ),
    )
    return next((words for holds, words in obstacles if holds()), "")


def _idle_elsewhere(ledger: Ledger, entry: WorkloadRecord, view: SiteView) -> int:
    """Whole idle nodes of its partition with GPUs of its types that it may have for sure.

    Its site tells how many are idle, and not which: all those that it may not have are taken to be
    among them. They are not right for it, slow, drained, claimed, or about to be used.
    """
    (plan,) = entry.plan
    if view.empty is None:
        return 0
    idle = sum(
        row.nodes_idle
        for row in view.summary
        if row.partition == plan.partition
        and (not plan.gpu_types or row.gpu_type in plan.gpu_types)
    )
    room, jobs = view.empty.room, jobs_at(entry.workload.jobs, entry.site)
    here = [f.node for f in room.nodes_in((plan.partition,))]
    alike = {n.name for n in here if not plan.gpu_types or n.gpu_type in plan.gpu_types}
    right = alike - _promised(ledger, entry.site)
    for job in jobs:
        right &= {f.node.name for f in suitable_nodes(job, room, plan.partition)}
    return idle - len(alike.difference(plan.nodes) - right)


def _promised(ledger: Ledger, site: SiteName) -> set[str]:
    """The nodes of a site that a gang may not have now, or that others are about to have."""
    drains, claims = ledger.drains, (*ledger.claims.values(), *ledger.moves.places.values())
    names = {*drains.limping.get(site, ()), *drains.nodes.get(site, ())}
    names.update(n for c in claims if c.site == site for plan in c.jobs for n in plan.nodes)
    starting = ledger.in_state(WorkloadState.AWARDED, WorkloadState.LAUNCHING)
    names.update(name for e in starting if e.site == site for name in e.node_names)
    return names
