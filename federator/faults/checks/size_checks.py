"""Checks the sizes of elastic jobs: those they asked for, and what becomes of a resize."""

from __future__ import annotations

from typing import Final

from federator.faults.checks.evidence import Evidence, Moment, Truth
from federator.faults.user_code import NOT_JOINED, SAVED, CodeRun
from federator.model.event import Awarded, Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.reason import ReasonCode
from federator.model.sizes import on_grid
from federator.model.workload import AttemptId
from federator.sched.state.ledger import Ledger
from federator.slurm.options import own_values

_REFUSED: Final = (ReasonCode.SBATCH_REFUSED, ReasonCode.PLAN_REFUSED)
"""Why an attempt at a larger size came to nothing: it is not tried so large again."""


class SizeChecks:
    """Compares awards, starts and ends of elastic jobs with what their users asked for.

    Args:
        evidence: of this history.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def awarded(self, event: Awarded) -> None:
        """An attempt goes to these nodes."""
        nodes = len({name for plan in event.jobs for name in plan.nodes})
        truth = self._evidence.truth(event.attempt.workload)
        self._check(event.attempt, nodes, truth, "is awarded")
        if nodes >= truth.too_large:
            self._evidence.break_(
                f"{event.attempt} is awarded {nodes} nodes, and {truth.too_large:g} have failed it"
            )
        if truth.resized_to:
            self._evidence.counts["resized"] += 1
            self._evidence.counts["resized to another size"] += nodes != truth.resized_to
            truth.resized_to = 0
            self._evidence.at_moment(Moment.RESIZE_AWARDED, event.site, event.attempt)
        truth.nodes, truth.site = nodes, event.site

    def changed(self, event: Changed) -> None:
        """It is to be resized, or has failed or been refused at a larger size."""
        truth = self._evidence.truth(event.workload)
        reason = event.reason
        if event.happening in (WorkloadEvent.FAILED, WorkloadEvent.LOST):
            truth.failed_uncancelled = not truth.cancel_asked
        is_resize = reason is not None and reason.code is ReasonCode.RESIZED
        if event.happening is WorkloadEvent.REQUEUE_ASKED and reason is not None and is_resize:
            truth.resized_to = int(reason.needed)
            attempt = AttemptId(workload=event.workload, attempt=truth.last_attempt)
            self._check(attempt, truth.resized_to, truth, "is resized to")
            self._evidence.at_moment(Moment.RESIZE_ASKED, truth.site, attempt)
        elif event.happening is WorkloadEvent.GREW_IN_VAIN:
            self._evidence.counts["grown in vain"] += 1
            truth.too_large = min(truth.too_large, truth.nodes)
        elif reason is not None and reason.code in _REFUSED and _is_larger(truth):
            self._evidence.counts["refused at a larger size"] += 1
            truth.too_large = min(truth.too_large, truth.nodes)

    def began(self, run: CodeRun) -> None:
        """User code of an attempt runs."""
        truth = self._evidence.truth(run.attempt.workload)
        self._check(run.attempt, run.nodes, truth, "runs on")

    def _check(self, attempt: AttemptId, nodes: int, truth: Truth, what: str) -> None:
        if truth.script is None or not truth.script.elastic:
            return
        if not on_grid(own_values.elastic(truth.script.elastic), nodes):
            asked = truth.script.elastic
            self._evidence.break_(f"{attempt} {what} {nodes} nodes, and can run on {asked}")

    def check_end(self, ledger: Ledger) -> None:
        """No job has failed for a resize that nobody had asked for."""
        for id_, entry in ledger.entries.items():
            truth = self._evidence.truth(id_)
            runs = truth.counted
            is_elastic = truth.script is not None and truth.script.elastic
            if entry.state is not WorkloadState.FAILED or not is_elastic or not runs:
                continue
            if entry.reason is not None and entry.reason.code is ReasonCode.DEADLINE:
                continue  # it was to go on, and came too late
            if truth.cancel_asked and not truth.failed_uncancelled:
                continue  # before the daemon had its failure, which then is its end
            last = runs[-1]
            if last.exit_code == NOT_JOINED and _worked(runs[:-1]) and not truth.unrecorded:
                self._evidence.break_(
                    f"{id_} has failed on {last.nodes} nodes, and ran on fewer before"
                )


def _is_larger(truth: Truth) -> bool:
    """Whether its last award was of more nodes than its least size."""
    if truth.script is None or not truth.script.elastic:
        return False
    return truth.nodes > own_values.elastic(truth.script.elastic).least


def _worked(runs: list[CodeRun]) -> bool:
    """Whether one of some runs is known to have left well: its ranks had joined, and it saved."""
    return any(run.nodes <= run.joins and run.notified and run.exit_code == SAVED for run in runs)
