"""Checks what users have wished for: which nodes, when, and after which job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from federator.faults.checks.evidence import BY_ITSELF, Evidence, Truth
from federator.faults.client_scripts import ClientScript
from federator.faults.user_code import CodeRun
from federator.model.event import Awarded, Submitted
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.workload import WorkloadId

SILENCE_S: Final = 20.0  # policy.interactive.silence_s here
ENDS_WITHIN_S: Final = 2 * SILENCE_S + 35.0  # without its command, once nothing fails any more
_COMPLETED = WorkloadState.COMPLETED


class WishChecks:
    """Compares submissions, awards and starts with the scripts of the users.

    Args:
        evidence: of this history.

    Attributes:
        scripts: by user and key.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.scripts: Mapping[str, ClientScript] = {}
        self._by_number: dict[int, Sequence[WorkloadId]] = {}

    def submitted(self, event: Submitted) -> None:
        """This is in the log now."""
        script = self.scripts.get(event.key)
        if script is None:
            return
        ids = [workload.id for workload in event.workloads()]
        self._by_number[script.number] = ids
        for id_ in ids:
            truth = self._evidence.truth(id_)
            truth.script, truth.heard_at_s = script, self._evidence.clock()
            if script.waits_for is not None:
                truth.waits_for = tuple(self._by_number[script.waits_for.script])

    def awarded(self, event: Awarded) -> None:
        """An attempt goes to these nodes."""
        script = self._evidence.truth(event.attempt.workload).script
        if script is None:
            return
        nodes = {name for plan in event.jobs for name in plan.nodes}
        if script.nodelist and (event.site != script.site or script.nodelist not in nodes):
            self._evidence.break_(
                f"{event.attempt} is to have {script.site}:{script.nodelist}, and is awarded "
                f"{event.site}:{','.join(sorted(nodes))}"
            )
        if script.exclude in nodes:
            self._evidence.break_(f"{event.attempt} is awarded {script.exclude}, and excludes it")

    def began(self, id_: WorkloadId) -> None:
        """User code of the workload runs."""
        truth = self._evidence.truth(id_)
        script = truth.script
        if script is None:
            return
        if script.released_after_s is not None and not truth.release_asked:
            self._evidence.break_(f"{id_} is on hold, and runs")
        if script.waits_for is not None and not self._is_met(script.waits_for.kind, truth):
            self._evidence.break_(f"{id_} waits for {truth.waits_for[0]}, and runs")

    def cancelled(self, id_: WorkloadId) -> None:
        """It is to end; if nobody has asked for that, since its command is not heard."""
        truth = self._evidence.truth(id_)
        if truth.script is None or not truth.script.terminal_s or truth.cancel_asked:
            return
        truth.unheard = True
        self._evidence.counts["interactive jobs that were not heard"] += 1
        since_s = self._evidence.clock() - truth.heard_at_s
        if since_s < SILENCE_S:
            self._evidence.break_(
                f"{id_} is cancelled for silence, and was heard {since_s:.0f} s before"
            )

    def ended(self, run: CodeRun) -> None:
        """User code has ended."""
        truth = self._evidence.truth(run.attempt.workload)
        since_s = self._evidence.clock() - max(
            truth.command_died_at_s, self._evidence.faults_stopped_at_s
        )
        if run.ended in BY_ITSELF and since_s > ENDS_WITHIN_S and not truth.excuses(run):
            self._evidence.break_(
                f"{run.attempt.workload} ran on for {since_s:.0f} s without its command"
            )

    def _is_met(self, kind: str, truth: Truth) -> bool:
        others = [self._evidence.truth(id_) for id_ in truth.waits_for]
        states = [other.state for other in others]
        match kind:
            case "afterok":
                return all(state is _COMPLETED for state in states)
            case "afternotok":
                return all(state in TERMINAL for state in states) and not _all_completed(states)
            case "after":
                return any(other.has_started or other.state in TERMINAL for other in others)
            case _:
                return all(state in TERMINAL for state in states)

    def never_starts(self, truth: Truth) -> bool:
        """Whether what it waits for has ended otherwise than it was to."""
        chain = truth.script.waits_for if truth.script is not None else None
        if chain is None:
            return False
        states = [self._evidence.truth(id_).state for id_ in truth.waits_for]
        if chain.kind == "afterok":
            return any(state in TERMINAL and state is not _COMPLETED for state in states)
        return chain.kind == "afternotok" and _all_completed(states)


def _all_completed(states: Sequence[WorkloadState]) -> bool:
    return all(state is _COMPLETED for state in states)
