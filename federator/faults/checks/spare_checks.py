"""Checks gangs that have a spare: how many nodes they get, and that they go on in the same job."""

from __future__ import annotations

from federator.faults.checks.evidence import Evidence
from federator.faults.user_code import CodeRun
from federator.model.event import Awarded
from federator.model.site import SiteJobState


class SpareChecks:
    """Compares awards and ends of gangs with the spares that their users asked for.

    Args:
        evidence: of this history.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def awarded(self, event: Awarded) -> None:
        """An attempt goes to these nodes."""
        script = self._evidence.truth(event.attempt.workload).script
        if script is None or not script.spare:
            return
        nodes = len({name for plan in event.jobs for name in plan.nodes})
        asked = script.parts[0][0] + script.spare
        self._evidence.counts["gangs with a spare"] += 1
        if nodes != asked:
            self._evidence.break_(
                f"{event.attempt} is awarded {nodes} nodes, and asks for {asked} with its spare"
            )

    def went_on(self, run: CodeRun, *, enough: bool) -> None:
        """A node fails under it, and Slurm lets it run on."""
        how = "goes on without" if enough else "has too few nodes without"
        self._evidence.tell(f"{run.site}: {run.attempt} {how} {run.lost_nodes} nodes")
        self._evidence.counts["went on with a spare"] += enough

    def ended(self, run: CodeRun) -> None:
        """Nobody but its user or an eviction ends a gang that went on."""
        truth = self._evidence.truth(run.attempt.workload)
        script = truth.script
        if not run.lost_nodes or run.ended is not SiteJobState.CANCELLED or script is None:
            return
        by_others = truth.cancel_asked or truth.ended_outside or truth.unheard or run.notified
        if by_others or script.deadline_s or truth.excuses(run) or run.lost_nodes > script.spare:
            return
        self._evidence.break_(f"{run.attempt} went on with its spare, and was ended for nothing")
